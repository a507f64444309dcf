"""A database of each test's own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.captured import Database, database
from tests.servers.postgres import Postgres


@pytest.fixture
def shop(postgres: Postgres) -> Iterator[Database]:
    """A database with a table of orders."""
    with database(postgres) as made:
        made.run(
            "create table orders (id int primary key, customer text not null, total numeric(10, 2), note text)",
            "insert into orders select n, 'c' || n, n, case when n % 3 > 0 then 'note ' || n end "
            "from generate_series(1, 1000) n",
        )
        yield made
