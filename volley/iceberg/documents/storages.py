"""Storages in documents: ``s3``, ``gcs``, ``azure`` or ``local``, and what the warehouse's URL says of them."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from volley.documents.collector import Collector
from volley.documents.mistakes import Path
from volley.documents.models import Model, given, model_of
from volley.iceberg.storage.values import AzureStorage, GcsStorage, IcebergStorage, LocalStorage, S3Storage

__all__ = ["S3", "Azure", "Gcs", "Local", "storage_of"]

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
        document: The table's settings.
        warehouse: The warehouse: its URL may say the bucket, the container or the folder.
        region: The region of an AWS catalog.
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
    for required in _required(kind):
        if arguments.get(required) is None:
            hint = f"{kind}: {{{required}: …}}, or a warehouse with its URL"
            collector.add((*path, kind, required), f"{kind}.{required} is missing", hint)
            return None
    storage: IcebergStorage | None = collector.make(build, arguments, (*path, kind))
    return storage


def _required(kind: str) -> tuple[str, ...]:
    required = {
        "s3": ("bucket",),
        "gcs": ("project_id", "bucket"),
        "azure": ("storage_account", "container"),
        "local": ("path",),
    }
    return required[kind]


def _scheme(warehouse: str | None) -> str | None:
    """Return the scheme of a warehouse's URL; that of a folder is "file"."""
    if warehouse is None:
        return None
    if warehouse.startswith(("/", "./", "~")):
        return "file"
    return warehouse.partition("://")[0] if "://" in warehouse else None


def _region() -> str:
    return os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"


def _of_warehouse(kind: str, warehouse: str | None) -> dict[str, Any]:
    """Return what a warehouse's URL says of the storage."""
    url = warehouse or ""
    if kind == "local":
        return {"path": url.removeprefix("file://")}
    if kind == "azure":
        account = re.match(r"\w+://([^@/]+)@([^./]+)\.", url)
        return {"container": account[1], "storage_account": account[2]} if account else {}
    return {"bucket": urlsplit(url).netloc}
