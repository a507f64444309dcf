"""Which tables of format version 3 other engines read: makes the table in docs/how-to/format-3.md.

``python -m tests.services.format_3_readers`` tries them and writes it; ``test_format_3_readers.py`` tries them again.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
from pyiceberg.types import PrimitiveType, TimestamptzNanoType, UnknownType

from tests.duck import query
from tests.processes import ROOT
from tests.servers.iceberg_spark import IcebergSpark
from tests.services.histories import commit
from tests.services.readers import Lake, spark_sql
from volley import Environment, IcebergSource, IcebergSourceConfig, MaterializedView
from volley.iceberg import (
    Append,
    IcebergTable,
    Partitioning,
    SchemaEvolution,
    SnapshotManager,
    Upsert,
    publish_branch,
)
from volley.iceberg.modes import Strategy

__all__ = ["on_page", "table"]

PAGE = ROOT / "docs" / "how-to" / "format-3.md"
BEGIN = "<!-- readers: written by python -m tests.services.format_3_readers, checked by its test -->\n"
END = "<!-- end of readers -->\n"

QUERY = "2b6f8a5e-0000-0000-0000-000000000000"
_IDS = ("_row_id", "_last_updated_sequence_number")

Rows = dict[int, Any]
"""The values of a table by the id of their row."""
_GONE = object()
"""The value of a row that is deleted."""
Read = Callable[[Lake, str, Sequence[str]], list[tuple[Any, ...]]]


@dataclass(frozen=True)
class Case:
    """A table with the columns ``id`` and ``value``.

    Args:
        name: What it has, for the page.
        fill: Makes a table of this name, and fills it.
        rows: The rows that it has then.
        by: What to select for the value by SQL, where not its name; by reader.
        shown: Makes of a value that a reader shows one that can be compared.
    """

    name: str
    fill: Callable[[Lake, str], None]
    rows: Rows
    by: Mapping[str, str] = field(default_factory=dict)
    shown: Callable[[Any], Any] = lambda value: value


# --- readers


def _by_volley(lake: Lake, name: str, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    rows = IcebergTable(lake.config(name).ref).rows
    if _IDS[0] in columns:
        rows = rows.include("row_id", "last_updated_sequence_number")
    return _tuples(rows.to_arrow().select(list(columns)))


def _by_spark(lake: Lake, name: str, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    (rows,) = spark_sql(lake, f"select {', '.join(columns)} from volley.db.{name}")
    return [tuple(row.values()) for row in rows]


def _by_duckdb(lake: Lake, name: str, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    scanned = f"iceberg_scan('{lake.config(name).ref.load().metadata_location}')"
    rows: list[tuple[Any, ...]] = query(f"select {', '.join(columns)} from {scanned}").fetchall()
    return rows


def _by_pyiceberg(lake: Lake, name: str, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    return _tuples(lake.table(name).scan(selected_fields=tuple(columns)).to_arrow().select(list(columns)))


def _tuples(rows: pa.Table) -> list[tuple[Any, ...]]:
    # Python's own times have no nanoseconds.
    plain = [column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column for column in rows.columns]
    return list(zip(*(column.to_pylist() for column in plain), strict=True))


READERS: dict[str, Read] = {
    "Volley": _by_volley,
    "Spark 4.1.4, Iceberg 1.12.0": _by_spark,
    "DuckDB 1.5.5": _by_duckdb,
    "pyiceberg 0.12.0": _by_pyiceberg,
}


def _outcome(reader: str, lake: Lake, name: str, case: Case) -> str:
    """Return in a word what a reader makes of a table."""
    read = READERS[reader]
    try:
        rows = read(lake, name, ["id", case.by.get(reader, "value")])
    except Exception:
        return "other columns" if _reads_another_column(read, lake, name, case) else "no"
    values = {key: case.shown(value) for key, value in rows}
    return "yes" if values == case.rows and len(rows) == len(values) else "**wrong**"


def _reads_another_column(read: Read, lake: Lake, name: str, case: Case) -> bool:
    try:
        return sorted(read(lake, name, ["id"])) == [(key,) for key in sorted(case.rows)]
    except Exception:
        return False


def _shows_ids(read: Read, lake: Lake, names: Sequence[str]) -> str:
    """Return in a word whether a reader shows the ids and numbers that Volley does."""
    columns = ["id", *_IDS]
    try:
        rows = [sorted(read(lake, name, columns)) for name in names]
    except Exception:
        return "no"
    return "yes" if rows == [sorted(_by_volley(lake, name, columns)) for name in names] else "**wrong**"


def table(lake: Lake) -> str:
    """Make the tables, read them by all readers, and return the table for the page."""
    lake.catalog().create_namespace_if_not_exists("db")
    names = {case.name: f"t{number}" for number, case in enumerate(CASES)}
    lines = [["", *READERS], ["---"] * (1 + len(READERS))]
    for case in CASES:
        case.fill(lake, names[case.name])
        lines.append([case.name, *(_outcome(reader, lake, names[case.name], case) for reader in READERS)])
    of_rows = [names[case.name] for case in _OF_ROWS]
    ids = [_shows_ids(read, lake, of_rows) for read in READERS.values()]
    lines.insert(2 + len(_OF_ROWS), ["ids of these rows, and numbers of their last changes", *ids])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


# --- tables


def _filled(
    lake: Lake,
    name: str,
    strategy: Strategy,
    *epochs: Rows,
    version: str = "3",
    buckets: int = 0,
    branch: str = "main",
) -> None:
    """Commit an epoch of upserts for each of some rows."""
    config = lake.config(name).with_commit_mode(Upsert(["id"], op_field="op", strategy=strategy))
    config = config.with_table_properties({"format-version": version}).with_branch(branch)
    if buckets:
        config = config.with_partitioning([Partitioning.bucket("id", n=buckets)])
    before = len(lake.table(name).snapshots()) if lake.catalog().table_exists(f"db.{name}") else 0
    for number, rows in enumerate(epochs, before):
        ops = {key: "d" if value is _GONE else "u" for key, value in rows.items()}
        sent = [{"id": key, "value": None if op == "d" else rows[key], "op": op} for key, op in ops.items()]
        commit(config, QUERY, number, sent, _UPSERTS)


_UPSERTS = pa.schema({"id": pa.int64(), "value": pa.string(), "op": pa.string()})
_FIRST: Rows = {number: f"v{number}" for number in range(20)}
_EPOCHS: tuple[Rows, ...] = (_FIRST, {3: "w", 7: _GONE, 20: "w"}, {3: "x", 8: _GONE, 21: "x"})


def _after(*epochs: Rows) -> Rows:
    rows = {key: value for epoch in epochs for key, value in epoch.items()}
    return {key: value for key, value in rows.items() if value is not _GONE}


def _upgraded(lake: Lake, name: str) -> None:
    _filled(lake, name, "merge_on_read", *_EPOCHS[:2], version="2")
    IcebergTable(lake.config(name).ref).upgrade(3)
    _filled(lake, name, "merge_on_read", _EPOCHS[2])


def _compacted(lake: Lake, name: str) -> None:
    _filled(lake, name, "merge_on_read", *_EPOCHS)
    IcebergTable(lake.config(name).ref).compact(rewrite_all=True, sort_by=["value desc"])


def _z_ordered(lake: Lake, name: str) -> None:
    _filled(lake, name, "merge_on_read", *_EPOCHS)
    IcebergTable(lake.config(name).ref).compact(rewrite_all=True, z_order=["id", "value"])


def _rewritten(lake: Lake, name: str) -> None:
    """Manifests are merged, then rows copied again."""
    _filled(lake, name, "merge_on_read", *_EPOCHS[:2])
    IcebergTable(lake.config(name).ref).rewrite_manifests()
    _filled(lake, name, "copy_on_write", _EPOCHS[2])
    IcebergTable(lake.config(name).ref).rewrite_manifests()


def _rolled_back(lake: Lake, name: str) -> None:
    """An epoch is undone, another follows."""
    _filled(lake, name, "merge_on_read", *_EPOCHS[:2])
    kept = IcebergTable(lake.config(name).ref).snapshots()[-1]
    _filled(lake, name, "merge_on_read", {1: "undone", 5: _GONE, 30: "undone"})
    SnapshotManager(lake.config(name).ref).rollback_to(kept.id)
    _filled(lake, name, "merge_on_read", _EPOCHS[2])


def _published(lake: Lake, name: str) -> None:
    """Rows are written to a branch, which main then becomes."""
    _filled(lake, name, "merge_on_read", *_EPOCHS[:2])
    config = lake.config(name)
    SnapshotManager(config.ref).create_branch("audit")
    _filled(lake, name, "merge_on_read", _EPOCHS[2], branch="audit")
    publish_branch(config.with_branch("audit"))


def _evolved(lake: Lake, name: str) -> None:
    """Ids are stored in files, and a column is added and another renamed between."""
    _filled(lake, name, "merge_on_read", *_EPOCHS[:2])
    config = lake.config(name)
    IcebergTable(config.ref).compact(rewrite_all=True)
    evolution = SchemaEvolution(config.ref.load().schema()).add("more", "string", default="m")
    evolution.rename("value", "old").rename("old", "value").apply(config.ref)
    _filled(lake, name, "copy_on_write", _EPOCHS[2])


def _viewed(lake: Lake, name: str) -> None:
    """A view that is made, then refreshed by the changes of its table."""
    of = f"{name}_of"
    _filled(lake, of, "merge_on_read", *_EPOCHS[:2])
    stream = Environment().from_source(IcebergSource(IcebergSourceConfig(lake.config(of).ref)))
    into = lake.config(name).with_table_properties({"format-version": "3"})
    view = MaterializedView(name, stream.filter("id >= 0").select("id", "value"), into)
    view.refresh()
    _filled(lake, of, "merge_on_read", _EPOCHS[2])
    assert view.refresh("incremental").mode == "incremental"


_OF_ROWS = [
    Case(
        "appended and copied rows", lambda lake, name: _filled(lake, name, "copy_on_write", *_EPOCHS), _after(*_EPOCHS)
    ),
    Case("deletion vectors", lambda lake, name: _filled(lake, name, "merge_on_read", *_EPOCHS), _after(*_EPOCHS)),
    Case(
        "deletion vectors of partitions",
        lambda lake, name: _filled(lake, name, "merge_on_read", *_EPOCHS, buckets=3),
        _after(*_EPOCHS),
    ),
    Case("compacted and sorted rows", _compacted, _after(*_EPOCHS)),
    Case("rows in a z-order", _z_ordered, _after(*_EPOCHS)),
    Case("rewritten manifests", _rewritten, _after(*_EPOCHS)),
    Case("an epoch that was rolled back", _rolled_back, _after(*_EPOCHS)),
    Case("a branch that was published", _published, _after(*_EPOCHS)),
    Case("stored ids of rows that got another column", _evolved, _after(*_EPOCHS)),
    Case("a view", _viewed, _after(*_EPOCHS)),
    Case("an upgraded table, with position-delete files", _upgraded, _after(*_EPOCHS)),
]


def _of_type(iceberg_type: str | PrimitiveType, values: pa.Array | None, **options: Any) -> Callable[[Lake, str], None]:
    """Return what makes a table with a row, adds a column of a type, and appends a row for each value, or one without.

    Args:
        options: Those of `SchemaEvolution.add`.
    """

    def fill(lake: Lake, name: str) -> None:
        config = lake.config(name).with_table_properties({"format-version": "3"}).with_commit_mode(Append())
        schema = pa.schema({"id": pa.int64()})
        commit(config, QUERY, 0, [{"id": 0}], schema)
        SchemaEvolution(config.ref.load().schema()).add("value", iceberg_type, **options).apply(config.ref)
        if values is None:
            commit(config, QUERY, 1, [{"id": 1}], schema)
        else:
            rows = [{"id": number, "value": value} for number, value in enumerate(values, 1)]
            commit(config, QUERY, 1, rows, schema.append(pa.field("value", values.type)))

    return fill


def _by_day(lake: Lake, name: str) -> None:
    """A table whose partitions are days of nanoseconds."""
    config = lake.config(name).with_table_properties({"format-version": "3"}).with_commit_mode(Append())
    schema = pa.schema({"id": pa.int64(), "value": pa.timestamp("ns", "UTC")})
    rows = [{"id": number, "value": value} for number, value in _DAYS.items()]
    commit(config.with_partitioning([Partitioning.time("value")]), QUERY, 0, rows, schema)


def _variants_deleted(lake: Lake, name: str) -> None:
    _of_type("variant", None)(lake, name)
    _filled(lake, name, "merge_on_read", {0: '{"a": 1}', 1: '{"a": 2}', 2: "[3]"}, {1: '{"b": 2}', 2: _GONE})


def _shredded(lake: Lake, name: str) -> None:
    rows = """select id, parse_json(concat('{"a": ', id, ', "b": "x"}')) value from range(1, 30)"""
    spark_sql(
        lake,
        f"create table volley.db.{name} (id bigint, value variant) using iceberg "
        "tblproperties ('format-version' = '3', 'write.parquet.shred-variants' = 'true')",
        f"insert into volley.db.{name} {rows}",
    )


def _parsed(text: str | None) -> Any:
    return None if text is None else json.loads(text)


def _bytes(shape: Any) -> bytes | None:
    """Return the bytes of a shape, for which Spark has a class of its own."""
    return None if shape is None else bytes(shape.getBytes() if hasattr(shape, "getBytes") else shape)


_NANOSECONDS = 1_704_067_200_123_456_789
_DAYS: Rows = {1: _NANOSECONDS, 2: _NANOSECONDS + 86_400_000_000_001, 3: -1}
_AS_JSON = {"Spark 4.1.4, Iceberg 1.12.0": "to_json(value)", "DuckDB 1.5.5": "value::json::varchar"}
_AS_WKB = {"DuckDB 1.5.5": "st_aswkb(value)"}
_POINT = b"\x01\x01\x00\x00\x00" + struct.pack("<dd", 1, 2)
_TEXTS = pa.array(['{"a": [1, null]}', None])
_POINTS = pa.array([_POINT, None])
_SHOWN: Rows = {0: None, 1: _POINT, 2: None}

CASES = [
    *_OF_ROWS,
    Case(
        "defaults of columns",
        _of_type("date", pa.array([None, date(2020, 1, 1)]), default=date(2024, 2, 29)),
        {0: date(2024, 2, 29), 1: None, 2: date(2020, 1, 1)},
    ),
    Case("`unknown`", _of_type(UnknownType(), None), {0: None, 1: None}),
    Case(
        "nanoseconds",
        _of_type(TimestamptzNanoType(), pa.array([_NANOSECONDS], pa.timestamp("ns", "UTC"))),
        {0: None, 1: _NANOSECONDS},
    ),
    Case("partitions by days of nanoseconds", _by_day, _DAYS),
    Case(
        "a default with nanoseconds",
        _of_type(TimestamptzNanoType(), None, default="2024-01-01T00:00:00.123456789Z"),
        {0: _NANOSECONDS, 1: _NANOSECONDS},
    ),
    Case(
        "`variant`",
        _of_type("variant", _TEXTS),
        {0: None, 1: {"a": [1, None]}, 2: None},
        _AS_JSON,
        _parsed,
    ),
    Case("`variant` beside deletion vectors", _variants_deleted, {0: {"a": 1}, 1: {"b": 2}}, _AS_JSON, _parsed),
    Case(
        "shredded `variant`",
        _shredded,
        {number: {"a": number, "b": "x"} for number in range(1, 30)},
        _AS_JSON,
        _parsed,
    ),
    Case("`geometry`", _of_type("geometry", _POINTS), _SHOWN, _AS_WKB, _bytes),
    Case("`geography`", _of_type("geography", _POINTS), _SHOWN, _AS_WKB, _bytes),
]


# --- the page


def on_page() -> str:
    """Return the table that stands on the page."""
    return PAGE.read_text().partition(BEGIN)[2].partition(END)[0]


def _write() -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        spark = IcebergSpark(folder).start()
        try:
            (folder / "lake").mkdir()
            found = table(Lake(folder / "lake", spark))
        finally:
            spark.stop()
    text = PAGE.read_text()
    PAGE.write_text(text.replace(BEGIN + on_page() + END, BEGIN + found + END))


if __name__ == "__main__":
    _write()
