"""The Iceberg connector: sink, catalogs and storage."""

from volley.iceberg.catalogs.clouds import BigLakeCatalog, OneLakeCatalog, S3TablesCatalog
from volley.iceberg.catalogs.values import (
    GlueCatalog,
    HiveCatalog,
    MemoryCatalog,
    NessieCatalog,
    RestCatalog,
    SqlCatalog,
)
from volley.iceberg.catalogs.vendors import (
    GravitinoCatalog,
    LakekeeperCatalog,
    PolarisCatalog,
    SnowflakeOpenCatalog,
    UnityCatalog,
)
from volley.iceberg.changes import Change, Changes, Delete, Insert, Update, changes_between
from volley.iceberg.config import IcebergSinkConfig
from volley.iceberg.layout.partitioning import Partitioning
from volley.iceberg.maintain.erasure_values import Erasure
from volley.iceberg.maintain.evolution import SchemaEvolution
from volley.iceberg.maintain.orphans import orphan_files, remove_orphan_files
from volley.iceberg.maintain.snapshots import SnapshotManager, publish_branch
from volley.iceberg.maintain.values import (
    Compaction,
    DeleteRewrite,
    Expiry,
    ManifestRewrite,
    OrphanFiles,
    Ref,
    SnapshotInfo,
    SnapshotList,
)
from volley.iceberg.maintain.verdict import HealthFinding, TableHealth
from volley.iceberg.modes import Append, History, Maintenance, Overwrite, Upsert
from volley.iceberg.schema.converter import TypeConverter
from volley.iceberg.sink import IcebergSink, RoutedSink
from volley.iceberg.source import IcebergSource
from volley.iceberg.source_config import Batch, IcebergSourceConfig, Incremental, Snapshot
from volley.iceberg.statistics.values import TableStatistics
from volley.iceberg.storage.values import AzureStorage, GcsStorage, IcebergStorage, LocalStorage, S3Storage
from volley.iceberg.table import TableRef
from volley.iceberg.time_travel import IcebergTable, TableRows
from volley.iceberg.time_travel_query import TimeTravelQuery

__all__ = [
    "Append",
    "AzureStorage",
    "Batch",
    "BigLakeCatalog",
    "Change",
    "Changes",
    "Compaction",
    "Delete",
    "DeleteRewrite",
    "Erasure",
    "Expiry",
    "GcsStorage",
    "GlueCatalog",
    "GravitinoCatalog",
    "HealthFinding",
    "History",
    "HiveCatalog",
    "IcebergSink",
    "IcebergSinkConfig",
    "IcebergSource",
    "IcebergSourceConfig",
    "IcebergStorage",
    "IcebergTable",
    "Incremental",
    "Insert",
    "LakekeeperCatalog",
    "LocalStorage",
    "Maintenance",
    "ManifestRewrite",
    "MemoryCatalog",
    "NessieCatalog",
    "OneLakeCatalog",
    "OrphanFiles",
    "Overwrite",
    "Partitioning",
    "PolarisCatalog",
    "Ref",
    "RestCatalog",
    "RoutedSink",
    "S3Storage",
    "S3TablesCatalog",
    "SchemaEvolution",
    "Snapshot",
    "SnapshotInfo",
    "SnapshotList",
    "SnapshotManager",
    "SnowflakeOpenCatalog",
    "SqlCatalog",
    "TableHealth",
    "TableRef",
    "TableRows",
    "TableStatistics",
    "TimeTravelQuery",
    "TypeConverter",
    "UnityCatalog",
    "Update",
    "Upsert",
    "changes_between",
    "orphan_files",
    "publish_branch",
    "remove_orphan_files",
]
