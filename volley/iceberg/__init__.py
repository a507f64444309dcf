"""The Iceberg connector: sink, catalogs and storage."""

from volley.iceberg.catalogs.values import (
    GlueCatalog,
    HiveCatalog,
    MemoryCatalog,
    NessieCatalog,
    RestCatalog,
    SqlCatalog,
)
from volley.iceberg.config import IcebergSinkConfig
from volley.iceberg.layout.partitioning import Partitioning
from volley.iceberg.maintain.branches import publish_branch
from volley.iceberg.maintain.evolution import SchemaEvolution
from volley.iceberg.maintain.orphans import orphan_files, remove_orphan_files
from volley.iceberg.maintain.snapshots import SnapshotManager
from volley.iceberg.maintain.values import Expiry, Ref, SnapshotInfo, SnapshotList
from volley.iceberg.modes import Append, Overwrite, Upsert
from volley.iceberg.schema.converter import TypeConverter
from volley.iceberg.sink import IcebergSink
from volley.iceberg.storage.values import AzureStorage, GcsStorage, IcebergStorage, LocalStorage, S3Storage
from volley.iceberg.table import TableRef

__all__ = [
    "Append",
    "AzureStorage",
    "Expiry",
    "GcsStorage",
    "GlueCatalog",
    "HiveCatalog",
    "IcebergSink",
    "IcebergSinkConfig",
    "IcebergStorage",
    "LocalStorage",
    "MemoryCatalog",
    "NessieCatalog",
    "Overwrite",
    "Partitioning",
    "Ref",
    "RestCatalog",
    "S3Storage",
    "SchemaEvolution",
    "SnapshotInfo",
    "SnapshotList",
    "SnapshotManager",
    "SqlCatalog",
    "TableRef",
    "TypeConverter",
    "Upsert",
    "orphan_files",
    "publish_branch",
    "remove_orphan_files",
]
