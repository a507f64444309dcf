"""CatalogConfig: the base class of catalog values, and the checks of their URIs."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from volley.errors import ConfigError
from volley.iceberg.catalogs.capabilities import Capabilities
from volley.iceberg.storage.values import IcebergStorage
from volley.secrets import redact_uri, redacted_html, redacted_repr

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

__all__ = ["CatalogConfig", "check_port", "check_uri"]


def check_uri(uri: object, *schemes: str) -> None:
    """Check the beginning of a URI, and that its user and password are escaped.

    Raises:
        ConfigError: If the URI starts with none of the schemes, or has a space or a second @.
    """
    if not isinstance(uri, str) or not uri.startswith(schemes):
        shown = redact_uri(uri) if isinstance(uri, str) else uri
        raise ConfigError(f"catalog uri {shown!r} is not valid", hint=f"it begins with {' or '.join(schemes)}")
    # Don't show the URI: it is unclear where its password ends, and each client decides differently.
    if re.search(r"\s", uri) or uri.partition("?")[0].count("@") > 1:
        scheme = uri.partition(":")[0]
        raise ConfigError(
            f"catalog uri {scheme}://… has a space or a second @",
            hint="escape what stands in user and password: urllib.parse.quote(password, safe='')",
        )


def check_port(uri: str) -> None:
    """Raise ConfigError if the URI's port is not a number."""
    # The host starts after the last @: an unescaped password may contain any character.
    host = uri.rpartition("@")[2] if "@" in uri else uri.partition("://")[2]
    port = re.match(r"[^/?\[\]:]*:([^/?]*)", host)
    if port and not port[1].isdigit():
        raise ConfigError(
            f"catalog uri {redact_uri(uri)!r} has a port that is no number",
            hint="postgresql://user:password@host:5432/db",
        )


class CatalogConfig(ABC):
    """A catalog as a plain value; `open` connects to it."""

    extra: ClassVar[str | None] = None
    """The extra of volley-stream that installs the client's package."""
    title: ClassVar[str] = "the catalog"
    """The catalog's name in messages."""
    capabilities: ClassVar[Capabilities] = Capabilities()
    """What it can do, as far as its name tells."""

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
