"""Schemas and time spans as users write them, and the names and types that no table can have."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from volley import (
    ConfigError,
    Environment,
    FileSource,
    MemorySource,
    SourceContext,
    SourceError,
    VolleyError,
    col,
    count,
    rolling,
    session,
    sliding,
    tumbling,
)
from volley.checks import duration, duration_or_zero
from volley.types.arrow import arrow_schema, canonical_schema
from volley.types.schemas import check_schema

TOO_LONG = [timedelta.max, timedelta(days=100_000, microseconds=1), "100001d", 1e300, float("inf"), "9" * 400 + "d"]


def test_python_types_in_a_schema() -> None:
    given = {
        **{"a": int, "b": float, "c": str, "d": bool, "e": bytes, "f": datetime, "g": date, "h": time},
        "i": "decimal(10, 2)",
    }
    text = "a long, b double, c string, d boolean, e binary, f timestamp, g date, h time, i decimal(10, 2)"
    assert arrow_schema(check_schema(given)) == arrow_schema(text)
    assert hash(FileSource("in/*.json", schema=given)) == hash(FileSource("in/*.json", schema=dict(given)))
    assert repr(col("a").cast(int)) == repr(col("a").cast("long"))


@pytest.mark.parametrize(
    ("schema", "message", "hint"),
    [
        ({"price": Decimal}, "how many digits", "decimal(10,2)"),
        ({"id": list}, "<class 'list'> is not a type", "array<string>"),
        ({"id": 5}, "5 is not a type", "int, float, str"),
        ({}, "a schema is", '{"id": int'),
        ({"": "long"}, "the name ''", "a name"),
        ({5: "long"}, "the name 5", "a name"),
        ("id long, `` string", "the name ''", "a name"),
        ("at struct<``: long>", "the name ''", "a name"),
        ("a decimal(5, -2)", "decimal(5,-2)", "0 to the precision"),
        ("a decimal(39, 2)", "decimal(39,2)", "1 to 38"),
        ("at struct<>", "a column name", "struct"),
        ("at struct<a: int, a: int>", "'a' stands twice", "rename"),
        (pa.schema([("a", pa.decimal128(5, -2))]), "column 'a': decimal(5,-2)", "0 to the precision"),
        (pa.schema([("a", pa.struct([]))]), "column 'a': a struct without fields", "leaves the column out"),
        (pa.schema([("a", pa.list_(pa.struct([])))]), "column 'a': a struct without fields", "leaves the column out"),
        (pa.schema([("a", pa.struct([("", pa.int8())]))]), "the name ''", "a name"),
        (pa.schema([("", pa.int8())]), "the name ''", "a name"),
        (pa.schema([("a", pa.int8()), ("a", pa.int8())]), "'a' stands twice", "rename"),
        (pa.int64(), "DataType", "id long"),
        (("id", "long"), "a schema is", "id long"),
    ],
)
def test_a_schema_that_cannot_be_is_refused_when_it_is_given(schema: Any, message: str, hint: str) -> None:
    with pytest.raises(VolleyError) as caught:
        FileSource("in/*.json", schema=schema)
    assert message in caught.value.message
    assert hint in str(caught.value.hint)


@pytest.mark.parametrize("rows", [[{"a": {}}], [{"": 1}], [{"a": {"": 1}}]])
def test_rows_that_no_table_can_keep_are_refused(rows: list[dict[str, Any]]) -> None:
    with pytest.raises((ConfigError, SourceError)) as caught:
        MemorySource(rows).open(SourceContext(""))
    assert caught.value.hint


@pytest.mark.parametrize(
    ("kind", "canonical", "value"),
    [
        (pa.decimal32(5, 2), pa.decimal128(5, 2), "-999.99"),
        (pa.decimal64(12, 0), pa.decimal128(12, 0), "999999999999"),
        (pa.decimal256(38, 38), pa.decimal128(38, 38), "0." + "9" * 38),
    ],
)
def test_decimals_of_any_width_are_one_type(kind: pa.DataType, canonical: pa.DataType, value: str) -> None:
    assert canonical_schema(pa.schema([("a", kind)])).field("a").type == canonical
    rows = pa.table({"a": pa.array([Decimal(value), None], kind)})
    reader = MemorySource(rows).open(SourceContext(""))
    (batch,) = reader.read((0, 2, False))
    assert batch["a"].to_pylist() == [Decimal(value), None]


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        (timedelta(minutes=2), 120),
        (5, 5),
        (0.25, 0.25),
        ("500ms", 0.5),
        ("5s", 5),
        ("1.5 m", 90),
        ("2min", 120),
        ("1h", 3600),
        ("2d", 172_800),
        ("100000 days", 8_640_000_000),
    ],
)
def test_time_spans(given: Any, seconds: float) -> None:
    assert duration("wait", given) == timedelta(seconds=seconds)
    assert Environment(checkpoint_interval=given).checkpoint_interval == timedelta(seconds=seconds)


@pytest.mark.parametrize("given", [-1, "-1s", "5", "5 parsecs", "s", "1e3s", float("nan"), *TOO_LONG])
def test_what_is_no_time_span(given: Any) -> None:
    with pytest.raises(ConfigError, match="wait") as caught:
        duration_or_zero("wait", given)
    assert '"5s"' in str(caught.value.hint)


@pytest.mark.parametrize("given", TOO_LONG)
def test_spans_have_a_limit(given: Any) -> None:
    rows = Environment().from_source(MemorySource([], schema="k long, at timestamp"))
    keyed = rows.key_by("k")
    other = Environment().from_source(MemorySource([], schema="k long, n long, at timestamp"))
    for build in (
        lambda: tumbling(given),
        lambda: sliding(given, "1s"),
        lambda: session(given),
        lambda: keyed.window(tumbling("1h"), on="at", fill_gaps=given),
        lambda: keyed.window(tumbling("1h"), on="at", lateness=given),
        lambda: keyed.series(on="at", pause=given),
        lambda: rolling(given, count()),
        lambda: rows.join(other, on="k", time="at", within=given),
        lambda: rows.join(other, on="k", time="at", within=("1s", given)),
    ):
        with pytest.raises(ConfigError, match=r"is not valid\n.*at most 100,000 days"):
            build()


def test_no_time_at_all() -> None:
    assert Environment(checkpoint_interval="0s").checkpoint_interval == timedelta(0)
    with pytest.raises(ConfigError, match="above 0"):
        duration("wait", 0)
