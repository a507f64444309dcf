"""Tables in documents: catalog, namespace, name and storage, of which the warehouse's URL may say a part."""

from __future__ import annotations

import os
import re
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, create_model

from volley.documents.collector import Collector
from volley.documents.mistakes import Path
from volley.documents.models import Model, Names, given, model_of
from volley.iceberg.catalogs.clouds import BigLakeCatalog, OneLakeCatalog, S3TablesCatalog
from volley.iceberg.catalogs.config import CatalogConfig
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
from volley.iceberg.storage.values import AzureStorage, GcsStorage, IcebergStorage, LocalStorage, S3Storage
from volley.iceberg.table import TableRef

__all__ = ["TableDocument", "table_of"]

_STORAGES: dict[str, type[IcebergStorage]] = {
    "s3": S3Storage,
    "gcs": GcsStorage,
    "azure": AzureStorage,
    "local": LocalStorage,
}
_SCHEMES = {
    **dict.fromkeys(("s3", "s3a", "s3n"), "s3"),
    **dict.fromkeys(("gs", "gcs"), "gcs"),
    **dict.fromkeys(("abfs", "abfss", "wasb", "wasbs"), "azure"),
    "file": "local",
}

if TYPE_CHECKING:
    S3 = Model
    Gcs = Model
    Azure = Model
    Local = Model
else:
    S3, Gcs, Azure, Local = map(model_of, _STORAGES.values())
    for _model in (S3, Gcs, Azure, Local):
        for _field in _model.model_fields.values():
            # The warehouse may say it.
            _field.default = None
        _model.model_rebuild(force=True)


def storage_of(
    document: Model, warehouse: str | None, region: str | None, collector: Collector, path: Path
) -> IcebergStorage | None:
    """Return the storage of a table's files; None if its settings have mistakes.

    Args:
        warehouse: The warehouse: its URL may say the bucket, the container or the folder.
    """
    named = [name for name in _STORAGES if getattr(document, name) is not None]
    for other in named[1:]:
        collector.add((*path, other), f"{named[0]} and {other} are both given", "one storage for a table", of_key=True)
    scheme = _scheme(warehouse)
    if scheme and scheme not in _SCHEMES:
        collector.add(
            (*path, "catalog"),
            f"warehouse {warehouse!r} is in no storage that Volley supports",
            "s3://, gs://, abfss:// or a folder",
        )
        return None
    kind = named[0] if named else _SCHEMES.get(scheme or "")
    if kind is None:
        collector.add(path, "the storage is missing", "s3, gcs, azure or local: {…}, or a warehouse with a URL")
        return None
    settings: Model | None = getattr(document, kind)
    known = _of_warehouse(kind, warehouse) if _SCHEMES.get(scheme or "") == kind else {}
    if kind == "s3":
        known |= {"region": region or _region()}
    arguments = known | (given(settings) if settings else {})
    build: Any = _STORAGES[kind]
    for required in (setting.name for setting in fields(build) if setting.default is MISSING):
        if arguments.get(required) is None:
            hint = f"{kind}: {{{required}: …}}, or a warehouse with its URL"
            collector.add((*path, kind, required), f"{kind}.{required} is missing", hint)
            return None
    storage: IcebergStorage | None = collector.make(build, arguments, (*path, kind))
    return storage


def _scheme(warehouse: str | None) -> str | None:
    """Return the scheme of a warehouse's URL; that of a folder is "file"."""
    if warehouse is None:
        return None
    if warehouse.startswith(("/", "./", "~")):
        return "file"
    return warehouse.partition("://")[0] if "://" in warehouse else None


def _region() -> str:
    return os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"


def _of_warehouse(storage: str, warehouse: str | None) -> dict[str, Any]:
    """Return what a warehouse's URL says of the storage."""
    url = warehouse or ""
    if storage == "local":
        return {"path": url.removeprefix("file://")}
    if storage == "azure":
        account = re.match(r"\w+://([^@/]+)@([^./]+)\.", url)
        return {"container": account[1], "storage_account": account[2]} if account else {}
    return {"bucket": urlsplit(url).netloc}


_CATALOGS: dict[str, type[CatalogConfig]] = {
    "rest": RestCatalog,
    "glue": GlueCatalog,
    "hive": HiveCatalog,
    "nessie": NessieCatalog,
    "polaris": PolarisCatalog,
    "snowflake_open_catalog": SnowflakeOpenCatalog,
    "gravitino": GravitinoCatalog,
    "lakekeeper": LakekeeperCatalog,
    "unity": UnityCatalog,
    "s3_tables": S3TablesCatalog,
    "biglake": BigLakeCatalog,
    "onelake": OneLakeCatalog,
    "sql": SqlCatalog,
    "memory": MemoryCatalog,
}


class _Catalog(Model):
    """A catalog: its type, and under the type's name its settings."""

    type: Literal[
        "rest",
        "glue",
        "hive",
        "nessie",
        "polaris",
        "snowflake_open_catalog",
        "gravitino",
        "lakekeeper",
        "unity",
        "s3_tables",
        "biglake",
        "onelake",
        "sql",
        "memory",
    ] = Field(description="The type of the catalog.")
    warehouse: str | None = Field(
        None,
        description="A REST catalog's name for the warehouse; for other catalogs a folder in the storage, or its URL.",
    )

    @property
    def location(self) -> str | None:
        """The warehouse, beside the type or among the catalog's settings."""
        named: str | None = getattr(getattr(self, self.type), "warehouse", None)
        return self.warehouse or named


if TYPE_CHECKING:
    CatalogDocument = _Catalog
else:
    _models = {name: model_of(catalog) for name, catalog in _CATALOGS.items()}
    for _model in _models.values():
        if "warehouse" in _model.model_fields:
            # It may stand beside the type.
            _model.model_fields["warehouse"].default = None
            _model.model_rebuild(force=True)
    CatalogDocument = create_model(
        "Catalog",
        __base__=_Catalog,
        **{name: (model | None, Field(None, description=model.__doc__)) for name, model in _models.items()},
    )


def catalog_of(document: CatalogDocument, collector: Collector, path: Path) -> CatalogConfig | None:
    """Return the catalog; None if its settings have mistakes."""
    others = [name for name in _CATALOGS if name != document.type and getattr(document, name) is not None]
    for name in others:
        collector.add(
            (*path, name), f"{name} has settings, but the type is {document.type}", "leave one out", of_key=True
        )
    settings: Model | None = getattr(document, document.type)
    arguments = given(settings) if settings else {}
    if "credential" in arguments and ":" not in str(arguments["credential"] or ":"):
        # A client's id and secret have a colon between them, a bearer token has none.
        arguments["token"] = arguments.pop("credential")
    if document.type not in ("sql", "memory") and settings is None:
        collector.add(
            (*path, document.type),
            f"{document.type} is missing",
            f"the settings of the catalog: {document.type}: {{…}}",
        )
        return None
    build: Any = _CATALOGS[document.type]
    needs_one = any(setting.name == "warehouse" and setting.default is MISSING for setting in fields(build))
    if needs_one and arguments.get("warehouse") is None:
        arguments["warehouse"] = document.warehouse
        if document.warehouse is None:
            hint = f"{document.type}: {{warehouse: …}}, or warehouse beside the type"
            collector.add((*path, document.type), f"{document.type}.warehouse is missing", hint)
            return None
    catalog: CatalogConfig | None = collector.make(build, arguments, (*path, document.type), {"token": "credential"})
    return catalog


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
    """Return the table that settings name; None after a mistake."""
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
