"""CatalogConfig: the base class of catalog values."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from volley.iceberg.storage.values import IcebergStorage
from volley.secrets import redacted_html, redacted_repr

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

__all__ = ["CatalogConfig"]


class CatalogConfig(ABC):
    """A catalog as a plain value; `open` connects to it."""

    extra: ClassVar[str | None] = None
    """The extra of volley-stream that installs the client's package."""
    has_refs: ClassVar[bool] = True
    """False if a table has no branches and tags of its own."""
    has_history: ClassVar[bool] = True
    """False if the last snapshot of a table alone is shown, so that its changes can't be followed."""
    has_nested_namespaces: ClassVar[bool] = True
    """False if the namespace of a table is one name."""

    @property
    @abstractmethod
    def address(self) -> str:
        """The catalog's address without secrets, for messages."""

    @abstractmethod
    def to_properties(self, storage: IcebergStorage, warehouse: str | None = None) -> dict[str, Any]:
        """Return the properties for pyiceberg's ``load_catalog``. They contain secrets: never print or log them.

        Args:
            storage: The storage of the tables' files.
            warehouse: The warehouse of the `TableRef`.
        """

    @property
    def file(self) -> str | None:
        """The path of the catalog's file; None if it has none."""
        return None

    @abstractmethod
    def open(self, properties: dict[str, Any]) -> Catalog:
        """Return pyiceberg's catalog with these properties."""

    __repr__ = redacted_repr
    _repr_html_ = redacted_html
