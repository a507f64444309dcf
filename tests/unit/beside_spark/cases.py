"""Every call that is compared with Spark's."""

from __future__ import annotations

from tests.unit.beside_spark.casts import CASTS
from tests.unit.beside_spark.numbers import NUMBERS
from tests.unit.beside_spark.sql_texts import SQL_TEXTS
from tests.unit.beside_spark.texts import TEXTS
from tests.unit.beside_spark.times import TIMES
from tests.unit.beside_spark.values import VALUES

__all__ = ["CASES"]

CASES = (*VALUES, *NUMBERS, *TEXTS, *TIMES, *CASTS, *SQL_TEXTS)
"""The calls of methods and functions, and the SQL texts that mean the same in both."""
