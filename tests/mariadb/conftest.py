"""A database of each test's own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.mariadb.shops import OWN_SERVERS, SERVERS, Shop


@pytest.fixture(params=SERVERS)
def shop(request: pytest.FixtureRequest) -> Iterator[Shop]:
    """A database with a table of orders, on each server."""
    with _database(request) as made:
        yield made


@pytest.fixture(params=OWN_SERVERS)
def own_shop(request: pytest.FixtureRequest) -> Iterator[Shop]:
    """The same, on servers of this process, which a test may kill and change."""
    with _database(request) as made:
        yield made


@contextmanager
def _database(request: pytest.FixtureRequest) -> Iterator[Shop]:
    server = request.getfixturevalue(request.param)
    made = Shop(server, server.database())
    made.run(
        "create table orders (id int primary key, customer varchar(40) not null, total decimal(10, 2), note text)",
        "insert into orders select seq, concat('c', seq), seq, if(seq % 3, concat('note ', seq), null) "
        f"from {made.series(1000)}",
    )
    yield made
    made.run(f"drop database {made.name}")
