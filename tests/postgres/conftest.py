"""A database of each test's own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.captured import Database, database
from tests.servers.postgres import Postgres
from tests.tiers import nightly
from volley.connectors.postgres import watch


@pytest.fixture
def shop(postgres: Postgres) -> Iterator[Database]:
    """A database with a table of orders."""
    with database(postgres) as made:
        _fill(made)
        yield made


@pytest.fixture
def shop_18(postgres_18: Postgres) -> Iterator[Database]:
    """The same in PostgreSQL 18."""
    with database(postgres_18) as made:
        _fill(made)
        yield made


@pytest.fixture(params=[pytest.param(15, marks=pytest.mark.services), nightly(18)])
def any_shop(request: pytest.FixtureRequest) -> Database:
    """The same in PostgreSQL 15 and in PostgreSQL 18."""
    shop: Database = request.getfixturevalue("shop" if request.param == 15 else "shop_18")
    return shop


@pytest.fixture
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks at the catalog are a tenth of a second apart."""
    monkeypatch.setattr(watch, "_LOOK_SECONDS", 0.1)


def _fill(shop: Database) -> None:
    shop.run(
        "create table orders (id int primary key, customer text not null, total numeric(10, 2), note text)",
        "insert into orders select n, 'c' || n, n, case when n % 3 > 0 then 'note ' || n end "
        "from generate_series(1, 1000) n",
    )
