"""Adapts a Reader to Spark's Python streaming DataSource, for the general path, where Spark runs the operators."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from volley.arrow.batches import conform
from volley.notes import taken_notes
from volley.source import Offset, Reader, SplitReader
from volley.spark.offsets import Offsets
from volley.task.errors import carried
from volley.task.notes_folder import NotesFolder

__all__ = ["data_source"]


class _StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives in Spark's planner process as long as the query, and in each task, for `read`."""

    def __init__(self, reader: Reader, rows: pa.Schema, target: Offset | None, notes: NotesFolder) -> None:
        self._offsets = Offsets(reader, target)
        self._split_reader: SplitReader = reader.split_reader()
        self._rows = rows
        self._notes = notes

    @carried()
    def initialOffset(self) -> Offset:
        return self._offsets.reader.initial_offset()

    def prepareForTriggerAvailableNow(self) -> None:
        self._offsets.is_bounded = True

    @carried()
    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        with self._leaving_notes():
            return self._offsets.latest(start)

    @carried()
    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        with self._leaving_notes():
            return [InputPartition(split) for split in self._offsets.reader.splits(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Spark has no fixed-size binary type and rejects batches that use one.
        with carried(), self._leaving_notes():
            for batch in self._split_reader.read(partition.value):
                yield conform(batch, self._rows)

    @contextmanager
    def _leaving_notes(self) -> Iterator[None]:
        try:
            yield
        finally:
            self._notes.leave(taken_notes())

    def __getstate__(self) -> dict[str, Any]:
        # What Spark pickles to the executors.
        return {"_split_reader": self._split_reader, "_rows": self._rows, "_notes": self._notes}


class _DataSource(DataSource):
    source_reader: Reader
    spark_schema: StructType
    target: Offset | None
    notes: NotesFolder

    def schema(self) -> StructType:
        return self.spark_schema

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        rows = to_arrow_schema(self.spark_schema, timezone="UTC")
        return _StreamReader(self.source_reader, rows, self.target, self.notes)


def data_source(
    name: str, reader: Reader, spark_schema: StructType, target: Offset | None, notes: NotesFolder
) -> type[DataSource]:
    """Return a DataSource class for one reader, to register with a session.

    The reader is an attribute of the class, not an option: Spark's options are text, and plans show them.

    Args:
        name: Spark's unique name for it.
        reader: The reader.
        spark_schema: The schema of the rows.
        target: The last offset that a bounded run reads; None = the reader says at the run's start.
        notes: Takes what tasks note for the driver.
    """
    attributes: dict[str, Any] = {
        "source_reader": reader,
        "target": target,
        "notes": notes,
        "spark_schema": spark_schema,
        "name": classmethod(lambda cls: name),
    }
    return type("VolleySource", (_DataSource,), attributes)
