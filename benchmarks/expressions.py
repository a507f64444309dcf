"""Filters, computed columns and every function of expressions, on rows in memory or in files; nothing is written."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.benchmark import Limit, Run, benchmark
from benchmarks.events import FILES, batches, events_folder
from benchmarks.rows import Bound, Row
from tests.unit.functions import CASES, ROWS
from volley import FileSource, col, murmur3
from volley.columns.compiled import CompiledExpression
from volley.columns.expressions import compile_expression
from volley.columns.nodes import lower
from volley.plan.nodes import Filter, Node, Read, WithColumns

_READ = Read(FileSource("events", format="parquet"))
_NODES: dict[str, list[Node]] = {
    "nothing but reading": [],
    "a comparison": [Filter(_READ, (col("amount") > 50).node)],
    "strings": [Filter(_READ, (col("session").starts_with("s0") | col("kind").is_in(["cart", "order"])).node)],
    "arithmetic": [WithColumns(_READ, (("total", (col("amount") * 3 + col("user")).node),))],
    "functions": [WithColumns(_READ, (("name", col("session").str.strip("s").str.upper().str.slice(0, 4).node),))],
    "a cast": [WithColumns(_READ, (("text", col("user").cast("string").node),))],
}
_BATCH_ROWS = 60_000
_BY_VALUE = (
    *(col("text").md5(), col("text").sha256(), col("text").uuid5("url"), col("json").str.json_path("$.tags[1]")),
    *(col("large").cast("string"), col("tiny").cast("decimal(38,38)"), col("binary").try_cast("string")),
    murmur3(col("long")),
)
"""Functions for which Arrow has no kernel, or none for some values: each different value of a batch once."""


@benchmark(
    rows=4_000_000,
    repeat=5,
    peers={"arrow": "one thread"},
    case="expression",
    figures=("rows_per_second", "rows_per_cpu_second"),
)
def expressions(run: Run) -> None:
    """Filters and computed columns: rows/s and rows per CPU-second."""
    folder = events_folder(run.rows, run.rows // FILES)
    compute = partial(_by_arrow, folder)
    # The first pass warms up.
    for nodes in _NODES.values():
        compute(nodes)
    for expression, nodes in _NODES.items():
        run.measure(partial(compute, nodes), case=expression)


def _by_arrow(folder: Path, nodes: list[Node]) -> None:
    stage = lower(nodes, pq.read_schema(folder / "0000.parquet"))
    for batch in batches(folder):
        stage(batch)


class _OfTheSlowest(Limit):
    def bounds(self, row: Row) -> list[Bound]:
        slowest = min(row.others, key=lambda other: float(other.median(self.figure)))
        return super().bounds(row) if row is slowest else []


@benchmark(
    rows=600_000,
    case="function",
    figures=("rows_per_cpu_second",),
    bounds=[_OfTheSlowest("rows_per_cpu_second", "rows per CPU-second", 300_000)],
)
def functions(run: Run) -> None:
    """Each function of expressions on batches of 60,000 rows with nulls and edge values: rows per CPU-second."""
    batch = pa.concat_tables([ROWS] * (_BATCH_ROWS // ROWS.num_rows)).combine_chunks().to_batches()[0]
    different = _different()
    cases = [(case.expression, batch, repr(case.expression)) for case in CASES]
    cases += [(expression, different, f"{expression!r}, all values different") for expression in _BY_VALUE]
    for expression, rows, case in cases:
        compiled = compile_expression(expression.node, rows.schema)
        compiled.evaluate(rows)
        run.measure(partial(_evaluate, compiled, rows, run.rows // rows.num_rows), case=case)


def _evaluate(compiled: CompiledExpression, batch: pa.RecordBatch, times: int) -> None:
    for _ in range(times):
        compiled.evaluate(batch)


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
