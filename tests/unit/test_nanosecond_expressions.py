"""Expressions of timestamps with nanoseconds: as of microseconds, with all digits; texts and casts by value."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tests.unit.functions import CASES, ROWS, Case
from volley import ExpressionError, col
from volley.columns.casts import cast, try_cast
from volley.columns.expressions import compile_expression
from volley.types.arrow import arrow_type, type_name

NS, UTC = pa.timestamp("ns"), pa.timestamp("ns", "UTC")
_REST = 789
_NEAR = 9_223_372_036_854_775


def _near(rows: pa.Table) -> pa.Table:
    """Return the rows without times that 64 bits of nanoseconds can't hold."""
    for number, field in enumerate(rows.schema):
        if pa.types.is_timestamp(field.type):
            numbers = rows[field.name].cast("int64").to_pylist()
            values = [None if value is None or abs(value) >= _NEAR else value for value in numbers]
            rows = rows.set_column(number, field.name, pa.array(values, pa.int64()).cast(field.type))
    return rows


def _fine(rows: pa.Table, rest: int) -> pa.Table:
    for number, field in enumerate(rows.schema):
        if pa.types.is_timestamp(field.type):
            values = [None if value is None else value * 1_000 + rest for value in _numbers(rows[field.name])]
            fine = pa.array(values, pa.int64()).cast(pa.timestamp("ns", field.type.tz))
            rows = rows.set_column(number, field.name, fine)
    return rows


def _numbers(values: pa.ChunkedArray) -> list[int | None]:
    numbers: list[int | None] = values.cast(pa.int64()).to_pylist()
    return numbers


def _values(case: Case, rows: pa.Table) -> pa.Array:
    compiled = compile_expression(case.expression.node, rows.schema)
    (batch,) = rows.combine_chunks().to_batches()
    values = compiled.evaluate(batch)
    array = pa.repeat(values, rows.num_rows) if isinstance(values, pa.Scalar) else values
    assert array.type == compiled.type
    return cast(array, pa.timestamp("us", array.type.tz)) if pa.types.is_timestamp(array.type) else array


_OF_TIMES = [case for case in CASES if case.op.startswith("dt_")]


@pytest.mark.parametrize("rest", [0, _REST])
@pytest.mark.parametrize("case", _OF_TIMES, ids=lambda case: repr(case.expression))
def test_functions_give_what_they_give_of_microseconds(case: Case, rest: int) -> None:
    rows = _near(ROWS)
    values = [_values(case, each).to_pylist() for each in (rows, _fine(rows, rest))]
    assert values[0] == values[1]


def _cast(texts: list[str | None], name: str, convert: Any = cast) -> list[int | None]:
    values: list[int | None] = convert(pa.array(texts), arrow_type(name)).cast(pa.int64()).to_pylist()
    return values


def test_casts_of_texts() -> None:
    texts = ["2024-01-01 00:00:00.123456789", "1969-12-31T23:59:59.9999999", None]
    assert _cast(texts, "timestamp_ntz(9)") == _cast(texts, "timestamp(9)") == [1704067200123456789, -100, None]
    zoned: list[str | None] = ["2024-01-01T02:00:00.123456789+02:00", "1970-01-01T00:00:00.000000001Z"]
    assert _cast(zoned, "timestamp(9)") == [1704067200123456789, 1]
    beyond: list[str | None] = ["2262-04-12 00:00:00", "9999-12-31", "no time", "1677-09-20"]
    assert _cast(beyond, "timestamp(9)", try_cast) == _cast(beyond, "timestamp_ntz(9)", try_cast) == [None] * 4
    with pytest.raises(ExpressionError, match=r"timestamp\(9\)"):
        cast(pa.array(beyond), UTC)


def test_casts_of_times() -> None:
    moments = pa.array([-1, 1_999, None], NS)
    assert cast(moments, pa.timestamp("us")).cast("int64").to_pylist() == [-1, 1, None]
    assert cast(moments, UTC).cast("int64").to_pylist() == [-1, 1_999, None]
    assert cast(moments, pa.string()).to_pylist()[:2] == [
        "1969-12-31 23:59:59.999999999",
        "1970-01-01 00:00:00.000001999",
    ]
    assert [str(day) for day in cast(moments, pa.date32()).to_pylist()] == ["1969-12-31", "1970-01-01", "None"]
    limit = pa.array([_NEAR - 1, 1 - _NEAR, _NEAR + 1, None], pa.timestamp("us"))
    assert try_cast(limit, NS).cast("int64").to_pylist() == [(_NEAR - 1) * 1000, (1 - _NEAR) * 1000, None, None]
    assert try_cast(pa.array([106751, -106752], pa.date32()), UTC).cast("int64").to_pylist() == [
        106751 * 86400 * 10**9,
        None,
    ]
    with pytest.raises(ExpressionError, match="out of bounds"):
        cast(limit, NS)


def test_comparisons_with_microseconds_are_exact() -> None:
    rows = pa.table({"fine": pa.array([1_000, 1_001], NS), "coarse": pa.array([1, 1], pa.timestamp("us"))})
    compiled = compile_expression((col("fine") == col("coarse")).node, rows.schema)
    assert compiled.evaluate(rows.to_batches()[0]).to_pylist() == [True, False]


@pytest.mark.parametrize(
    ("name", "written"), [("timestamp(9)", UTC), ("timestamp_ntz( 9 )", NS), ("timestamp(6)", None)]
)
def test_names(name: str, written: pa.DataType | None) -> None:
    expected = written or pa.timestamp("us", "UTC")
    assert arrow_type(f"array<{name}>") == pa.list_(expected)
    assert arrow_type(type_name(expected)) == expected


def test_starts_before_the_first_nanosecond_are_refused() -> None:
    rows = pa.table({"at": pa.array([-(2**63)], NS)})
    compiled = compile_expression(col("at").dt.truncate("year").node, rows.schema)
    with pytest.raises(pa.ArrowInvalid, match="before the first"):
        compiled.evaluate(rows.to_batches()[0])
