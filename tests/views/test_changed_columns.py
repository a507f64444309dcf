"""A view goes on when its query needs other helper columns, and when a column of its source was widened."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import DecimalType, DoubleType, FloatType, IntegerType, LongType, NestedField, StringType

from tests.duck import query
from volley import (
    Environment,
    IcebergStorage,
    MaterializedView,
    PlanError,
    SchemaMismatchError,
    avg,
    count,
    max_,
    min_,
    sum_,
)
from volley.iceberg import IcebergSinkConfig, IcebergSource, IcebergSourceConfig, IcebergTable, TableRef

_SCHEMA = Schema(
    NestedField(1, "k", StringType(), required=False),
    NestedField(2, "p", IntegerType(), required=False),
    NestedField(3, "f", FloatType(), required=False),
    NestedField(4, "d", DecimalType(9, 2), required=False),
)


@pytest.fixture
def source(tmp_path: Path) -> TableRef:
    made = TableRef("db", "events", IcebergStorage.Local(str(tmp_path / "lake")))
    with made.load_catalog() as catalog:
        catalog.create_namespace("db")
        catalog.create_table("db.events", _SCHEMA)
    append(made, *range(6))
    return made


def append(source: TableRef, *numbers: int) -> None:
    table = source.load()
    rows = [{"k": "ab"[i % 2], "p": i, "f": i / 2, "d": Decimal(i % 1000)} for i in numbers]
    columns = {name: [row[name] for row in rows] for name in ("k", "p", "f", "d")}
    table.append(pa.table(columns).cast(table.schema().as_arrow()))


def delete(source: TableRef, where: str) -> None:
    source.load().delete(where)


def view_of(source: TableRef, into: IcebergSinkConfig, **aggregates: Any) -> MaterializedView:
    stream = Environment().from_source(IcebergSource(IcebergSourceConfig(source)))
    return MaterializedView("view", stream.key_by("k").aggregate(**aggregates), into)


def check(source: TableRef, into: IcebergSinkConfig, sql: str) -> None:
    """Compare the view's visible columns with DuckDB's answer over the table as pyiceberg reads it."""
    view = IcebergTable(into).to_arrow()
    shown = view.select([name for name in view.column_names if not name.startswith("_volley_")])
    answer = query(f"select k, {sql} from events group by k", events=source.load().scan().to_arrow()).to_arrow_table()
    assert sorted(shown.select(answer.column_names).to_pylist(), key=repr) == sorted(answer.to_pylist(), key=repr)
    assert {*shown.column_names} == {*answer.column_names}


QUERIES: dict[str, tuple[dict[str, Any], str, dict[str, Any], str]] = {
    "a count that was hidden": (
        {"s": sum_("p")},
        "sum(p)::bigint s",
        {"s": sum_("p"), "n": count()},
        "sum(p)::bigint s, count(*) n",
    ),
    "a sum that was hidden": (
        {"a": avg("p")},
        "avg(p) a",
        {"a": avg("p"), "s": sum_("p"), "n": count()},
        "avg(p) a, sum(p)::bigint s, count(*) n",
    ),
    "other ranks of the same names": (
        {"a": max_("p"), "b": max_("k")},
        "max(p) a, max(k) b",
        {"b": max_("k"), "a": max_("p")},
        "max(p) a, max(k) b",
    ),
    "values of another type": (
        {"a": max_("p"), "b": min_("d")},
        "max(p) a, min(d) b",
        {"b": min_("d"), "a": max_("p")},
        "max(p) a, min(d) b",
    ),
}


@pytest.mark.parametrize("mode", ["auto", "full"])
@pytest.mark.parametrize("queries", QUERIES.values(), ids=QUERIES)
def test_a_changed_query(queries: tuple[Any, ...], mode: Any, source: TableRef) -> None:
    before, sql, after, other_sql = queries
    into = IcebergSinkConfig.from_table(source.beside("view"))
    view_of(source, into, **before).refresh()
    check(source, into, sql)
    view = view_of(source, into, **after)
    assert view.refresh(mode=mode).mode == "full"
    check(source, into, other_sql)
    # The new helper columns hold what changes need.
    append(source, 6, 9)
    delete(source, "p = 5 or p = 0")
    assert view.refresh(mode="incremental").mode == "incremental"
    check(source, into, other_sql)


WIDENED: dict[str, tuple[Any, str]] = {
    "max": (max_("p"), "max(p) m"),
    "min": (min_("p"), "min(p) m"),
    "sum": (sum_("p"), "sum(p)::bigint m"),
    "max of floats": (max_("f"), "max(f) m"),
    "max of decimals": (max_("d"), "max(d) m"),
    "sum of decimals": (sum_("d"), "sum(d) m"),
}


@pytest.mark.parametrize(("aggregate", "sql"), WIDENED.values(), ids=WIDENED)
def test_a_widened_column(aggregate: Any, sql: str, source: TableRef) -> None:
    into = IcebergSinkConfig.from_table(source.beside("view"))
    view = view_of(source, into, m=aggregate)
    view.refresh()
    with source.load().update_schema() as update:
        update.update_column("p", LongType()).update_column("f", DoubleType()).update_column("d", DecimalType(12, 2))
    append(source, 1 << 33, 7)
    view = view_of(source, into, m=aggregate)
    assert view.refresh().mode == "full"
    check(source, into, sql)
    append(source, (1 << 34) + 1)
    delete(source, "p = 7")
    assert view.refresh(mode="incremental").mode == "incremental"
    check(source, into, sql)


def test_a_strict_views_columns_stay(source: TableRef) -> None:
    into = IcebergSinkConfig.from_table(source.beside("view")).with_schema_evolution("strict")
    view_of(source, into, m=max_("p")).refresh()
    with source.load().update_schema() as update:
        update.update_column("p", LongType())
    with pytest.raises(SchemaMismatchError, match="'m': the stream has long"):
        view_of(source, into, m=max_("p")).refresh()


def test_a_column_of_the_users_own_is_not_dropped_without_a_word(source: TableRef) -> None:
    into = IcebergSinkConfig.from_table(source.beside("view"))
    view_of(source, into, n=count(), m=max_("p")).refresh()
    with pytest.raises(PlanError, match="columns that the view's query has not: m") as caught:
        view_of(source, into, n=count()).refresh()
    assert "drops=['m']" in (caught.value.hint or "")
    view_of(source, into.with_schema_evolution("full", drops=["m"]), n=count()).refresh()
    check(source, into, "count(*) n")
