"""Functions of expressions on Spark: the values and types that Arrow computes."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.unit.functions import CASES, ROWS
from tests.unit.test_functions import values_of
from volley import Environment, Expr, ExpressionError, MemorySink, MemorySource, col, lit, when
from volley.arrow.batches import conform
from volley.arrow.expressions import output_type
from volley.spark.expressions import is_native, to_column, to_spark_schema


def test_both_paths_give_the_same_values(spark: SparkSession) -> None:
    frame = spark.createDataFrame(ROWS, to_spark_schema(ROWS.schema)).coalesce(1)
    columns = [to_column(case.expression.node, ROWS.schema).alias(f"c{number}") for number, case in enumerate(CASES)]
    schema = pa.schema(
        [(f"c{number}", output_type(case.expression.node, ROWS.schema)) for number, case in enumerate(CASES)]
    )
    (found,) = frame.select(*columns).toArrow().combine_chunks().to_batches()
    for number, (case, values) in enumerate(zip(CASES, conform(found, schema).columns, strict=True)):
        assert list(map(repr, values.to_pylist())) == list(map(repr, values_of(case.expression))), (number, case)


def test_a_value_is_computed_only_where_it_is_needed(spark: SparkSession) -> None:
    """Also if Arrow computes a part of the expression: the division would fail for the first row."""
    rows = pa.table({"n": [0, 2, None], "x": [1.0, 5.0, 7.0]})
    expression = when(col("n") != 0).then((col("x") / col("n")).floor()).otherwise(-1.0)
    assert not is_native(expression.node, rows.schema)
    frame = spark.createDataFrame(rows, to_spark_schema(rows.schema))
    assert frame.select(to_column(expression.node, rows.schema).alias("v")).toArrow()["v"].to_pylist() == [
        -1.0,
        2.0,
        -1.0,
    ]


@pytest.mark.parametrize("arrow_native", [True, False])
def test_a_job_computes_and_filters_by_functions(arrow_native: bool, job_session: SparkSession, tmp_path: Path) -> None:
    environment = Environment(spark=job_session, checkpoint_dir=tmp_path, arrow_native=arrow_native)
    sink = MemorySink(f"functions-{arrow_native}")
    stream = environment.from_source(MemorySource([{"s": " A "}, {"s": "b"}, {"s": None}]))
    stripped = stream.with_column("t", col("s").str.strip().str.lower()).filter_expr(col("t").str.matches("^[ab]$"))
    stripped.to_sink(sink).execute("functions")
    assert sorted(row["t"] for row in sink.rows()) == ["a", "b"]


def test_an_error_names_the_expression(spark: SparkSession) -> None:
    rows = pa.table({"n": [0]})
    broken: Expr = (lit(1) / col("n")).floor()
    frame = spark.createDataFrame(rows, to_spark_schema(rows.schema))
    with pytest.raises(Exception, match="division by zero"):
        frame.select(to_column(broken.node, rows.schema)).toArrow()
    with pytest.raises(ExpressionError, match="division by zero"):
        values_of(broken, rows)
