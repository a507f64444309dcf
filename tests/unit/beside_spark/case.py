"""A call of Volley's and the same in Spark."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from volley import Expr

__all__ = ["Call", "SparkCase", "cases"]

Call = tuple[str, Expr, str]
"""A name, the call, and the same as SQL of Spark."""


class SparkCase(NamedTuple):
    """A call.

    Args:
        rows: The name of its rows.
        name: The function or operator, as the page has it; those of `sql` begin with "sql ".
        expression: The call.
        spark: The same as SQL of Spark.
    """

    rows: str
    name: str
    expression: Expr
    spark: str

    @property
    def key(self) -> str:
        """The call's name in the table of differences."""
        return f"{self.name} · {self.rows} · {self.spark}"


def cases(rows: str, calls: Iterable[Call]) -> list[SparkCase]:
    """Return calls on the same rows."""
    return [SparkCase(rows, *call) for call in calls]
