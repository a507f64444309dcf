"""Tables of format version 3 with columns, partitions and files of every form that the tests make."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.types import PrimitiveType, TimestamptzNanoType, UnknownType

from tests.services.format_3_rows import FIRST, GONE, OF_ROWS, QUERY, Case, Rows, after, filled
from tests.services.histories import commit
from tests.services.readers import Lake, java_commit, spark_sql
from volley.iceberg import IcebergTable, Partitioning, SchemaEvolution

__all__ = ["CASES"]


def _of_type(iceberg_type: str | PrimitiveType, values: pa.Array | None, **options: Any) -> Callable[[Lake, str], None]:
    """Return what makes a table with a row, adds a column of a type, and appends a row for each value, or one without.

    Args:
        options: Those of `SchemaEvolution.add`.
    """

    def fill(lake: Lake, name: str) -> None:
        config = lake.appended(name)
        schema = pa.schema({"id": pa.int64()})
        commit(config, QUERY, 0, [{"id": 0}], schema)
        SchemaEvolution(config.ref.load().schema()).add("value", iceberg_type, **options).apply(config.ref)
        if values is None:
            commit(config, QUERY, 1, [{"id": 1}], schema)
        else:
            rows = [{"id": number, "value": value} for number, value in enumerate(values, 1)]
            column = pa.field("value", values.type, nullable=not options.get("required", False))
            commit(config, QUERY, 1, rows, schema.append(column))

    return fill


def _defaults_compacted(lake: Lake, name: str) -> None:
    _of_type("string", pa.array([None], pa.string()), default="d")(lake, name)
    IcebergTable(lake.config(name).ref).compact(rewrite_all=True)


def _by_day(lake: Lake, name: str) -> None:
    """A table whose partitions are days of nanoseconds."""
    config = lake.appended(name)
    schema = pa.schema({"id": pa.int64(), "value": pa.timestamp("ns", "UTC")})
    rows = [{"id": number, "value": value} for number, value in _DAYS.items()]
    commit(config.with_partitioning([Partitioning.time("value")]), QUERY, 0, rows, schema)


def _variants_deleted(lake: Lake, name: str) -> None:
    _of_type("variant", None)(lake, name)
    filled(lake, name, "merge_on_read", {0: '{"a": 1}', 1: '{"a": 2}', 2: "[3]"}, {1: '{"b": 2}', 2: GONE})


def _shredded(lake: Lake, name: str) -> None:
    rows = """select id, parse_json(concat('{"a": ', id, ', "b": "x"}')) value from range(1, 30)"""
    spark_sql(
        lake,
        f"create table volley.db.{name} (id bigint, value variant) using iceberg "
        "tblproperties ('format-version' = '3', 'write.parquet.shred-variants' = 'true')",
        f"insert into volley.db.{name} {rows}",
    )


def _nested(lake: Lake, name: str) -> None:
    """A field with a default in a struct that older rows have."""
    config = lake.appended(name)
    fields = {"a": pa.int64()}
    commit(config, QUERY, 0, [{"id": 0, "value": {"a": 1}}], _in_struct(fields))
    SchemaEvolution(config.ref.load().schema()).add("value.b", "string", default="q").apply(config.ref)
    rows: list[dict[str, Any]] = [{"id": 1, "value": {"a": 1, "b": None}}, {"id": 2, "value": None}]
    commit(config, QUERY, 1, rows, _in_struct({**fields, "b": pa.string()}))


def _in_struct(fields: dict[str, pa.DataType]) -> pa.Schema:
    return pa.schema({"id": pa.int64(), "value": pa.struct(fields)})


def _promoted(lake: Lake, name: str) -> None:
    """A column of dates is one of timestamps now, which no writer here does."""
    config = lake.appended(name)
    rows: list[dict[str, Any]] = [{"id": 1, "value": date(2024, 2, 29)}, {"id": 2, "value": None}]
    commit(config, QUERY, 0, rows, pa.schema({"id": pa.int64(), "value": pa.date32()}))
    place = Path(lake.table(name).metadata_location.removeprefix("file://"))
    place.write_text(place.read_text().replace('"type":"date"', '"type":"timestamp"'))


def _by_java(form: str) -> Callable[[Lake, str], None]:
    """Return what makes a table of Spark's files in a format, with an equality delete of Iceberg's Java library."""

    def fill(lake: Lake, name: str) -> None:
        table = f"volley.db.{name}"
        spark_sql(
            lake,
            f"create table {table} (id bigint, value string) using iceberg tblproperties ('format-version' = '3', "
            f"'write.format.default' = '{form.lower()}')",
            f"insert into {table} select id, concat('v', id) from range(20)",
            java_commit(table, [{"id": 3}, {"id": 8}], form=form),
            f"insert into {table} values (3, 'x')",
        )

    return fill


_LEFT: Rows = {**after(FIRST, {8: GONE}), 3: "x"}


def _parsed(text: str | None) -> Any:
    return None if text is None else json.loads(text)


def _parsed_map(value: Any) -> Any:
    """Return a map of variants; Volley's has a JSON text each, others show one of all."""
    if isinstance(value, list):
        return {key: json.loads(text) for key, text in value}
    return _parsed(value)


def _microseconds(value: Any) -> Any:
    return int(value.replace(tzinfo=UTC).timestamp() * 1_000_000) if isinstance(value, datetime) else value


def _bytes(shape: Any) -> bytes | None:
    """Return the bytes of a shape, for which Spark has a class of its own."""
    return None if shape is None else bytes(shape.getBytes() if hasattr(shape, "getBytes") else shape)


_LEAP_DAY = 1_709_164_800_000_000
_NANOSECONDS = 1_704_067_200_123_456_789
_DAYS: Rows = {1: _NANOSECONDS, 2: _NANOSECONDS + 86_400_000_000_001, 3: -1}
_AS_JSON = {"Spark 4.1.4, Iceberg 1.12.0": "to_json(value)", "DuckDB 1.5.5": "value::json::varchar"}
_AS_WKB = {"DuckDB 1.5.5": "st_aswkb(value)"}
_POINT = b"\x01\x01\x00\x00\x00" + struct.pack("<dd", 1, 2)
_TEXTS = pa.array(['{"a": [1, null]}', None])
_POINTS = pa.array([_POINT, None])
_SHOWN: Rows = {0: None, 1: _POINT, 2: None}


def _by(transform: str, *sources: int) -> Callable[[Lake, str], None]:
    """Return what makes a table whose rows are partitioned by a transform of columns, as no writer here does it."""

    def fill(lake: Lake, name: str) -> None:
        config = lake.appended(name)
        config = config.with_partitioning([Partitioning.identity("value")])
        for number, key in enumerate(_FOREIGN):
            commit(config, QUERY, number, [{"id": key, "value": _FOREIGN[key]}], _ROWS)
        place = Path(lake.table(name).metadata_location.removeprefix("file://"))
        metadata = json.loads(place.read_text())
        for by in (part for spec in metadata["partition-specs"] for part in spec["fields"]):
            by["transform"] = transform
            if len(sources) > 1:
                by["source-ids"] = sources
                del by["source-id"]
        place.write_text(json.dumps(metadata))

    return fill


_ROWS = pa.schema({"id": pa.int64(), "value": pa.string()})
_FOREIGN: Rows = {1: "a", 2: "b"}

CASES = [
    *OF_ROWS,
    Case(
        "defaults of columns",
        _of_type("date", pa.array([None, date(2020, 1, 1)]), default=date(2024, 2, 29)),
        {0: date(2024, 2, 29), 1: None, 2: date(2020, 1, 1)},
    ),
    Case("a default that a compaction has written out", _defaults_compacted, {0: "d", 1: None}),
    Case(
        "a required column with a default",
        _of_type("string", pa.array(["x"]), default="d", required=True),
        {0: "d", 1: "x"},
    ),
    Case("a default within structs", _nested, {0: {"a": 1, "b": "q"}, 1: {"a": 1, "b": None}, 2: None}),
    Case("dates that are timestamps now", _promoted, {1: _LEAP_DAY, 2: None}, shown=_microseconds),
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
    Case(
        "maps of `variant`",
        _of_type("map<string, variant>", pa.array([[("k", '{"a": 1}')]], pa.map_(pa.string(), pa.string()))),
        {0: None, 1: {"k": {"a": 1}}},
        _AS_JSON,
        _parsed_map,
    ),
    Case("`geometry`", _of_type("geometry", _POINTS), _SHOWN, _AS_WKB, _bytes),
    Case("`geography`", _of_type("geography", _POINTS), _SHOWN, _AS_WKB, _bytes),
    Case("partitions by a transform that is not known", _by("zorder", 2), _FOREIGN),
    Case("partitions by a transform of several columns", _by("bucket[4]", 1, 2), _FOREIGN),
    Case("equality deletes of another writer", _by_java("PARQUET"), _LEFT),
    Case("ORC files of another writer", _by_java("ORC"), _LEFT),
    Case("Avro files of another writer", _by_java("AVRO"), _LEFT),
]
