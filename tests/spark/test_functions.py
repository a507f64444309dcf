"""Functions of expressions in a job."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from volley import Environment, MemorySink, MemorySource, col


def test_a_job_computes_and_filters_by_functions(job_session: SparkSession, tmp_path: Path) -> None:
    environment = Environment(spark=job_session, checkpoint_dir=tmp_path)
    sink = MemorySink("functions")
    stream = environment.from_source(MemorySource([{"s": " A "}, {"s": "b"}, {"s": None}]))
    stripped = stream.with_column("t", col("s").str.strip().str.lower()).filter_expr(col("t").str.matches("^[ab]$"))
    stripped.to_sink(sink).execute("functions")
    assert sorted(row["t"] for row in sink.rows()) == ["a", "b"]
