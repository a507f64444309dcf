"""Filters and computed columns by Arrow and by Spark: Parquet files are read, nothing is written."""

from __future__ import annotations

import argparse
import statistics
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from benchmarks.events import events_folder
from benchmarks.measure import Result, measured
from benchmarks.report import Report
from benchmarks.write import batches
from volley import FileSource, col
from volley.arrow.nodes import lower
from volley.plan.nodes import Filter, Node, Read, WithColumn
from volley.spark.nodes import apply
from volley.spark.session import open_session, session_for_job

SUMMARY = "filters and computed columns, Arrow-native beside the general path: rows/s and rows per CPU-second"

_FILES = 16
_READ = Read(FileSource("events", format="parquet"))
_NODES: dict[str, list[Node]] = {
    "nothing but reading": [],
    "a comparison": [Filter(_READ, (col("amount") > 50).node)],
    "strings": [Filter(_READ, (col("session").starts_with("s0") | col("kind").is_in(["cart", "order"])).node)],
    "arithmetic": [WithColumn(_READ, "total", (col("amount") * 3 + col("user")).node)],
    "a cast": [WithColumn(_READ, "text", col("user").cast("string").node)],
}


@dataclass(frozen=True)
class Cost:
    """The medians of some runs, reading included.

    Args:
        expression: What was computed.
        path: Arrow-native, one thread; or general, all cores.
        rows_per_second: Read.
        rows_per_cpu_second: Read.
    """

    expression: str
    path: str
    rows_per_second: float
    rows_per_cpu_second: float


def run(arguments: list[str]) -> None:
    """Each expression on both paths in turn."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks expressions", description=SUMMARY)
    parser.add_argument("--rows", type=int, default=4_000_000, help="a multiple of 16")
    parser.add_argument("--repeat", type=int, default=5)
    asked = parser.parse_args(arguments)
    folder = events_folder(asked.rows, asked.rows // _FILES)
    with tempfile.TemporaryDirectory(prefix="volley-bench-") as checkpoint:
        spark = session_for_job(open_session(None), checkpoint)
        _by_spark(spark, folder, [], asked.rows)
        found = [
            (expression, result)
            for _ in range(asked.repeat)
            for expression, nodes in _NODES.items()
            for result in (_by_arrow(folder, nodes, asked.rows), _by_spark(spark, folder, nodes, asked.rows))
        ]
    report = Report("expressions", "expression", "path", "rows/s", "rows per CPU-s")
    for expression, path in dict.fromkeys((each, result.name) for each, result in found):
        cost = _median(
            expression, path, [result for each, result in found if (each, result.name) == (expression, path)]
        )
        report.add(cost, expression, path, f"{cost.rows_per_second:,.0f}", f"{cost.rows_per_cpu_second:,.0f}")
    report.print()


def _by_arrow(folder: Path, nodes: list[Node], rows: int) -> Result:
    stage = lower(nodes, pq.read_schema(folder / "0000.parquet"))

    def work() -> dict[str, Any]:
        return {"rows": sum(stage(batch).num_rows for batch in batches(folder))}

    return measured("Arrow-native, one thread", rows, work)


def _by_spark(spark: SparkSession, folder: Path, nodes: list[Node], rows: int) -> Result:
    schema = pq.read_schema(folder / "0000.parquet")

    def work() -> dict[str, Any]:
        frame = spark.read.parquet(str(folder))
        for node in nodes:
            frame = apply(frame, node, schema)
        frame.write.format("noop").mode("overwrite").save()
        return {}

    return measured("general, all cores", rows, work)


def _median(expression: str, path: str, results: list[Result]) -> Cost:
    speed = statistics.median(result.rows_per_second for result in results)
    return Cost(expression, path, speed, statistics.median(result.rows_per_cpu_second for result in results))
