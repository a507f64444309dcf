"""A source that Spark reads: the Parquet files of a folder, some an epoch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from volley import SparkSource

__all__ = ["SparkFiles"]


@dataclass(frozen=True)
class SparkFiles(SparkSource):
    """Files in the order in which they were written.

    Args:
        folder: Their folder.
        schema: The rows' columns, as Spark writes them.
        files_per_epoch: The most new files of an epoch.
    """

    folder: Path
    schema: str
    files_per_epoch: int = 1

    bounded = True

    @property
    def identity(self) -> str:
        return f"spark-files:{self.folder}"

    def load(self, spark: SparkSession) -> DataFrame:
        reader = spark.readStream.schema(self.schema).option("maxFilesPerTrigger", self.files_per_epoch)
        return reader.parquet(str(self.folder))
