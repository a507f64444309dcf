"""Which catalog knows the table: values for REST, SQL, memory, Glue, Hive and Nessie, and how they are opened."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from volley._secrets import mask_uri, show
from volley.errors import (
    CatalogAuthError,
    CatalogError,
    CatalogUnreachableError,
    ConfigError,
    MissingDependencyError,
    TableNotFoundError,
    VolleyError,
)
from volley.iceberg.storage import LocalStorage, storage_errors

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from volley.iceberg.config import IcebergSinkConfig

__all__ = [
    "CATALOG_NAME",
    "CatalogConfig",
    "GlueCatalog",
    "HiveCatalog",
    "MemoryCatalog",
    "NessieCatalog",
    "RestCatalog",
    "SqlCatalog",
    "catalog_errors",
    "catalog_of",
    "load_catalog",
]

CATALOG_NAME = "volley"
"""SQL catalogs keep their name in each row: other clients have to open them under this one."""


class CatalogConfig(Protocol):
    """A catalog as a value."""

    @property
    def address(self) -> str:
        """Where it is, for messages: no secrets."""

    def properties(self) -> dict[str, str]:
        """What pyiceberg is told."""


@dataclass(frozen=True, repr=False)
class RestCatalog:
    """A catalog that speaks Iceberg's REST protocol: Polaris, Lakekeeper, Gravitino, Tabular, …

    Args:
        uri: Its URL.
        timeout: The longest that one request may take, in seconds.
    """

    uri: str
    timeout: float = 30.0

    def __post_init__(self) -> None:
        if not self.uri.startswith(("http://", "https://")):
            raise ConfigError(f"REST catalog URI {self.uri!r} is no URL", hint="http://host:port or https://…")
        if self.timeout <= 0:
            raise ConfigError(f"timeout is {self.timeout} seconds", hint="above 0")

    @property
    def address(self) -> str:
        return mask_uri(self.uri)

    def properties(self) -> dict[str, str]:
        return {"type": "rest", "uri": self.uri}

    __repr__ = show


@dataclass(frozen=True, repr=False)
class SqlCatalog:
    """A catalog in a SQL database.

    Args:
        uri: SQLAlchemy's URL: ``sqlite:///file`` or ``postgresql+psycopg2://user:password@host/db``.
    """

    uri: str

    @property
    def address(self) -> str:
        return mask_uri(self.uri)

    def properties(self) -> dict[str, str]:
        if not self.uri.startswith("sqlite"):
            return {"type": "sql", "uri": self.uri}
        # Writers wait for each other this many seconds in place of failing at once.
        joint = "&" if "?" in self.uri else "?"
        return {"type": "sql", "uri": f"{self.uri}{joint}timeout=30"}

    @property
    def sqlite_file(self) -> str | None:
        """The file of a SQLite database."""
        path = self.uri.removeprefix("sqlite:///").partition("?")[0]
        return path if self.uri.startswith("sqlite:///") and path and path != ":memory:" else None

    __repr__ = show


@dataclass(frozen=True)
class MemoryCatalog:
    """A catalog in this process' memory, for tests and trying out: equal values share one catalog.

    Args:
        name: What tells it from others.
    """

    name: str = "memory"

    @property
    def address(self) -> str:
        return f"memory://{self.name}"

    def properties(self) -> dict[str, str]:
        return {"type": "in-memory"}


@dataclass(frozen=True)
class GlueCatalog:
    """AWS Glue.

    Args:
        region: AWS' region.
        catalog_id: The account's id; None = the credentials' own.
        profile: A profile of the AWS configuration.
    """

    region: str
    catalog_id: str | None = None
    profile: str | None = None

    @property
    def address(self) -> str:
        return f"glue:{self.region}"

    def properties(self) -> dict[str, str]:
        named = {"glue.id": self.catalog_id, "glue.profile-name": self.profile}
        given = {key: value for key, value in named.items() if value is not None}
        return {"type": "glue", "glue.region": self.region, **given}


@dataclass(frozen=True)
class HiveCatalog:
    """A Hive Metastore.

    Args:
        uri: ``thrift://host:port``.
    """

    uri: str

    @property
    def address(self) -> str:
        return self.uri

    def properties(self) -> dict[str, str]:
        return {"type": "hive", "uri": self.uri}


@dataclass(frozen=True)
class NessieCatalog:
    """Nessie, by its Iceberg REST service.

    Args:
        uri: Its URL, up to ``/iceberg``.
        branch: Nessie's branch.
    """

    uri: str
    branch: str = "main"

    @property
    def address(self) -> str:
        return f"{self.uri.rstrip('/')}/{self.branch}"

    def properties(self) -> dict[str, str]:
        return {"type": "rest", "uri": self.address}


def catalog_of(uri: str | None, catalog: CatalogConfig | None, storage: Any) -> CatalogConfig:
    """The catalog that a URI or a value names; without both, a SQLite file beside local storage."""
    if catalog is not None:
        return catalog
    if uri is None:
        if isinstance(storage, LocalStorage):
            return SqlCatalog(f"sqlite:///{storage.folder}/catalog.db")
        raise ConfigError("catalog_uri is missing", hint="only local storage has a catalog of its own")
    scheme = uri.partition(":")[0].partition("+")[0]
    match scheme:
        case "http" | "https":
            return RestCatalog(uri)
        case "sqlite" | "postgresql":
            return SqlCatalog(uri)
        case "thrift":
            return HiveCatalog(uri)
        case "memory":
            return MemoryCatalog(uri.partition("://")[2] or "memory")
    raise ConfigError(
        f"catalog_uri {mask_uri(uri)!r} is of no known kind",
        hint="http(s)://, sqlite:///, postgresql://, thrift:// or memory://",
    )


def load_catalog(config: IcebergSinkConfig) -> Catalog:
    """Open the catalog that a config names.

    Raises:
        CatalogUnreachableError: If it does not answer.
        CatalogAuthError: If it refuses.
        MissingDependencyError: If a package it needs is not installed.
        StorageError: If a SQLite catalog's file can't be made.
    """
    if config.storage is not None:
        config.storage.check()
    if isinstance(config.catalog, MemoryCatalog):
        return _shared(config)
    if isinstance(config.catalog, SqlCatalog) and config.catalog.sqlite_file:
        _prepare_sqlite(config.catalog.sqlite_file)
    with catalog_errors(config):
        return _open(config)


_memory_catalogs: dict[tuple[Any, ...], Catalog] = {}
_memory_lock = threading.Lock()


def _shared(config: IcebergSinkConfig) -> Catalog:
    key = (config.catalog, config.warehouse, repr(config.storage))
    with _memory_lock:
        if key not in _memory_catalogs:
            _memory_catalogs[key] = _open(config)
        return _memory_catalogs[key]


def _open(config: IcebergSinkConfig) -> Catalog:
    from pyiceberg.catalog import load_catalog as open_catalog
    from pyiceberg.exceptions import NotInstalledError

    try:
        if isinstance(config.catalog, RestCatalog):
            return _rest(config.catalog.timeout, _properties(config))
        return open_catalog(CATALOG_NAME, **_properties(config))
    except (ImportError, NotInstalledError) as error:
        extra = {GlueCatalog: "glue", HiveCatalog: "hive"}.get(type(config.catalog), "all")
        raise MissingDependencyError(
            f"a package for {type(config.catalog).__name__} is not installed: {error}",
            hint=f'pip install "volley-stream[{extra}]"',
        ) from error


def _properties(config: IcebergSinkConfig) -> dict[str, str]:
    storage = config.storage.properties() if config.storage else {}
    warehouse = config.warehouse or (config.storage.location if config.storage else None)
    named = {"warehouse": warehouse, "credential": config.credential, "token": config.token}
    given = {key: value for key, value in named.items() if value is not None}
    return {**storage, **config.source.properties(), **given, **config.properties}


def _prepare_sqlite(file: str) -> None:
    """Make the folder, and let readers and one writer work side by side."""
    import sqlite3
    from pathlib import Path

    with storage_errors(file, "making the catalog"):
        try:
            Path(file).parent.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(file, timeout=30)
            try:
                connection.execute("pragma journal_mode=wal")
            finally:
                connection.close()
        except sqlite3.Error as error:
            raise OSError(f"{error}") from error


def _rest(seconds: float, properties: dict[str, str]) -> Catalog:
    """A REST catalog whose requests end in time: pyiceberg's own wait for ever on a server that hangs."""
    from pyiceberg.catalog.rest import RestCatalog as PyIcebergRestCatalog
    from requests import Session
    from requests.adapters import HTTPAdapter

    class TimeLimited(HTTPAdapter):
        def send(self, request: Any, *args: Any, **kwargs: Any) -> Any:
            kwargs["timeout"] = kwargs.get("timeout") or seconds
            return super().send(request, *args, **kwargs)

    class TimeLimitedRestCatalog(PyIcebergRestCatalog):
        def _create_session(self) -> Session:
            session = super()._create_session()
            for scheme in ("http://", "https://"):
                session.mount(scheme, TimeLimited())
            return session

    return TimeLimitedRestCatalog(CATALOG_NAME, **properties)


@contextmanager
def catalog_errors(config: IcebergSinkConfig) -> Iterator[None]:
    """Turn what pyiceberg and its clients raise into our errors; conflicts pass as they are.

    Raises:
        CatalogError: One of its kinds, naming the catalog.
    """
    try:
        yield
    except VolleyError:
        raise
    except Exception as error:
        made = _translated(error, config)
        if made is None:
            raise
        raise made from error


def _translated(error: Exception, config: IcebergSinkConfig) -> VolleyError | None:
    from pyiceberg import exceptions as theirs
    from requests import exceptions as http
    from sqlalchemy import exc as sql

    address, text = config.source.address, mask_uri(str(error))
    if isinstance(error, (theirs.NoSuchTableError, theirs.NoSuchNamespaceError)):
        return TableNotFoundError(f"table {config.table_name} not found in {address}", hint="check namespace and table")
    if isinstance(error, (theirs.UnauthorizedError, theirs.OAuthError, theirs.AuthorizationExpiredError)):
        return CatalogAuthError(
            f"catalog {address} refused the credentials: {text}", hint='with_credential("id:secret") or with_token(…)'
        )
    if isinstance(error, theirs.ForbiddenError):
        return CatalogAuthError(
            f"catalog {address} forbids it: {text}",
            hint=f"the principal lacks a privilege on {config.table_name}, such as TABLE_WRITE_DATA",
        )
    if isinstance(error, (http.ConnectionError, http.Timeout, ConnectionError, TimeoutError)):
        return CatalogUnreachableError(
            f"catalog {address} does not answer: {text}", hint="check that it runs, its address and the network"
        )
    if isinstance(error, (theirs.RESTError, sql.SQLAlchemyError)) and not isinstance(
        error, theirs.CommitStateUnknownException
    ):
        return CatalogError(f"catalog {address}: {text}", hint="the catalog's own log may say more")
    return None
