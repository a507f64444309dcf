"""Functions of expressions beside Spark's: equal, or different as the page of functions says."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.spark.comparison import found, open_views, run_in_spark
from tests.unit.beside_spark.cases import CASES
from tests.unit.beside_spark.differences import differences, raises
from tests.unit.beside_spark.rows import ROWS


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    return open_views(spark)


@pytest.mark.parametrize("rows", ROWS)
def test_functions_differ_from_sparks_only_as_the_page_says(rows: str, session: SparkSession) -> None:
    keys = {case.key for case in CASES if case.rows == rows}
    accepted = {key: text for block in differences() for key, text in block.calls.items() if key in keys}
    assert found(session, rows, raises()) == accepted, (
        "python -m tests.spark.comparison, then a sentence for what is new"
    )


def test_what_raises_in_spark_is_known(session: SparkSession) -> None:
    """Of each call, the first such row is run: each run is a query of its own."""
    by_key = {case.key: case for case in CASES}
    for key, numbers in raises().items():
        with pytest.raises(PySparkException):
            run_in_spark(session, [by_key[key]], numbers[0], numbers[0])
