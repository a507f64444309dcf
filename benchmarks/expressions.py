"""Filters and computed columns by Arrow and by Spark: Parquet files are read, nothing is written."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq

from benchmarks.benchmark import benchmark
from benchmarks.events import FILES, batches, events_folder
from benchmarks.run import Run
from volley import FileSource, col
from volley.arrow.nodes import lower
from volley.plan.nodes import Filter, Node, Read, WithColumns
from volley.spark.nodes import apply
from volley.spark.session import open_session, session_for_job

_READ = Read(FileSource("events", format="parquet"))
_NODES: dict[str, list[Node]] = {
    "nothing but reading": [],
    "a comparison": [Filter(_READ, (col("amount") > 50).node)],
    "strings": [Filter(_READ, (col("session").starts_with("s0") | col("kind").is_in(["cart", "order"])).node)],
    "arithmetic": [WithColumns(_READ, (("total", (col("amount") * 3 + col("user")).node),))],
    "functions": [WithColumns(_READ, (("name", col("session").str.strip("s").str.upper().str.slice(0, 4).node),))],
    "a cast": [WithColumns(_READ, (("text", col("user").cast("string").node),))],
}


@benchmark(
    rows=4_000_000,
    repeat=5,
    peers={"arrow": "Arrow-native, one thread", "spark": "general, all cores"},
    case="expression",
    figures=("rows_per_second", "rows_per_cpu_second"),
)
def expressions(run: Run) -> None:
    """Filters and computed columns, Arrow-native beside the general path: rows/s and rows per CPU-second."""
    folder = events_folder(run.rows, run.rows // FILES)
    compute = _by_arrow(folder) if run.peer == "arrow" else _by_spark(folder, run.folder)
    # The first pass warms up: the JVM compiles what it does often.
    for nodes in _NODES.values():
        compute(nodes)
    for expression, nodes in _NODES.items():
        run.measure(partial(compute, nodes), case=expression)


def _by_arrow(folder: Path) -> Callable[[list[Node]], None]:
    def compute(nodes: list[Node]) -> None:
        stage = lower(nodes, pq.read_schema(folder / "0000.parquet"))
        for batch in batches(folder):
            stage(batch)

    return compute


def _by_spark(folder: Path, checkpoint: Path) -> Callable[[list[Node]], None]:
    spark, schema = session_for_job(open_session(None), str(checkpoint)), pq.read_schema(folder / "0000.parquet")

    def compute(nodes: list[Node]) -> None:
        frame = spark.read.parquet(str(folder))
        for node in nodes:
            frame = apply(frame, node, schema)
        frame.write.format("noop").mode("overwrite").save()

    return compute
