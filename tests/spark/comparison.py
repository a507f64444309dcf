"""Compares calls of Volley's functions with Spark's: `python -m tests.spark.comparison` writes what is found anew."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from tests.unit.beside_spark.case import SparkCase
from tests.unit.beside_spark.cases import CASES
from tests.unit.beside_spark.differences import DIFFERENCES, RAISES, differences, raises
from tests.unit.beside_spark.rows import ROWS
from volley import VolleyError
from volley.columns.exact import stored
from volley.columns.expressions import compile_expression

__all__ = ["found", "interpreting", "open_views", "run_in_spark"]

RAISED = "an error"
_NAMES = {"large_string": "string", "large_binary": "binary", "date32[day]": "date", "int32": "int", "int64": "long"}
_MOMENTS = {
    "timestamp[us, tz=UTC]": "timestamp",
    "timestamp[us]": "timestamp_ntz",
    "time64[us]": "time",
    "time64[ns]": "time",
}

Values = tuple[str, list[Any]]
"""The type and the values of a call."""


def interpreting(spark: SparkSession) -> SparkSession:
    """Return a session that interprets expressions: to generate code for each is slow."""
    session = spark.newSession()
    session.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    session.conf.set("spark.sql.codegen.wholeStage", "false")
    return session


def open_views(spark: SparkSession) -> SparkSession:
    """Return a session that knows the rows as views."""
    session = interpreting(spark)
    session.conf.set("spark.sql.timeType.enabled", "true")
    for name, rows in ROWS.items():
        numbered = rows.append_column("k_", pa.array(range(rows.num_rows), pa.int32()))
        session.createDataFrame(numbered, _spark_schema(numbered.schema)).createOrReplaceTempView(_view(name))
    return session


def found(session: SparkSession, rows: str, raised: Mapping[str, Sequence[int]]) -> dict[str, str]:
    """Return what differs, by the name of the call.

    Args:
        session: Knows the rows.
        rows: The name of the rows.
        raised: The rows that raise in Spark, by the name of the call.
    """
    cases = [case for case in CASES if case.rows == rows]
    by_spark = _by_spark(session, rows, cases, raised)
    texts = {case.key: _difference(_by_volley(case), by_spark[case.key]) for case in cases}
    return {key: text for key, text in texts.items() if text}


def run_in_spark(session: SparkSession, cases: Sequence[SparkCase], first: int, last: int) -> None:
    """Run calls on some of their rows.

    Raises:
        PySparkException: If one of them raises.
    """
    columns = ", ".join(f"{case.spark} as c{number}" for number, case in enumerate(cases))
    session.sql(f"select {columns} from {_view(cases[0].rows)} where k_ between {first} and {last}").collect()


def _spark_schema(schema: pa.Schema) -> StructType:
    bytes_of = pa.schema([field.with_type(stored(field.type)) for field in schema])
    return from_arrow_schema(bytes_of, prefer_timestamp_ntz=True)


def _view(rows: str) -> str:
    return "rows_" + rows.replace(" ", "_")


def _by_volley(case: SparkCase) -> Values:
    table = ROWS[case.rows]
    compiled = compile_expression(case.expression.node, table.schema)

    def computed(rows: pa.Table) -> list[Any]:
        (batch,) = rows.combine_chunks().to_batches()
        values = compiled.evaluate(batch)
        return [values.as_py()] * batch.num_rows if isinstance(values, pa.Scalar) else values.to_pylist()

    def one(number: int) -> Any:
        try:
            return computed(table.slice(number, 1))[0]
        except (pa.ArrowInvalid, VolleyError):
            return RAISED

    try:
        return _type(compiled.type), computed(table)
    except (pa.ArrowInvalid, VolleyError):
        return _type(compiled.type), list(map(one, range(table.num_rows)))


def _by_spark(
    session: SparkSession, rows: str, cases: Sequence[SparkCase], raised: Mapping[str, Sequence[int]]
) -> dict[str, Values]:
    """Return the type and the values of each call, of all in one query."""
    columns = [f"{_guarded(case, raised.get(case.key, ()))} as c{number}" for number, case in enumerate(cases)]
    table = session.sql(f"select k_, {', '.join(columns)} from {_view(rows)}").toArrow()
    assert table["k_"].to_pylist() == list(range(ROWS[rows].num_rows))
    results = {}
    for number, case in enumerate(cases):
        column = table[f"c{number}"]
        values = [RAISED if row in raised.get(case.key, ()) else value for row, value in enumerate(column.to_pylist())]
        results[case.key] = _type(column.type), values
    return results


def _guarded(case: SparkCase, raised: Sequence[int]) -> str:
    """Return a call that is null for the rows that raise."""
    return f"case when k_ not in ({', '.join(map(str, raised))}) then {case.spark} end" if raised else case.spark


def _type(data_type: pa.DataType) -> str:
    """Return a type's name, without those of the fields of lists, and whether they may be null."""
    if pa.types.is_list(data_type):
        return f"list of {_type(data_type.value_type)}"
    if pa.types.is_struct(data_type):
        return f"struct of {', '.join(_type(field.type) for field in data_type)}"
    return (_NAMES | _MOMENTS).get(str(data_type), str(data_type).replace("decimal128", "decimal"))


def _difference(ours: Values, sparks: Values) -> str:
    """Return in which types and rows the results differ; "" = in none."""
    kinds = [] if ours[0] == sparks[0] else [f"{ours[0]}, not {sparks[0]}"]
    pairs = enumerate(zip(ours[1], sparks[1], strict=True))
    rows = [f"{number}: {_text(pair[0])}, not {_text(pair[1])}" for number, pair in pairs if not _equal(*pair)]
    return "; ".join([*kinds, *rows])


def _text(value: Any) -> str:
    """Return a value as the table of differences has it."""
    if value is None or value is RAISED:
        return value or "null"
    return ascii(value) if isinstance(value, str) else str(value)


def _equal(value: Any, other: Any) -> bool:
    """Return True for equal values, whatever their types; -0.0 is not 0.0, and of floats the next ones are equal."""
    if isinstance(value, list) and isinstance(other, list):
        return len(value) == len(other) and all(map(_equal, value, other))
    value, other = _plain(value), _plain(other)
    if isinstance(value, float) and isinstance(other, float):
        # Libraries of mathematics differ in the last bit.
        is_near = math.isclose(value, other, rel_tol=1e-15) and math.copysign(1, value) == math.copysign(1, other)
        return is_near or (math.isnan(value) and math.isnan(other))
    return bool(value == other) and isinstance(value, bool) is isinstance(other, bool)


def _plain(value: Any) -> Any:
    """Return a number as a float if that is as exact, a date as its first moment, an instant as a time in UTC."""
    if isinstance(value, Decimal) or (type(value) is int and abs(value) < 2**53):
        return float(value) if value == float(value) or isinstance(value, Decimal) else value
    if isinstance(value, datetime):
        return value.replace(tzinfo=None)
    return datetime.combine(value, time()) if isinstance(value, date) else value


def _raised(session: SparkSession, cases: Sequence[SparkCase], first: int, last: int) -> Iterator[tuple[str, int]]:
    """Yield the calls that raise in Spark, with the rows: looks into each half of the calls, then of the rows."""
    try:
        run_in_spark(session, cases, first, last)
    except PySparkException:
        half, middle = len(cases) // 2, (first + last) // 2
        if half:
            yield from _raised(session, cases[:half], first, last)
            yield from _raised(session, cases[half:], first, last)
        elif first == last:
            yield cases[0].key, first
        else:
            yield from _raised(session, cases, first, middle)
            yield from _raised(session, cases, middle + 1, last)


def _write(session: SparkSession) -> None:
    """Write the rows that raise, and the differences below their sentences; what is new comes last."""
    raised = {case.key: raises()[case.key] for case in CASES if case.key in raises()}
    new: dict[str, str] = {}
    for rows in ROWS:
        try:
            new |= found(session, rows, raised)
        except PySparkException:
            raised |= _raised_anew(session, rows)
            new |= found(session, rows, raised)
    RAISES.write_text("".join(f"{key} → {' '.join(map(str, numbers))}\n" for key, numbers in raised.items()))
    blocks = [(block.text, {key: new.pop(key) for key in block.calls if key in new}) for block in differences()]
    texts = [
        "\n".join([text, *(f"    {key} → {difference}" for key, difference in calls.items())])
        for text, calls in [*blocks, ("?", new)]
        if calls
    ]
    DIFFERENCES.write_text("\n\n".join(texts) + "\n")


def _raised_anew(session: SparkSession, rows: str) -> dict[str, tuple[int, ...]]:
    numbers: dict[str, tuple[int, ...]] = {}
    cases = [case for case in CASES if case.rows == rows]
    for key, number in _raised(session, cases, 0, ROWS[rows].num_rows - 1):
        numbers[key] = (*numbers.get(key, ()), number)
    return numbers


if __name__ == "__main__":
    from volley.spark.session import open_context, session_of

    _write(open_views(session_of(open_context("local[2]"))))
