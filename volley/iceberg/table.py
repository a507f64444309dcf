"""TableRef: a table and how to reach it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from volley.checks import keep, mapping, names, of_type, optional, text
from volley.errors import ConfigError
from volley.iceberg.catalogs.errors import catalog_errors
from volley.iceberg.catalogs.values import CatalogConfig, GlueCatalog, SqlCatalog, catalog_from_uri
from volley.iceberg.storage.values import IcebergStorage, LocalStorage
from volley.secrets import redacted_repr

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

__all__ = ["TableRef"]


@dataclass(frozen=True, repr=False)
class TableRef:
    """A table and how to reach it: a frozen value that sinks and maintenance are built on. Nothing is reached yet.

    Args:
        namespace: A list of names, or one dotted string; kept as a tuple. None = Glue's database.
        table: The table's name.
        storage: Where the table's files live, an `IcebergStorage`.
        catalog: A catalog value (`RestCatalog`, `SqlCatalog`, …) or a URI: ``http(s)://…`` (REST), ``sqlite:///…`` or
            ``postgresql://…`` (SQL), ``thrift://…`` (Hive), ``memory``. None = a SQLite catalog in local storage. Kept
            as a value.
        warehouse: A REST catalog's name for the warehouse; for other catalogs a folder in the storage, or its URL.
        branch: The branch that is read or written.
        properties: Anything more for pyiceberg's catalog and FileIO; they win over all else.

    Raises:
        ConfigError: If a setting is wrong.

    Example:
        >>> from volley.iceberg import IcebergStorage, TableRef
        >>> TableRef("db", "events", IcebergStorage.Local("/tmp/lake"), catalog="memory").name
        'db.events'
    """

    namespace: str | Sequence[str] | None
    table: str
    storage: IcebergStorage
    catalog: CatalogConfig | str | None = None
    warehouse: str | None = None
    branch: str = "main"
    properties: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if not isinstance(self.storage, IcebergStorage):
            raise ConfigError(
                f"storage is {self.storage!r}", hint="IcebergStorage.S3(…), .Azure(…), .Gcs(…) or .Local(path)"
            )
        keep(self, properties=mapping, warehouse=optional(text))
        if isinstance(self.catalog, str):
            object.__setattr__(self, "catalog", catalog_from_uri(self.catalog))
        keep(self, catalog=optional(of_type(CatalogConfig, "RestCatalog(…), SqlCatalog(…), …")))
        if self.catalog in (None, SqlCatalog()):
            object.__setattr__(self, "catalog", _beside(self.storage))
        object.__setattr__(self, "namespace", _namespace(self.namespace, self._catalog))
        if self.table is None:
            raise ConfigError("table is missing", hint='table="events"')
        _check_name("table", self.table)
        _check_name("branch", self.branch)

    @property
    def identifier(self) -> tuple[str, ...]:
        """Namespace and table, as pyiceberg takes them."""
        return (*(self.namespace or ()), self.table)

    @property
    def name(self) -> str:
        """Namespace and table, dotted, for messages."""
        return ".".join(self.identifier)

    @property
    def address(self) -> str:
        """The catalog's address without secrets, for messages."""
        return self._catalog.address

    @property
    def file(self) -> str | None:
        """The path of the catalog's file; None if it has none."""
        return self._catalog.file

    @property
    def _catalog(self) -> CatalogConfig:
        assert isinstance(self.catalog, CatalogConfig)
        return self.catalog

    def to_properties(self) -> dict[str, Any]:
        """The properties for pyiceberg's ``load_catalog``. They hold the secrets: never show them."""
        return {**self._catalog.to_properties(self.storage, self.warehouse), **self.properties}

    def with_branch(self, branch: str) -> TableRef:
        """The same table, on this branch."""
        return replace(self, branch=branch)

    def beside(self, name: str) -> TableRef:
        """Another table of the same catalog and storage.

        Args:
            name: ``"table"``, in the same namespace, or ``"namespace.table"``.
        """
        *namespace, table = name.split(".")
        return replace(self, namespace=namespace or self.namespace, table=table, branch="main")

    def load_catalog(self) -> Catalog:
        """Open the catalog.

        Raises:
            CatalogUnreachableError: If it does not answer.
            CatalogAuthError: If it refuses the credentials, or they lack a privilege.
            MissingDependencyError: If a package it needs is not installed.
            StorageError: If the file of a SQLite catalog can't be made.

        Example:
            >>> from volley.iceberg import IcebergStorage, TableRef
            >>> TableRef("db", "events", IcebergStorage.Local("/tmp/lake"), "memory").load_catalog().list_namespaces()
            []
        """
        self.storage.check_installed()
        with self.errors():
            return self._catalog.open(self.to_properties())

    def load(self) -> Table:
        """Load the table as it is now, as pyiceberg's.

        Raises:
            TableNotFoundError: If there is no such table.
            CatalogError: If the catalog can't be reached or refuses.
            StorageError: If the table's metadata can't be read.
        """
        catalog = self.load_catalog()
        with self.errors():
            return catalog.load_table(self.identifier)

    def errors(self) -> AbstractContextManager[None]:
        """Translate exceptions of pyiceberg and the clients below it into VolleyErrors that name this table.

        A conflict (pyiceberg's ``CommitFailedException``) passes as it is, for the committer to handle.
        """
        return catalog_errors(self._catalog, self.storage, self.name, self.to_properties())

    __repr__ = redacted_repr


def _beside(storage: IcebergStorage) -> CatalogConfig:
    if not isinstance(storage, LocalStorage):
        raise ConfigError(
            "catalog_uri is missing", hint='"http://…" for a REST catalog; only local storage has one of its own'
        )
    return SqlCatalog(f"sqlite:///{storage.folder}/catalog.db")


def _namespace(given: str | Sequence[str] | None, catalog: CatalogConfig) -> tuple[str, ...]:
    database = catalog.database if isinstance(catalog, GlueCatalog) else None
    namespace = (database or ()) if given is None else given
    parts = tuple(namespace.split(".")) if isinstance(namespace, str) else names("namespace", namespace)
    if not parts:
        raise ConfigError("namespace is missing", hint='namespace=["db"], or "db.schema"')
    for part in parts:
        _check_name("namespace", part)
    if database and parts != (database,):
        raise ConfigError(f"namespace {'.'.join(parts)!r} is not Glue's database {database!r}", hint="give one of them")
    return parts


def _check_name(what: str, name: object) -> None:
    # Catalogs make folders of these names, and URLs of the folders.
    if not isinstance(name, str) or not re.fullmatch(r"[^./\\?#%\x00-\x1f]+", name) or name != name.strip():
        raise ConfigError(
            f"{what} {name!r} is not a name",
            hint="one word or more, without . / \\ ? # %; a nested namespace is a list, or one dotted string",
        )
