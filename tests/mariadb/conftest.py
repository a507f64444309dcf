"""A database of each test's own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.mariadb.shops import SERVERS, Shop


@pytest.fixture(params=SERVERS)
def shop(request: pytest.FixtureRequest) -> Iterator[Shop]:
    """A database with a table of orders, on each server."""
    server = request.getfixturevalue(request.param)
    made = Shop(server, server.database())
    made.run(
        "create table orders (id int primary key, customer varchar(40) not null, total decimal(10, 2), note text)",
        "insert into orders select seq, concat('c', seq), seq, if(seq % 3, concat('note ', seq), null) "
        f"from {made.series(1000)}",
    )
    yield made
    made.run(f"drop database {made.name}")
