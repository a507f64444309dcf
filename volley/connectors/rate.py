"""RateSource: generates rows at a steady rate with Spark's ``rate`` format, for trying things out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from volley.checks import count, keep
from volley.contracts.source import SparkSource
from volley.html_table import settings_html

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["RateSource"]


@dataclass(frozen=True)
class RateSource(SparkSource):
    """Generates rows with a ``timestamp`` and a ``value`` that counts up from 0; unbounded.

    Args:
        rows_per_second: The number of rows per second.

    Raises:
        ConfigError: If `rows_per_second` is not positive.

    Example:
        >>> RateSource(rows_per_second=10)
        RateSource(rows_per_second=10)
    """

    rows_per_second: int = 1

    def __post_init__(self) -> None:
        keep(self, rows_per_second=count)

    @property
    def bounded(self) -> bool:
        return False

    @property
    def identity(self) -> str:
        return f"rate:{self.rows_per_second}"

    def load(self, spark: SparkSession) -> DataFrame:
        return spark.readStream.format("rate").option("rowsPerSecond", self.rows_per_second).load()

    _repr_html_ = settings_html
