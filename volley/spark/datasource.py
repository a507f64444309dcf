"""Adapts a Reader to Spark's Python streaming DataSource; Spark turns its offsets into epochs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import BinaryType, StructField, StructType

from volley.arrow.batches import conform
from volley.source import Offset, Reader, SplitReader
from volley.task.errors import carried

__all__ = ["data_source"]


class _StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives in Spark's planner process as long as the query, and in each task, for `read`."""

    def __init__(self, reader: Reader, rows: pa.Schema | None, target: Offset | None) -> None:
        self._reader = reader
        self._split_reader: SplitReader = reader.split_reader()
        self._rows = rows
        self._is_bounded = False
        self._target = target

    @carried()
    def initialOffset(self) -> Offset:
        return self._reader.initial_offset()

    def getDefaultReadLimit(self) -> ReadLimit:
        # Spark supports only its own limit classes; the unit, rows or files, is up to the source.
        limit = self._reader.limit
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:
        self._is_bounded = True

    @carried()
    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        if self._is_bounded and self._target is None:
            self._target = self._reader.latest_offset(start, None, None)
        return self._reader.latest_offset(start, most, self._target)

    @carried()
    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        # On the Arrow-native path the driver plans the splits; Spark gets no partitions.
        return [] if self._rows is None else [InputPartition(split) for split in self._reader.splits(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert self._rows is not None
        # Spark has no fixed-size binary type and rejects batches that use one.
        with carried():
            for batch in self._split_reader.read(partition.value):
                yield conform(batch, self._rows)

    def __getstate__(self) -> dict[str, Any]:
        # What Spark pickles to the executors.
        return {"_split_reader": self._split_reader, "_rows": self._rows}


class _DataSource(DataSource):
    source_reader: Reader
    rows: pa.Schema | None
    spark_schema: StructType
    target: Offset | None

    def schema(self) -> StructType:
        return self.spark_schema

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return _StreamReader(self.source_reader, self.rows, self.target)


def data_source(
    name: str, reader: Reader, spark_schema: StructType | None, target: Offset | None = None
) -> type[DataSource]:
    """Return a DataSource class for one reader, to register with a session.

    The reader is an attribute of the class, not an option: Spark's options are text, and plans show them.

    Args:
        name: Spark's unique name for it.
        reader: The reader.
        spark_schema: The schema of the rows; None = no rows, as the tasks read the splits (Arrow-native path).
        target: The last offset that a bounded run reads; None = the reader says at the run's start.
    """
    attributes: dict[str, Any] = {
        "source_reader": reader,
        "rows": None if spark_schema is None else to_arrow_schema(spark_schema, timezone="UTC"),
        "target": target,
        "spark_schema": spark_schema or StructType([StructField("none", BinaryType())]),
        "name": classmethod(lambda cls: name),
    }
    return type("VolleySource", (_DataSource,), attributes)
