"""The Iceberg connector: sink, catalogs and storage."""

from volley.iceberg.catalogs import GlueCatalog, HiveCatalog, MemoryCatalog, NessieCatalog, RestCatalog, SqlCatalog
from volley.iceberg.config import IcebergSinkConfig
from volley.iceberg.maintenance import orphan_files, remove_orphan_files
from volley.iceberg.modes import Append, Overwrite, Upsert
from volley.iceberg.partitioning import Partitioning
from volley.iceberg.sink import IcebergSink
from volley.iceberg.snapshots import publish_branch
from volley.iceberg.storage import IcebergStorage

__all__ = [
    "Append",
    "GlueCatalog",
    "HiveCatalog",
    "IcebergSink",
    "IcebergSinkConfig",
    "IcebergStorage",
    "MemoryCatalog",
    "NessieCatalog",
    "Overwrite",
    "Partitioning",
    "RestCatalog",
    "SqlCatalog",
    "Upsert",
    "orphan_files",
    "publish_branch",
    "remove_orphan_files",
]
