"""Every function of expressions, as tasks compute it: none may cost as much as Python row by row."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pyarrow as pa

from benchmarks.benchmark import benchmark
from benchmarks.rows import Bound, Row
from benchmarks.run import Run
from tests.unit.functions import CASES, ROWS
from volley import Expr, col, murmur3
from volley.arrow.compiled import CompiledExpression
from volley.arrow.expressions import compile_expression

_BATCH_ROWS = 60_000
_LEAST = 300_000
_BY_VALUE = (
    *(col("text").md5(), col("text").sha256(), col("text").uuid5("url"), col("json").str.json_path("$.tags[1]")),
    *(col("large").cast("string"), col("tiny").cast("decimal(38,38)"), col("binary").try_cast("string")),
    murmur3(col("long")),
)
"""Functions for which Arrow has no kernel, or none for some values: each different value of a batch once."""


def _bounds(row: Row) -> Iterator[Bound]:
    if row is min(row.others, key=lambda other: float(other.median("rows_per_cpu_second"))):
        yield from row.at_least("rows_per_cpu_second", _LEAST, "rows per CPU-second")


@benchmark(
    rows=600_000,
    peers={"volley": "Volley"},
    case="function",
    figures=("rows_per_cpu_second",),
    plots=("rows_per_cpu_second",),
    bounds=_bounds,
)
def functions(run: Run) -> None:
    """Each function of expressions on batches of 60,000 rows with nulls and edge values: rows per CPU-second."""
    batch = pa.concat_tables([ROWS] * (_BATCH_ROWS // ROWS.num_rows)).combine_chunks().to_batches()[0]
    for case in CASES:
        _measure(run, case.expression, batch, repr(case.expression))
    different = _different()
    for expression in _BY_VALUE:
        _measure(run, expression, different, f"{expression!r}, all values different")


def _measure(run: Run, expression: Expr, batch: pa.RecordBatch, case: str) -> None:
    compiled = compile_expression(expression.node, batch.schema)
    compiled.evaluate(batch)
    run.measure(partial(_evaluate, compiled, batch, run.rows // batch.num_rows), case=case)


def _different() -> pa.RecordBatch:
    """Return rows without two equal values."""
    numbers = range(_BATCH_ROWS)
    return pa.record_batch(
        {
            "text": pa.array([f"customer {number}" for number in numbers]),
            "json": pa.array([f'{{"id": {number}, "tags": ["a", 2.50]}}' for number in numbers]),
            "binary": pa.array([b"\xff%d" % number for number in numbers]),
            "large": pa.array([1e10 + number * 1.7 for number in numbers]),
            "tiny": pa.array([1e-30 * (number + 1) for number in numbers]),
            "long": pa.array(numbers).cast(pa.decimal128(30, 3)),
        }
    )


def _evaluate(compiled: CompiledExpression, batch: pa.RecordBatch, times: int) -> None:
    for _ in range(times):
        compiled.evaluate(batch)
