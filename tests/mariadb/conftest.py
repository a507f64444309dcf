"""A database of each test's own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.mariadb.shops import Shop
from tests.servers.mariadb import MariaDb


@pytest.fixture
def shop(mariadb: MariaDb) -> Iterator[Shop]:
    """A database with a table of orders."""
    made = Shop(mariadb, mariadb.database())
    made.run(
        "create table orders (id int primary key, customer varchar(40) not null, total decimal(10, 2), note text)",
        "insert into orders select seq, concat('c', seq), seq, if(seq % 3, concat('note ', seq), null) "
        "from seq_1_to_1000",
    )
    yield made
    made.run(f"drop database {made.name}")
