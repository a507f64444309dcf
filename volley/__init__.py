"""Volley: a fluent pipeline from events to Apache Iceberg tables, on Spark, exactly once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from volley.config.load import load_config
    from volley.config.values import Config, ConfiguredPipeline
    from volley.connectors.console import ConsoleSink
    from volley.connectors.files.notifications import AzureQueue, PubSubSubscription, SqsQueue
    from volley.connectors.files.sink import FileSink
    from volley.connectors.files.source import FileSource
    from volley.connectors.function import FunctionSink
    from volley.connectors.kafka.sink import KafkaSink
    from volley.connectors.kafka.source import KafkaSource
    from volley.connectors.mariadb.source import MariaDbSource, MySqlSource
    from volley.connectors.memory.sink import MemorySink
    from volley.connectors.memory.source import ABORT, EOF, MemorySource
    from volley.connectors.postgres.source import PostgresSource
    from volley.connectors.rate import RateSource
    from volley.connectors.webhook.auth import (
        BearerAuth,
        HmacAuth,
        PublicKeyAuth,
        ServerTls,
        SignatureScheme,
        SnsAuth,
    )
    from volley.connectors.webhook.source import WebhookSource
    from volley.contracts.datasets import Dataset
    from volley.contracts.epoch import Epoch, WriteResult
    from volley.contracts.reports import Lag, MaintenanceReport, MaintenanceRun
    from volley.contracts.sink import Committer, Sink, SinkContext, TaskWriter, Writer
    from volley.contracts.source import Offset, Reader, Source, SourceContext, SparkSource, Split
    from volley.engine.job import Job
    from volley.engine.progress import Progress, State
    from volley.engine.repair import repair
    from volley.engine.restart import Restart
    from volley.environment import Environment
    from volley.errors import (
        CatalogAuthError,
        CatalogError,
        CatalogUnreachableError,
        CommitConflictError,
        CommitError,
        CommitStateUnknownError,
        ConfigError,
        ExpectationError,
        ExpressionError,
        JobError,
        LayoutChangedError,
        MissingDependencyError,
        PlanError,
        SchemaChangedError,
        SchemaMismatchError,
        SessionLostError,
        SnapshotExpiredError,
        SnapshotNotFoundError,
        SnapshotRolledBackError,
        SourceError,
        SourceNotFoundError,
        StorageAccessError,
        StorageError,
        TableNotFoundError,
        TableReplacedError,
        VolleyError,
    )
    from volley.formats.contract import Contract
    from volley.formats.packed_rows import pack_rows
    from volley.iceberg import (
        Append,
        AzureStorage,
        Batch,
        BigLakeCatalog,
        Change,
        Changes,
        Compaction,
        Delete,
        DeleteRewrite,
        Erasure,
        Expiry,
        GcsStorage,
        GlueCatalog,
        GravitinoCatalog,
        HealthFinding,
        History,
        HiveCatalog,
        IcebergSink,
        IcebergSinkConfig,
        IcebergSource,
        IcebergSourceConfig,
        IcebergStorage,
        IcebergTable,
        Incremental,
        Insert,
        LakekeeperCatalog,
        LocalStorage,
        Maintenance,
        ManifestRewrite,
        MemoryCatalog,
        NessieCatalog,
        OneLakeCatalog,
        OrphanFiles,
        Overwrite,
        Partitioning,
        PolarisCatalog,
        Ref,
        RestCatalog,
        RoutedSink,
        S3Storage,
        S3TablesCatalog,
        SchemaEvolution,
        Snapshot,
        SnapshotInfo,
        SnapshotList,
        SnapshotManager,
        SnowflakeOpenCatalog,
        SqlCatalog,
        TableHealth,
        TableRef,
        TableRows,
        TableStatistics,
        TimeTravelQuery,
        TypeConverter,
        UnityCatalog,
        Update,
        Upsert,
        changes_between,
        orphan_files,
        publish_branch,
        remove_orphan_files,
    )
    from volley.iceberg.views.following import ViewFollower
    from volley.iceberg.views.values import ViewEstimate, ViewPlan, ViewRefresh, ViewSource, ViewStatus, ViewStep
    from volley.metrics.figures import EpochProgress, FinishedEpoch, TableFigures
    from volley.metrics.metrics import Metrics
    from volley.metrics.snapshot import MetricsSnapshot
    from volley.plan.aggregates import (
        Aggregation,
        approx_distinct,
        avg,
        count,
        count_distinct,
        first,
        last,
        list_,
        max_,
        min_,
        quantile,
        sum_,
        top,
        variance,
    )
    from volley.plan.choices import array, coalesce, concat_str, greatest, least, murmur3, struct, xxhash64
    from volley.plan.conditions import when
    from volley.plan.expressions import Expr, col, lit, now
    from volley.plan.over import OverFunction, dense_rank, lag, lead, rank, row_number, rows_between
    from volley.plan.series import SeriesFunction, ewm_mean, increase, previous, rate, rolling, session_start
    from volley.plan.sql import sql
    from volley.plan.windows import calendar, cumulative, session, sliding, tumbling
    from volley.stream.keyed import KeyedStream, OrderedStream, RetainedStream, SeriesStream, WindowedStream
    from volley.stream.pipeline import Pipeline
    from volley.stream.stream import DataStream
    from volley.views.view import MaterializedView

__version__ = "0.2.0"

__all__ = [
    "ABORT",
    "EOF",
    "Aggregation",
    "Append",
    "AzureQueue",
    "AzureStorage",
    "Batch",
    "BearerAuth",
    "BigLakeCatalog",
    "CatalogAuthError",
    "CatalogError",
    "CatalogUnreachableError",
    "Change",
    "Changes",
    "CommitConflictError",
    "CommitError",
    "CommitStateUnknownError",
    "Committer",
    "Compaction",
    "Config",
    "ConfigError",
    "ConfiguredPipeline",
    "ConsoleSink",
    "Contract",
    "DataStream",
    "Dataset",
    "Delete",
    "DeleteRewrite",
    "Environment",
    "Epoch",
    "EpochProgress",
    "Erasure",
    "ExpectationError",
    "Expiry",
    "Expr",
    "ExpressionError",
    "FileSink",
    "FileSource",
    "FinishedEpoch",
    "FunctionSink",
    "GcsStorage",
    "GlueCatalog",
    "GravitinoCatalog",
    "HealthFinding",
    "History",
    "HiveCatalog",
    "HmacAuth",
    "IcebergSink",
    "IcebergSinkConfig",
    "IcebergSource",
    "IcebergSourceConfig",
    "IcebergStorage",
    "IcebergTable",
    "Incremental",
    "Insert",
    "Job",
    "JobError",
    "KafkaSink",
    "KafkaSource",
    "KeyedStream",
    "Lag",
    "LakekeeperCatalog",
    "LayoutChangedError",
    "LocalStorage",
    "Maintenance",
    "MaintenanceReport",
    "MaintenanceRun",
    "ManifestRewrite",
    "MariaDbSource",
    "MaterializedView",
    "MemoryCatalog",
    "MemorySink",
    "MemorySource",
    "Metrics",
    "MetricsSnapshot",
    "MissingDependencyError",
    "MySqlSource",
    "NessieCatalog",
    "Offset",
    "OneLakeCatalog",
    "OrderedStream",
    "OrphanFiles",
    "OverFunction",
    "Overwrite",
    "Partitioning",
    "Pipeline",
    "PlanError",
    "PolarisCatalog",
    "PostgresSource",
    "Progress",
    "PubSubSubscription",
    "PublicKeyAuth",
    "RateSource",
    "Reader",
    "Ref",
    "RestCatalog",
    "Restart",
    "RetainedStream",
    "RoutedSink",
    "S3Storage",
    "S3TablesCatalog",
    "SchemaChangedError",
    "SchemaEvolution",
    "SchemaMismatchError",
    "SeriesFunction",
    "SeriesStream",
    "ServerTls",
    "SessionLostError",
    "SignatureScheme",
    "Sink",
    "SinkContext",
    "Snapshot",
    "SnapshotExpiredError",
    "SnapshotInfo",
    "SnapshotList",
    "SnapshotManager",
    "SnapshotNotFoundError",
    "SnapshotRolledBackError",
    "SnowflakeOpenCatalog",
    "SnsAuth",
    "Source",
    "SourceContext",
    "SourceError",
    "SourceNotFoundError",
    "SparkSource",
    "Split",
    "SqlCatalog",
    "SqsQueue",
    "State",
    "StorageAccessError",
    "StorageError",
    "TableFigures",
    "TableHealth",
    "TableNotFoundError",
    "TableRef",
    "TableReplacedError",
    "TableRows",
    "TableStatistics",
    "TaskWriter",
    "TimeTravelQuery",
    "TypeConverter",
    "UnityCatalog",
    "Update",
    "Upsert",
    "ViewEstimate",
    "ViewFollower",
    "ViewPlan",
    "ViewRefresh",
    "ViewSource",
    "ViewStatus",
    "ViewStep",
    "VolleyError",
    "WebhookSource",
    "WindowedStream",
    "WriteResult",
    "Writer",
    "approx_distinct",
    "array",
    "avg",
    "calendar",
    "changes_between",
    "coalesce",
    "col",
    "concat_str",
    "count",
    "count_distinct",
    "cumulative",
    "dense_rank",
    "ewm_mean",
    "first",
    "greatest",
    "increase",
    "lag",
    "last",
    "lead",
    "least",
    "list_",
    "lit",
    "load_config",
    "max_",
    "min_",
    "murmur3",
    "now",
    "orphan_files",
    "pack_rows",
    "previous",
    "publish_branch",
    "quantile",
    "rank",
    "rate",
    "remove_orphan_files",
    "repair",
    "rolling",
    "row_number",
    "rows_between",
    "session",
    "session_start",
    "sliding",
    "sql",
    "struct",
    "sum_",
    "top",
    "tumbling",
    "variance",
    "when",
    "xxhash64",
]

_ERRORS = [name for name in __all__ if name.endswith("Error")]
_MODULES = {
    "config.load": ["load_config"],
    "config.values": ["Config", "ConfiguredPipeline"],
    "connectors.console": ["ConsoleSink"],
    "connectors.files.sink": ["FileSink"],
    "connectors.files.source": ["FileSource"],
    "connectors.function": ["FunctionSink"],
    "connectors.kafka.sink": ["KafkaSink"],
    "connectors.kafka.source": ["KafkaSource"],
    "connectors.memory.sink": ["MemorySink"],
    "connectors.memory.source": ["ABORT", "EOF", "MemorySource"],
    "connectors.mariadb.source": ["MariaDbSource", "MySqlSource"],
    "connectors.postgres.source": ["PostgresSource"],
    "connectors.rate": ["RateSource"],
    "connectors.files.notifications": ["AzureQueue", "PubSubSubscription", "SqsQueue"],
    "connectors.webhook.auth": [
        *("BearerAuth", "HmacAuth", "PublicKeyAuth", "ServerTls", "SignatureScheme", "SnsAuth"),
    ],
    "connectors.webhook.source": ["WebhookSource"],
    "engine.job": ["Job"],
    "engine.progress": ["Progress", "State"],
    "engine.repair": ["repair"],
    "environment": ["Environment"],
    "contracts.datasets": ["Dataset"],
    "contracts.epoch": ["Epoch", "WriteResult"],
    "errors": _ERRORS,
    "metrics.figures": ["EpochProgress", "FinishedEpoch", "TableFigures"],
    "formats.contract": ["Contract"],
    "formats.packed_rows": ["pack_rows"],
    "iceberg.views.following": ["ViewFollower"],
    "iceberg.views.values": ["ViewEstimate", "ViewPlan", "ViewRefresh", "ViewSource", "ViewStatus", "ViewStep"],
    "stream.keyed": ["KeyedStream", "OrderedStream", "RetainedStream", "SeriesStream", "WindowedStream"],
    "contracts.reports": ["Lag", "MaintenanceReport", "MaintenanceRun"],
    "metrics.metrics": ["Metrics"],
    "metrics.snapshot": ["MetricsSnapshot"],
    "stream.pipeline": ["Pipeline"],
    "views.view": ["MaterializedView"],
    "plan.aggregates": [
        "Aggregation",
        *("approx_distinct", "avg", "count", "count_distinct", "first", "last", "list_", "max_", "min_", "quantile"),
        *("sum_", "top", "variance"),
    ],
    "plan.choices": ["array", "coalesce", "concat_str", "greatest", "least", "murmur3", "struct", "xxhash64"],
    "plan.conditions": ["when"],
    "plan.expressions": ["Expr", "col", "lit", "now"],
    "plan.over": ["OverFunction", "dense_rank", "lag", "lead", "rank", "row_number", "rows_between"],
    "plan.series": [
        *("SeriesFunction", "ewm_mean", "increase", "previous", "rate", "rolling", "session_start"),
    ],
    "plan.sql": ["sql"],
    "plan.windows": ["calendar", "cumulative", "session", "sliding", "tumbling"],
    "engine.restart": ["Restart"],
    "contracts.sink": ["Committer", "Sink", "SinkContext", "TaskWriter", "Writer"],
    "contracts.source": ["Offset", "Reader", "Source", "SourceContext", "SparkSource", "Split"],
    "stream.stream": ["DataStream"],
}
_PACKAGES = ("errors", "iceberg")
# Which extra brings what modules of a package import.
_EXTRAS = {"config": "cli", "engine": "spark"}
# Every other name is one of Iceberg.
_MODULE_OF = dict.fromkeys(__all__, "iceberg") | {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    # Import each name on first use: Spark's Python workers import `volley` too, and need only a few of its modules.
    import importlib

    if name in _PACKAGES:
        return importlib.import_module(f"volley.{name}")
    if name not in _MODULE_OF:
        if name == "HttpSource":
            import warnings

            warnings.warn("HttpSource is called WebhookSource since 0.3.0", DeprecationWarning, stacklevel=2)
            return __getattr__("WebhookSource")
        raise AttributeError(f"module 'volley' has no attribute {name!r}")
    try:
        value = globals()[name] = getattr(importlib.import_module(f"volley.{_MODULE_OF[name]}"), name)
    except ModuleNotFoundError as error:
        extra = _EXTRAS.get(_MODULE_OF[name].partition(".")[0])
        if extra is None or str(error.name).startswith("volley."):
            raise
        from volley.errors import MissingDependencyError

        hint = f'pip install "volley-stream[{extra}]"'
        raise MissingDependencyError(f"volley.{name} needs the package {error.name}", hint=hint) from error
    return value


def __dir__() -> list[str]:
    return list({*globals(), *__all__})
