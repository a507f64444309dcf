"""TableRef: an Iceberg table with its catalog and storage."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from volley.checks import keep, mapping, names, of_type, optional, text
from volley.columns.rows import Rows
from volley.contracts.datasets import Dataset
from volley.errors import ConfigError, brief
from volley.iceberg.catalogs.capabilities import Capabilities
from volley.iceberg.catalogs.config import CatalogConfig
from volley.iceberg.catalogs.refusals import PROPERTIES
from volley.iceberg.catalogs.values import GlueCatalog, SqlCatalog, catalog_from_uri
from volley.iceberg.storage.values import IcebergStorage, LocalStorage
from volley.registry import load
from volley.secrets import redacted_html, redacted_repr

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

__all__ = ["TableRef", "check_name", "check_namespace", "named_by"]

_NAME = re.compile(r"[^./\\?#%\x00-\x1f\ud800-\udfff]+")
# The longest name of a folder on a disk, in bytes.
_LONGEST_NAME = 255


@dataclass(frozen=True, repr=False)
class TableRef(Rows):
    """An Iceberg table with its catalog and storage: a frozen value; only its methods connect to the catalog.

    Args:
        namespace: A list of names, or one dotted string; stored as a tuple. None = Glue's database.
        table: The table's name. It has at most 255 bytes in UTF-8, and so has the namespace with its dots.
        storage: The storage of the table's files, an `IcebergStorage`.
        catalog: A catalog value (`RestCatalog`, `SqlCatalog`, …) or a URI: ``http(s)://…`` (REST), ``sqlite:///…`` or
            ``postgresql://…`` (SQL), ``thrift://…`` (Hive), ``memory``. None = a SQLite catalog in local storage.
            Stored as a catalog value.
        warehouse: A REST catalog's name for the warehouse; for other catalogs a folder in the storage, or its URL.
        branch: The branch to read or write.
        properties: Further properties for pyiceberg's catalog and FileIO; they override all other settings.

    Raises:
        ConfigError: If a setting is wrong.

    Example:
        >>> from volley import IcebergStorage, TableRef
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
                "storage is missing" if self.storage is None else f"storage is {self.storage!r}",
                hint="IcebergStorage.S3(…), .Azure(…), .Gcs(…) or .Local(path)",
            )
        keep(self, properties=mapping, warehouse=optional(text))
        if isinstance(self.catalog, str):
            object.__setattr__(self, "catalog", catalog_from_uri(self.catalog))
        keep(self, catalog=optional(of_type(CatalogConfig, "RestCatalog(…), SqlCatalog(…), …")))
        if self.catalog in (None, SqlCatalog()):
            object.__setattr__(self, "catalog", _catalog_in(self.storage))
        object.__setattr__(self, "namespace", _namespace(self.namespace, self._catalog))
        if self.table is None:
            raise ConfigError("table is missing", hint='table="events"')
        check_name("table", self.table)
        if self.capabilities.upper_case is False:
            # Two names of one table would else be two tables to whoever compares names.
            object.__setattr__(self, "table", self.table.lower())
            object.__setattr__(self, "namespace", tuple(part.lower() for part in self.namespace or ()))
        check_name("branch", self.branch)
        if self.branch != "main":
            self.require("branches", f"table {self.name} can't have branch {self.branch!r}")

    @property
    def has_default_catalog(self) -> bool:
        """True if the catalog is the one that a table without a catalog has: a SQLite file in local storage."""
        return isinstance(self.storage, LocalStorage) and self.catalog == _catalog_in(self.storage)

    @property
    def capabilities(self) -> Capabilities:
        """What the catalog can do, as far as its name tells, and as it has shown since this process runs."""
        known = self._catalog.capabilities
        return replace(known, bounds=False) if PROPERTIES.of(self.catalog, self.warehouse) else known

    def require(self, capability: str, purpose: str, hint: str | None = None) -> None:
        """Raise ConfigError if the catalog is known to lack a capability; `Capabilities.require` has the arguments."""
        self.capabilities.require(capability, self._catalog.title, purpose, hint)

    @property
    def identifier(self) -> tuple[str, ...]:
        """The namespace's parts and the table's name, as a tuple."""
        return (*(self.namespace or ()), self.table)

    @property
    def name(self) -> str:
        """Namespace and table, joined by dots."""
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

    @property
    def catalog_title(self) -> str:
        """What kind of catalog it is, in words."""
        return self._catalog.title

    @property
    def group(self) -> object:
        """What is equal for tables of one catalog that one client of it can commit to."""
        return self.catalog, self.warehouse, dict(self.properties)

    def to_properties(self) -> dict[str, Any]:
        """Return the properties for pyiceberg's ``load_catalog``. They contain secrets: never print or log them."""
        return {**self._catalog.to_properties(self.storage, self.warehouse), **self.properties}

    def with_branch(self, branch: str) -> TableRef:
        """Return the same table on another branch."""
        return replace(self, branch=branch)

    def beside(self, name: str) -> TableRef:
        """Return another table of the same catalog and storage, on its branch main.

        Args:
            name: ``"table"``, in the same namespace, or ``"namespace.table"``.
        """
        *namespace, table = name.split(".")
        return replace(self, namespace=namespace or self.namespace, table=table, branch="main")

    def load_catalog(self) -> Catalog:
        """Open the catalog and return it as pyiceberg's ``Catalog``.

        Raises:
            CatalogUnreachableError: If it does not respond.
            CatalogAuthError: If it rejects the credentials, or they lack a privilege.
            MissingDependencyError: If a package that it needs is not installed.
            StorageError: If the file of a SQLite catalog can't be created.

        Example:
            >>> from volley import IcebergStorage, TableRef
            >>> TableRef("db", "events", IcebergStorage.Local("/tmp/lake"), "memory").load_catalog().list_namespaces()
            []
        """
        self.storage.check_installed()
        _quieten(logging.getLogger("pyiceberg"))
        with self.errors():
            return self._catalog.open(self.to_properties())

    def load(self) -> Table:
        """Load the table's current metadata and return it as pyiceberg's ``Table``; retry while it can't be reached.

        Raises:
            TableNotFoundError: If there is no such table.
            CatalogError: If the catalog can't be reached or rejects the request.
            StorageError: If the table's metadata can't be read.
        """
        from volley.iceberg.catalogs.answers import retry_reads

        return retry_reads(self._load)

    def _load(self) -> Table:
        catalog = self.load_catalog()
        with self.errors():
            return catalog.load_table(self.identifier)

    def dataset(self) -> Dataset:
        """Return the table's name for lineage: the folder of its files, as other tools have it, beside its own name.

        Raises like `load`.
        """
        from volley.iceberg.schema.types import arrow_schema, rows_schema
        from volley.types.arrow import canonical_schema, type_name

        table = self.load()
        columns = canonical_schema(arrow_schema(rows_schema(table.schema())))
        fields = tuple((column.name, type_name(column.type)) for column in columns)
        return replace(Dataset.of_path(table.location(), "TABLE"), table=(self.address, self.name), fields=fields)

    def to_arrow(self, limit: int | None = None) -> pa.Table:
        """Return the rows that the table has now, of its branch, as an Arrow table.

        Args:
            limit: The most rows, in any order; None = all.

        Raises:
            ConfigError: If `limit` is not a whole number above 0.
            TableNotFoundError: If there is no such table.
            CatalogError: If the catalog can't be reached or rejects the request.
            SourceError: If a file is gone or damaged.
        """
        table: pa.Table = load("rows", "iceberg")(self, limit)
        return table

    def errors(self, names: str | None = None) -> AbstractContextManager[None]:
        """Return a context that translates exceptions of pyiceberg and its clients into VolleyErrors of this table.

        A conflict (pyiceberg's ``CommitFailedException``) is not translated: the committer handles it.

        Args:
            names: The names of several tables of this catalog, in place of this one's.
        """
        # Waits and retries, which these errors decide on, load a package of their own.
        from volley.iceberg.catalogs.errors import catalog_errors

        return catalog_errors(self._catalog, self.storage, names or self.name, self.to_properties)

    __repr__ = redacted_repr
    _repr_html_ = redacted_html


def _quieten(logger: logging.Logger) -> None:
    """Leave out pyiceberg's lines at INFO about each class that it loads, unless the program has set its level."""
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.WARNING)


def _catalog_in(storage: IcebergStorage) -> CatalogConfig:
    if not isinstance(storage, LocalStorage):
        raise ConfigError(
            "catalog_uri is missing", hint='"http://…" for a REST catalog; only local storage has one of its own'
        )
    return SqlCatalog(f"sqlite:///{storage.folder}/catalog.db")


@brief
def _namespace(namespace: str | Sequence[str] | None, catalog: CatalogConfig) -> tuple[str, ...]:
    database = catalog.database if isinstance(catalog, GlueCatalog) else None
    namespace = (database or ()) if namespace is None else namespace
    parts = tuple(namespace.split(".")) if isinstance(namespace, str) else names("namespace", namespace)
    if not parts:
        raise ConfigError("namespace is missing", hint='namespace=["db"], or "db.schema"')
    check_namespace(parts)
    if len(parts) > 1:
        needed = f"namespace {'.'.join(parts)!r} has {len(parts)} levels"
        catalog.capabilities.require("nested_namespaces", catalog.title, needed)
    if database and parts != (database,):
        raise ConfigError(f"namespace {'.'.join(parts)!r} is not Glue's database {database!r}", hint="give one of them")
    return parts


def named_by(settings: Any) -> TableRef:
    """Return the table that settings of a sink or a source name; its branch is main.

    Raises:
        ConfigError: If one of these settings is wrong, or both `catalog` and `catalog_uri` are given.
    """
    if settings.catalog is not None and settings.catalog_uri is not None:
        raise ConfigError("catalog and catalog_uri are both given", hint="give one of them")
    return TableRef(
        settings.namespace,
        settings.table,
        settings.storage,
        settings.catalog if settings.catalog_uri is None else settings.catalog_uri,
        settings.warehouse,
        properties=settings.properties,
    )


def check_name(what: str, name: object) -> None:
    """Raise ConfigError unless `name` can be a name of a table, namespace, branch or tag."""
    # Catalogs use the names in folders and URLs; half a surrogate pair has no bytes in UTF-8.
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name != name.strip():
        raise ConfigError(
            f"{what} {name!r} is not a name",
            hint="one word or more, without . / \\ ? # %; a nested namespace is a list, or one dotted string",
        )
    _check_length(what, name)


def check_namespace(parts: Sequence[str]) -> None:
    """Raise ConfigError unless names can be the parts of a namespace."""
    for part in parts:
        check_name("namespace", part)
    # Catalogs that keep nested namespaces in one folder join the parts.
    _check_length("namespace", ".".join(parts))


def _check_length(what: str, name: str) -> None:
    size = len(name.encode())
    if size > _LONGEST_NAME:
        raise ConfigError(
            f"{what} {name[:40] + '…'!r} is too long: {size} bytes in UTF-8",
            hint=f"at most {_LONGEST_NAME} bytes, as a folder's name has",
        )
