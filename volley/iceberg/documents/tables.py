"""Tables in documents: catalog, namespace, name and storage."""

from __future__ import annotations

import re
from typing import Any

from pydantic import Field

from volley.documents.collector import Collector
from volley.documents.mistakes import Path
from volley.documents.models import Model, Names
from volley.iceberg.catalogs.values import GlueCatalog, RestCatalog
from volley.iceberg.documents.catalogs import CatalogDocument, catalog_of
from volley.iceberg.documents.storages import S3, Azure, Gcs, Local, storage_of
from volley.iceberg.table import TableRef

__all__ = ["TableDocument", "table_of"]


class TableDocument(Model):
    """A table: its catalog, its names and its storage."""

    catalog: CatalogDocument | None = Field(
        None, description="The catalog; without one, a SQLite catalog in local storage."
    )
    namespace: Names | None = Field(
        None, description="A dotted name, or a list of names. Without one, Glue's database."
    )
    table: str = Field(description="The table's name.")
    branch: str = Field("main", description="The branch.")
    s3: S3 | None = Field(None, description="Amazon S3, or a server that is compatible with it.")
    gcs: Gcs | None = Field(None, description="Google Cloud Storage.")
    azure: Azure | None = Field(None, description="Azure Blob Storage or Data Lake.")
    local: Local | None = Field(None, description="A local folder.")
    properties: dict[str, Any] = Field(
        {}, description="Further properties for pyiceberg's catalog and FileIO; they override all other settings."
    )


def table_of(document: TableDocument, collector: Collector, path: Path) -> TableRef | None:
    """Return the table that settings name; None after a mistake.

    Args:
        document: The settings.
    """
    catalog = None if document.catalog is None else catalog_of(document.catalog, collector, (*path, "catalog"))
    beside, warehouse = (document.catalog.warehouse, document.catalog.location) if document.catalog else (None, None)
    region = catalog.region if isinstance(catalog, GlueCatalog) else None
    storage = storage_of(document, warehouse, region, collector, path)
    if storage is None or collector.has_mistakes((*path, "catalog")):
        return None
    arguments = {
        "catalog": catalog,
        "warehouse": beside if isinstance(catalog, RestCatalog) else _below(storage.root, warehouse),
        "namespace": _namespace(document.namespace),
        "table": document.table,
        "storage": storage,
        "branch": document.branch,
        "properties": document.properties,
    }
    return collector.make(TableRef, arguments, path, instead={"namespace": "any", "table": "any"})


def _namespace(names: list[str] | None) -> str | list[str] | None:
    return names[0] if names and len(names) == 1 else names


def _below(root: str, warehouse: str | None) -> str | None:
    """Return the warehouse; None if it is the storage's root, where tables are without one."""
    if warehouse is None or warehouse.startswith(("./", "~")):
        return None
    url = re.sub(r"^s3[an]://", "s3://", warehouse.rstrip("/"))
    return None if url in (root, root.removeprefix("file://")) else url
