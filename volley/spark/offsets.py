"""A streaming frame that has a reader's epochs but no rows: Spark asks this process for the offsets.

Spark only plans and logs the epochs; tasks read the splits. For a Python DataSource Spark starts four more Python
processes, one after the other, before the first epoch: more than a second of a start. Instead, Python implements
Spark's Java interfaces for sources, by the callbacks that `foreachBatch` uses too:
https://spark.apache.org/docs/latest/api/java/org/apache/spark/sql/connector/read/streaming/MicroBatchStream.html
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from pyspark.serializers import CloudPickleSerializer
from pyspark.sql import DataFrame

from volley.contracts.rows import NotesBox, taken_notes
from volley.contracts.source import Offset, Reader
from volley.spark.gateway import serve_callbacks
from volley.task.worker import carried

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway
    from pyspark.sql import SparkSession

__all__ = ["Offsets", "offset_stream"]

_PICKLES = CloudPickleSerializer()
_READ = "org.apache.spark.sql.connector.read"


def offset_stream(spark: SparkSession, name: str, reader: Reader, target: Offset | None, notes: NotesBox) -> DataFrame:
    """Return the streaming frame of a reader's epochs.

    Args:
        name: The source's name in Spark's plans and errors.
        reader: The reader; each run of the query asks its own copy.
        target: The last offset that a bounded run reads; None = the reader says at the run's start.
        notes: Takes what the reader notes while epochs are planned.
    """
    gateway: Any = spark.sparkContext._gateway
    serve_callbacks(gateway)
    sql, none = gateway.jvm.org.apache.spark.sql, gateway.jvm.scala.Option.empty()
    relation, options = sql.catalyst.streaming.StreamingRelationV2, sql.util.CaseInsensitiveStringMap.empty()
    columns = sql.catalyst.types.DataTypeUtils.toAttributes(sql.types.StructType())
    table = _Table(_Java(gateway), name, reader, target, notes)
    unnamed = getattr(relation, "apply$default$9")()
    plan = relation(none, name, table, options, columns, none, none, none, unnamed)
    return DataFrame(sql.classic.Dataset.ofRows(spark._jsparkSession, plan), spark)


class _Java:
    """The Java values and classes that callbacks return; py4j asks the JVM for each part of a name."""

    def __init__(self, gateway: JavaGateway) -> None:
        jvm: Any = gateway.jvm
        sql = jvm.org.apache.spark.sql
        read, metric = sql.connector.read, sql.connector.metric
        self.offset = sql.execution.datasources.v2.python.PythonStreamingSourceOffset
        self.capabilities = jvm.java.util.Set.of(sql.connector.catalog.TableCapability.MICRO_BATCH_READ)
        self.no_limit = read.streaming.ReadLimit.allAvailable()
        self.no_columns = getattr(read, "Scan$ColumnarSupportMode").UNSUPPORTED
        self.no_partitions = gateway.new_array(read.InputPartition, 0)
        self.no_metrics = gateway.new_array(metric.CustomMetric, 0)
        self.no_task_metrics = gateway.new_array(metric.CustomTaskMetric, 0)


class _Proxy:
    """What Java asks of any object: here two are equal if they have the same name."""

    def __init__(self, java: _Java, name: str) -> None:
        self._java = java
        self._name = name

    def toString(self) -> str:
        return self._name

    def hashCode(self) -> int:
        return sum(self._name.encode())

    def equals(self, other: object) -> bool:
        return str(other) == self._name


class _Table(_Proxy):
    """The source as a table, and the scan of it."""

    class Java:
        implements = ("org.apache.spark.sql.connector.catalog.SupportsRead", f"{_READ}.ScanBuilder", f"{_READ}.Scan")

    def __init__(self, java: _Java, name: str, reader: Reader, target: Offset | None, notes: NotesBox) -> None:
        super().__init__(java, name)
        self._notes = notes
        self._reader = _PICKLES.dumps(reader)
        self._target = target

    def name(self) -> str:
        return self._name

    def description(self) -> str:
        return self._name

    def capabilities(self) -> Any:
        return self._java.capabilities

    def newScanBuilder(self, options: object) -> _Table:
        return self

    def build(self) -> _Table:
        return self

    def toMicroBatchStream(self, checkpoint: str) -> _Stream:
        return _Stream(self._java, self._name, Offsets(_PICKLES.loads(self._reader), self._target), self._notes)

    def columnarSupportMode(self) -> Any:
        return self._java.no_columns

    def supportedCustomMetrics(self) -> Any:
        return self._java.no_metrics

    def reportDriverMetrics(self) -> Any:
        return self._java.no_task_metrics


class _Stream(_Proxy):
    """The offsets of one run of the query; the offset log has them as the reader's JSON."""

    class Java:
        implements = (f"{_READ}.streaming.MicroBatchStream", f"{_READ}.streaming.SupportsTriggerAvailableNow")

    def __init__(self, java: _Java, name: str, offsets: Offsets, notes: NotesBox) -> None:
        super().__init__(java, name)
        self._notes = notes
        self._offsets = offsets

    @carried()
    def initialOffset(self) -> Any:
        return self._to_java(self._offsets.reader.initial_offset())

    def deserializeOffset(self, text: str) -> Any:
        return self._java.offset(text)

    def prepareForTriggerAvailableNow(self) -> None:
        self._offsets.is_bounded = True

    def getDefaultReadLimit(self) -> Any:
        return self._java.no_limit

    @carried()
    def latestOffset(self, start: Any, limit: object) -> Any:
        try:
            return self._to_java(self._offsets.latest(json.loads(start.json())))
        finally:
            self._notes.leave(taken_notes())

    def reportLatestOffset(self) -> None:
        return None

    def planInputPartitions(self, start: object, end: object) -> Any:
        return self._java.no_partitions

    def createReaderFactory(self) -> None:
        return None

    def commit(self, end: object) -> None:
        """Do nothing: the driver's reader gets `committed` once all sinks have the epoch."""

    def stop(self) -> None:
        """Do nothing: what the driver's reader has started, the job stops."""

    def _to_java(self, offset: Offset) -> Any:
        return self._java.offset(json.dumps(offset))


@dataclass
class Offsets:
    """The offsets of one run.

    Args:
        reader: The run's own copy of the reader.
        target: The last offset that a bounded run reads; None = the reader says at the run's start.
        is_bounded: True if the run ends with the rows that are there at its start.
    """

    reader: Reader
    target: Offset | None
    is_bounded: bool = False

    @classmethod
    def of_copy(cls, reader: Reader, target: Offset | None, is_bounded: bool = False) -> Self:
        """Return the offsets of a run with its own copy of a reader."""
        return cls(_PICKLES.loads(_PICKLES.dumps(reader)), target, is_bounded)

    def latest(self, start: Offset) -> Offset:
        """Return the end of the epoch that begins at `start`.

        Spark's own limit of an epoch is not used: the unit of a reader's limit, rows or files, is up to the source.

        Raises:
            SourceError: If a bounded run finds nothing at all, and the source calls that an error.
        """
        if self.is_bounded and self.target is None:
            self.target = self.reader.latest_offset(start, None, None)
            if self.target == self.reader.initial_offset() and (error := self.reader.nothing()):
                raise error
        return self.reader.latest_offset(start, self.reader.limit, self.target)
