"""TPC-H's 22 queries, as they are, over tables and as views, have the rows of DuckDB, before and after changes."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from duckdb_extensions import import_extension

from volley import Environment, IcebergStorage, IcebergTable, MaterializedView, TableRef
from volley.iceberg import IcebergSinkConfig

NUMBERS = range(1, 23)
_SCALE = 0.005


@pytest.fixture(scope="module")
def tpch() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        import_extension("tpch", con=connection)
        connection.load_extension("tpch")
        connection.execute(f"call dbgen(sf={_SCALE})")
        yield connection


@cache
def _texts() -> dict[int, str]:
    connection = duckdb.connect()
    import_extension("tpch", con=connection)
    connection.load_extension("tpch")
    return dict(connection.execute("select query_nr, query from tpch_queries()").fetchall())


def _tables(number: int, connection: duckdb.DuckDBPyConnection) -> dict[str, pa.Table]:
    names = [name for (name,) in connection.execute("show tables").fetchall()]
    return {
        name: connection.table(name).to_arrow_table() for name in names if re.search(rf"\b{name}\b", _texts()[number])
    }


@pytest.mark.parametrize("number", NUMBERS)
def test_a_query_over_tables_has_the_rows_of_duckdb_in_order(number: int, tpch: duckdb.DuckDBPyConnection) -> None:
    text = _texts()[number]
    expected = tpch.sql(text).to_arrow_table()
    rows = Environment().sql(text, **_tables(number, tpch)).to_arrow()
    assert rows.column_names == expected.column_names
    assert _plain(rows) == _plain(expected)


@pytest.mark.parametrize("number", NUMBERS)
def test_a_view_of_a_query_is_brought_up_to_date_by_changes(
    number: int, tpch: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    text, chance = _texts()[number], random.Random(number)
    storage, connection = IcebergStorage.Local(str(tmp_path)), duckdb.connect()
    refs, tables, live = dict[str, TableRef](), dict[str, Any](), _tables(number, tpch)
    for name, rows in live.items():
        refs[name] = TableRef("tpch", name, storage)
        tables[name] = _created(refs[name], rows)
    into = IcebergSinkConfig.from_table(refs[next(iter(refs))].beside("view"))
    sources = {name: IcebergTable(ref) for name, ref in refs.items()}
    view = MaterializedView("view", sql=text, sources=sources, into=into, mode="incremental")
    assert view.refresh().mode == "full"
    for _ in range(2):
        _check(view, text, live, connection)
        for name in live:
            live[name] = _changed(tables[name], live[name], chance)
        assert view.refresh().mode == "incremental"
    _check(view, text, live, connection)


def _created(ref: TableRef, rows: pa.Table) -> Any:
    catalog = ref.load_catalog()
    catalog.create_namespace_if_not_exists("tpch")
    table = catalog.create_table(ref.name, rows.schema)
    table.append(rows)
    return table


def _changed(table: Any, rows: pa.Table, chance: random.Random) -> pa.Table:
    """Delete some rows of a table, and insert others: some with their values, one of which is changed."""
    key = rows.column_names[0]
    gone = {rows[key][chance.randrange(len(rows))].as_py() for _ in range(1 + len(rows) // 50)}
    is_gone = pa.array([value in gone for value in rows[key].to_pylist()])
    kept, taken = rows.filter(pa.compute.invert(is_gone)), rows.filter(is_gone)
    updated = [_updated(row, rows, chance) for row in taken.to_pylist() if chance.random() < 0.7]
    new = [{**_updated(row, rows, chance), key: row[key] + 1_000_000} for row in updated[:5]]
    added = pa.Table.from_pylist([*updated, *new], rows.schema)
    table.delete(f"{key} in ({', '.join(map(str, gone))})")
    table.append(added)
    return pa.concat_tables([kept, added])


def _updated(row: dict[str, Any], rows: pa.Table, chance: random.Random) -> dict[str, Any]:
    """Return a row with another one's value in one column that is not its first."""
    name = chance.choice(rows.column_names[1:])
    return {**row, name: rows[name][chance.randrange(len(rows))].as_py()}


def _check(view: MaterializedView, text: str, live: dict[str, pa.Table], connection: duckdb.DuckDBPyConnection) -> None:
    for name, rows in live.items():
        connection.register(name, rows)
    expected = connection.sql(text).to_arrow_table()
    rows = Environment().from_source(view.to_source()).to_arrow()
    assert rows.column_names == expected.column_names
    assert Counter(_plain(rows)) == Counter(_plain(expected))


def _plain(rows: pa.Table) -> list[tuple[Any, ...]]:
    return [tuple(map(_value, row.values())) for row in rows.to_pylist()]


def _value(value: Any) -> Any:
    return format(float(value), ".9g") if isinstance(value, int | float | Decimal) else value
