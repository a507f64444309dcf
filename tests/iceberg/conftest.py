"""Makes tables for tests of `volley/iceberg`, in one catalog on the local disk."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from volley.iceberg.schema.types import to_iceberg_schema
from volley.types.arrow import arrow_schema as parse

Make = Callable[..., Table]


@pytest.fixture(scope="session")
def memory_catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Catalog]:
    """One catalog for all tables that tests make under names of their own: a catalog costs four times a table."""
    with InMemoryCatalog("test", warehouse=f"file://{tmp_path_factory.mktemp('warehouse')}") as catalog:
        catalog.create_namespace("db")
        yield catalog


@pytest.fixture
def make(memory_catalog: Catalog) -> Make:
    """Makes tables: of an Arrow or Iceberg schema, with properties."""

    def make(schema: pa.Schema | Schema | str, **properties: str) -> Table:
        if isinstance(schema, str):
            schema = parse(schema)
        made = to_iceberg_schema(schema) if isinstance(schema, pa.Schema) else schema
        named = {name.replace("_", "."): value for name, value in properties.items()}
        return memory_catalog.create_table(f"db.t{uuid.uuid4().hex}", made, properties=named)

    return make
