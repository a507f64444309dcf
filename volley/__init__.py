"""Volley: a fluent pipeline from events to Apache Iceberg tables, on Spark, exactly once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from volley._repair import repair
    from volley.connectors.console import ConsoleSink
    from volley.connectors.files import FileSink, FileSource
    from volley.connectors.function import FunctionSink
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
    from volley.iceberg import IcebergSink, IcebergSinkConfig, IcebergStorage
    from volley.job import Job, Progress, State
    from volley.metrics import EpochProgress, Metrics, MetricsSnapshot
    from volley.sink import Committer, Epoch, Sink, SinkContext, TaskWriter, Writer, WriteResult
    from volley.source import Reader, Source, SourceContext, SparkSource
    from volley.stream import DataStream, Pipeline

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
    "FunctionSink",
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
    "Pipeline",
    "PlanError",
    "Progress",
    "RateSource",
    "Reader",
    "SchemaMismatchError",
    "Sink",
    "SinkContext",
    "Source",
    "SourceContext",
    "SourceError",
    "SparkSource",
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

_ERRORS = [name for name in __all__ if name.endswith("Error")]
_MODULES = {
    "_repair": ["repair"],
    "connectors.console": ["ConsoleSink"],
    "connectors.files": ["FileSink", "FileSource"],
    "connectors.function": ["FunctionSink"],
    "connectors.kafka": ["KafkaSink", "KafkaSource"],
    "connectors.memory": ["ABORT", "EOF", "MemorySink", "MemorySource"],
    "connectors.rate": ["RateSource"],
    "environment": ["Environment"],
    "errors": _ERRORS,
    "expressions": ["Expr", "col", "lit"],
    "iceberg": ["IcebergSink", "IcebergSinkConfig", "IcebergStorage"],
    "job": ["Job", "Progress", "State"],
    "metrics": ["EpochProgress", "Metrics", "MetricsSnapshot"],
    "sink": ["Committer", "Epoch", "Sink", "SinkContext", "TaskWriter", "WriteResult", "Writer"],
    "source": ["Reader", "Source", "SourceContext", "SparkSource"],
    "stream": ["DataStream", "Pipeline"],
}
_PACKAGES = {module.partition(".")[0] for module in _MODULES if not module.startswith("_")}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    # Each name is imported when it is first asked for: Spark's Python processes import `volley` too, a few parts of it.
    import importlib

    if name in _PACKAGES:
        return importlib.import_module(f"volley.{name}")
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'volley' has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(f"volley.{_MODULE_OF[name]}"), name)
    return value


def __dir__() -> list[str]:
    return [*globals(), *__all__]
