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
    """Each such row is a query of its own, so one is run of each function and kind of rows."""
    calls = {(case.name, case.rows): case for case in CASES if case.key in raises()}
    for case in calls.values():
        first, *_ = raises()[case.key]
        with pytest.raises(PySparkException):
            run_in_spark(session, [case], first, first)
