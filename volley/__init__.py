"""Volley: a fluent pipeline from events to Apache Iceberg tables, on Spark, exactly once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from volley.connectors.console import ConsoleSink
from volley.connectors.files import FileSink, FileSource
from volley.connectors.kafka import KafkaSink, KafkaSource
from volley.connectors.memory import ABORT, EOF, MemorySink, MemorySource
from volley.connectors.rate import RateSource
from volley.environment import Environment
from volley.errors import (
    CatalogAuthError,
    CatalogError,
    CatalogUnreachableError,
    CommitConflictError,
    CommitError,
    CommitStateUnknownError,
    ConfigError,
    ExpressionError,
    JobError,
    LayoutChangedError,
    MissingDependencyError,
    PlanError,
    SchemaMismatchError,
    SourceError,
    StorageAccessError,
    StorageError,
    TableNotFoundError,
    VolleyError,
)
from volley.expressions import Expr, col, lit
from volley.metrics import EpochProgress, Metrics, MetricsSnapshot
from volley.sink import Committer, Epoch, Sink, SinkContext, TaskWriter, Writer, WriteResult
from volley.source import Source, SparkSource, SplitSource
from volley.stream import DataStream

if TYPE_CHECKING:
    from volley._repair import repair
    from volley.iceberg import IcebergSink, IcebergSinkConfig, IcebergStorage
    from volley.job import Job, Progress, State

__version__ = "0.1.0"

__all__ = [
    "ABORT",
    "EOF",
    "CatalogAuthError",
    "CatalogError",
    "CatalogUnreachableError",
    "CommitConflictError",
    "CommitError",
    "CommitStateUnknownError",
    "Committer",
    "ConfigError",
    "ConsoleSink",
    "DataStream",
    "Environment",
    "Epoch",
    "EpochProgress",
    "Expr",
    "ExpressionError",
    "FileSink",
    "FileSource",
    "IcebergSink",
    "IcebergSinkConfig",
    "IcebergStorage",
    "Job",
    "JobError",
    "KafkaSink",
    "KafkaSource",
    "LayoutChangedError",
    "MemorySink",
    "MemorySource",
    "Metrics",
    "MetricsSnapshot",
    "MissingDependencyError",
    "PlanError",
    "Progress",
    "RateSource",
    "SchemaMismatchError",
    "Sink",
    "SinkContext",
    "Source",
    "SourceError",
    "SparkSource",
    "SplitSource",
    "State",
    "StorageAccessError",
    "StorageError",
    "TableNotFoundError",
    "TaskWriter",
    "VolleyError",
    "WriteResult",
    "Writer",
    "col",
    "lit",
    "repair",
]

_LAZY = {
    "IcebergSink": "volley.iceberg",
    "IcebergSinkConfig": "volley.iceberg",
    "IcebergStorage": "volley.iceberg",
    "Job": "volley.job",
    "Progress": "volley.job",
    "State": "volley.job",
    "repair": "volley._repair",
}


def __getattr__(name: str) -> Any:
    # Iceberg's names and a running job's are imported when they are first asked for: `import volley` stays quick.
    if name not in _LAZY:
        raise AttributeError(f"module 'volley' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_LAZY[name]), name)
