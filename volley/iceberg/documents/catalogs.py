"""Catalogs in documents: ``{type: rest, rest: {uri: …}}``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, create_model

from volley.documents.collector import Collector
from volley.documents.mistakes import Path
from volley.documents.models import Model, given, model_of
from volley.iceberg.catalogs.config import CatalogConfig
from volley.iceberg.catalogs.values import (
    GlueCatalog,
    HiveCatalog,
    MemoryCatalog,
    NessieCatalog,
    RestCatalog,
    SqlCatalog,
)

__all__ = ["CatalogDocument", "catalog_of"]

_CATALOGS: dict[str, type[CatalogConfig]] = {
    "rest": RestCatalog,
    "glue": GlueCatalog,
    "hive": HiveCatalog,
    "nessie": NessieCatalog,
    "sql": SqlCatalog,
    "memory": MemoryCatalog,
}


class _Catalog(Model):
    """A catalog: its type, and under the type's name its settings."""

    type: Literal["rest", "glue", "hive", "nessie", "sql", "memory"] = Field(description="The type of the catalog.")
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
    CatalogDocument = create_model(
        "Catalog",
        __base__=_Catalog,
        **{
            name: (model_of(catalog) | None, Field(None, description=model_of(catalog).__doc__))
            for name, catalog in _CATALOGS.items()
        },
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
    catalog: CatalogConfig | None = collector.make(build, arguments, (*path, document.type), {"token": "credential"})
    return catalog
