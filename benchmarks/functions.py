"""Every function of expressions, as tasks compute it: none may cost as much as Python row by row."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pyarrow as pa

from benchmarks.benchmark import benchmark
from benchmarks.rows import Bound, Row
from benchmarks.run import Run
from tests.unit.functions import CASES, ROWS
from volley.arrow.compiled import CompiledExpression
from volley.arrow.expressions import compile_expression

_BATCH_ROWS = 60_000
_LEAST = 300_000


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
        compiled = compile_expression(case.expression.node, ROWS.schema)
        compiled.evaluate(batch)
        run.measure(partial(_evaluate, compiled, batch, run.rows // batch.num_rows), case=repr(case.expression))


def _evaluate(compiled: CompiledExpression, batch: pa.RecordBatch, times: int) -> None:
    for _ in range(times):
        compiled.evaluate(batch)
