"""Catalogs as plain values: REST, SQL, memory, Glue, Hive and Nessie."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import quote

from volley.checks import Duration, keep, mapping, optional, seconds, secret, text
from volley.errors import ConfigError, brief_methods
from volley.iceberg.catalogs.capabilities import FEATURES, Capabilities
from volley.iceberg.catalogs.config import CatalogConfig, check_port, check_uri
from volley.iceberg.storage.values import IcebergStorage, check_secret
from volley.secrets import redact_uri

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog


__all__ = [
    "GlueCatalog",
    "HiveCatalog",
    "MemoryCatalog",
    "NessieCatalog",
    "RestCatalog",
    "SqlCatalog",
    "catalog_from_uri",
    "without_nones",
]

CATALOG_NAME = "volley"
"""SQL catalogs store their name in every row: other clients must use the same name,
``pyiceberg.catalog.sql.SqlCatalog("volley", uri="sqlite:////lake/catalog.db")``."""

_CONNECT_SECONDS = 5.0
_SQLITE_SECONDS = 30


def _timeouts(setting: Duration) -> tuple[float, float]:
    """Return the timeouts of a connection and of a response, in seconds."""
    timeout = seconds("timeout", setting)
    return min(_CONNECT_SECONDS, timeout), timeout


def without_nones(**values: Any) -> dict[str, Any]:
    """Return the settings that are not None."""
    return {name: value for name, value in values.items() if value is not None}


@brief_methods
@dataclass(frozen=True, repr=False)
class RestCatalog(CatalogConfig):
    """A catalog with Iceberg's REST protocol: Polaris, Lakekeeper, Gravitino, …

    Args:
        uri: The catalog's URL, without ``/v1`` at the end.
        warehouse: The catalog's name for the warehouse.
        credential: OAuth2 client credentials, ``"id:secret"``.
        token: A bearer token, in place of `credential`.
        properties: Further properties for pyiceberg: ``header.…``, ``ssl``, ``auth``, ``audience``, …
        timeout: The timeout of a response: seconds, a timedelta or a text such as ``"30s"``. The timeout of a
            connection is the same, but at most 5 seconds.
        oauth2_server_uri: The URL at which an authorization server gives tokens for `credential`; None = that of the
            catalog itself.
        scope: The scope of these tokens; None = ``catalog``, as Iceberg's protocol has it.

    Raises:
        ConfigError: If a setting is wrong.

    Example:
        >>> RestCatalog("http://polaris:8181/api/catalog", warehouse="lake", credential="id:hush")
        RestCatalog(uri='http://polaris:8181/api/catalog', warehouse='lake', credential='***')
    """

    # Any server may stand behind it.
    capabilities: ClassVar[Capabilities] = Capabilities(**dict.fromkeys(FEATURES))

    uri: str
    warehouse: str | None = None
    credential: str | None = None
    token: str | None = None
    properties: Mapping[str, Any] = field(default_factory=dict, hash=False)
    timeout: Duration = 30.0
    oauth2_server_uri: str | None = field(default=None, kw_only=True)
    scope: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        for uri in (self._given_uri, *([] if self.oauth2_server_uri is None else [self.oauth2_server_uri])):
            check_uri(uri, "http://", "https://")
        keep(self, warehouse=optional(text), credential=optional(secret), token=optional(secret), properties=mapping)
        keep(self, timeout=seconds, scope=optional(text))
        check_secret("token", self.token)
        if self.credential is not None and not all(self.credential.partition(":")):
            raise ConfigError("credential is not of the form 'id:secret'", hint="a bearer token is given by with_token")
        if self.credential is not None and self.credential != self.credential.strip():
            raise ConfigError("credential begins or ends with a space or a line end", hint="strip() it")
        if self.credential is not None and self.token is not None:
            raise ConfigError("credential and token are both given", hint="pyiceberg uses one of them: leave one out")

    @property
    def address(self) -> str:
        return redact_uri(self._endpoint)

    def to_properties(self, storage: IcebergStorage, warehouse: str | None = None) -> dict[str, Any]:
        named = {"uri": self._endpoint, **without_nones(warehouse=warehouse or self.warehouse)}
        return {"type": "rest", **storage.properties(), **named, **self.sign_in_properties(storage), **self.properties}

    @property
    def _given_uri(self) -> str:
        """The address, as it was given."""
        return self.uri

    @property
    def _endpoint(self) -> str:
        """The address that pyiceberg takes, to which it appends ``/v1``."""
        return self.uri

    @property
    def _default_server(self) -> str:
        """The address that gives tokens, if none is set: pyiceberg's default, without the warning that it logs."""
        return f"{self._endpoint.rstrip('/')}/v1/oauth/tokens"

    def sign_in_properties(self, storage: IcebergStorage) -> dict[str, Any]:
        """Return pyiceberg's properties that sign in to the catalog. They contain secrets: never print or log them.

        Args:
            storage: The storage of the tables' files, whose keys some catalogs take too.
        """
        if not self.credential and not self.token:
            return {}
        server = {"oauth2-server-uri": self.oauth2_server_uri or self._default_server}
        return without_nones(credential=self.credential, token=self.token, scope=self.scope, **server)

    def open(self, properties: dict[str, Any]) -> Catalog:
        from volley.iceberg.pyiceberg_private.rest import TimeoutRestCatalog

        return TimeoutRestCatalog(CATALOG_NAME, _timeouts(self.timeout), **_without_type(properties))


@brief_methods
@dataclass(frozen=True, repr=False)
class NessieCatalog(RestCatalog):
    """Nessie, through its Iceberg REST service.

    Nessie has branches and tags of the whole catalog, and shows the last snapshot of a table only: a table has no
    branches, tags and history of its own.

    Args:
        uri: The service's URL, up to ``/iceberg``. The other settings are those of `RestCatalog`.
        branch: The branch in Nessie.

    Raises:
        ConfigError: If a setting is wrong.

    Example:
        >>> NessieCatalog("http://nessie:19120/iceberg", branch="dev").address
        'http://nessie:19120/iceberg/dev'
    """

    title: ClassVar[str] = "Nessie"
    capabilities: ClassVar[Capabilities] = Capabilities(
        branches=False, history=False, expiry=False, format_3=False, transactions=True
    )

    branch: str = "main"

    def __post_init__(self) -> None:
        super().__post_init__()
        keep(self, branch=text)

    @property
    def _endpoint(self) -> str:
        return f"{self.uri.rstrip('/')}/{quote(self.branch, safe='')}"

    def open(self, properties: dict[str, Any]) -> Catalog:
        from volley.iceberg.pyiceberg_private.nessie import TimeoutNessieCatalog

        return TimeoutNessieCatalog(CATALOG_NAME, _timeouts(self.timeout), **_without_type(properties))


@brief_methods
@dataclass(frozen=True, repr=False)
class SqlCatalog(CatalogConfig):
    """A catalog in a SQL database. Other clients open it under the name "volley".

    Args:
        uri: SQLAlchemy's URL: ``sqlite:///file`` or ``postgresql+psycopg2://user:password@host/db``.
            None = the SQLite file ``catalog.db`` in local storage.

    Raises:
        ConfigError: If the URI has another scheme, or is a SQLite database without a file.

    Example:
        >>> SqlCatalog("postgresql://volley:hush@db/catalog").address
        'postgresql://volley:***@db/catalog'
    """

    extra: ClassVar[str | None] = "postgres"
    title: ClassVar[str] = "a SQL catalog"

    uri: str | None = None

    def __post_init__(self) -> None:
        if self.uri is None:
            return
        if not isinstance(self.uri, str) or not self.uri.startswith("sqlite:///"):
            check_uri(self.uri, "sqlite:///", "postgresql://", "postgresql+")
            check_port(self.uri)
        elif self.file in (None, ":memory:"):
            raise ConfigError(
                f"catalog uri {self.uri!r} names no file", hint='"sqlite:////folder/file", or MemoryCatalog()'
            )

    @property
    def address(self) -> str:
        return redact_uri(self.uri or "sqlite")

    @property
    def file(self) -> str | None:
        head, _, rest = (self.uri or "").partition(":///")
        return rest.partition("?")[0] or None if head == "sqlite" else None

    def to_properties(self, storage: IcebergStorage, warehouse: str | None = None) -> dict[str, Any]:
        return {
            "type": "sql",
            "uri": self._uri_with_timeout(),
            # Detects a connection that the server has closed before it is used.
            "pool_pre_ping": "true",
            "warehouse": storage.location(warehouse),
            **storage.properties(),
        }

    def _uri_with_timeout(self) -> str:
        uri = str(self.uri)
        if "timeout=" in uri:
            return uri
        if self.file is not None:
            # A second writer waits this long instead of failing at once with "database is locked".
            return f"{uri}{'&' if '?' in uri else '?'}timeout={_SQLITE_SECONDS}"
        if re.match(r"postgresql(\+psycopg2?)?:", uri):
            return f"{uri}{'&' if '?' in uri else '?'}connect_timeout={_CONNECT_SECONDS:.0f}"
        return uri

    def open(self, properties: dict[str, Any]) -> Catalog:
        if self.file is not None:
            from volley.iceberg.pyiceberg_private.sql import prepare_sqlite

            prepare_sqlite(self.file, _SQLITE_SECONDS)
        return _sql_catalog(properties)


@brief_methods
@dataclass(frozen=True, repr=False)
class MemoryCatalog(CatalogConfig):
    """A catalog that lives as long as this process, for tests and for trying out.

    A process has one per warehouse location: every `TableRef` with the same location finds the tables of a job.

    Example:
        >>> MemoryCatalog().address
        'memory'
    """

    title: ClassVar[str] = "a catalog in memory"

    @property
    def address(self) -> str:
        return "memory"

    def to_properties(self, storage: IcebergStorage, warehouse: str | None = None) -> dict[str, Any]:
        return {"type": "in-memory", "warehouse": storage.location(warehouse), **storage.properties()}

    def open(self, properties: dict[str, Any]) -> Catalog:
        # SQLite's memory databases belong to one thread, but a job commits in its own thread: use a file that is
        # deleted with the process.
        with _memory_lock:
            warehouse = properties["warehouse"]
            if warehouse not in _memory_catalogs:
                folder: TemporaryDirectory[str] = TemporaryDirectory(prefix="volley-")
                catalog = _sql_catalog({**properties, "uri": f"sqlite:///{folder.name}/catalog.db"})
                _memory_catalogs[warehouse] = (catalog, folder)
            return _memory_catalogs[warehouse][0]


_memory_catalogs: dict[str, tuple[Catalog, TemporaryDirectory[str]]] = {}
_memory_lock = threading.Lock()


@brief_methods
@dataclass(frozen=True, repr=False)
class GlueCatalog(CatalogConfig):
    """AWS Glue.

    Args:
        region: The AWS region.
        catalog_id: The AWS account's id; None = the account of the credentials.
        profile: A profile of the AWS configuration.
        database: Glue's database; the default namespace of the tables.
        timeout: The timeout of a response: seconds, a timedelta or a text such as ``"30s"``. The timeout of a
            connection is the same, but at most 5 seconds. A failed request is retried twice; set pyiceberg's property
            ``glue.max-retries`` for another number.

    Raises:
        ConfigError: If a setting is wrong.

    Example:
        >>> GlueCatalog("eu-central-1", database="db").address
        'glue:eu-central-1'
    """

    extra: ClassVar[str | None] = "glue"
    title: ClassVar[str] = "AWS Glue"
    capabilities: ClassVar[Capabilities] = Capabilities(nested_namespaces=False, upper_case=False)

    region: str
    catalog_id: str | None = None
    profile: str | None = None
    database: str | None = None
    timeout: Duration = 30.0

    def __post_init__(self) -> None:
        keep(self, region=text, catalog_id=optional(text), profile=optional(text), database=optional(text))
        keep(self, timeout=seconds)

    @property
    def address(self) -> str:
        return f"glue:{self.region}"

    def to_properties(self, storage: IcebergStorage, warehouse: str | None = None) -> dict[str, Any]:
        named = without_nones(
            **{"glue.region": self.region, "glue.id": self.catalog_id, "glue.profile-name": self.profile}
        )
        return {"type": "glue", "warehouse": storage.location(warehouse), **storage.properties(), **named}

    def open(self, properties: dict[str, Any]) -> Catalog:
        from volley.iceberg.pyiceberg_private.glue import TimeoutGlueCatalog

        return TimeoutGlueCatalog(CATALOG_NAME, _timeouts(self.timeout), **_without_type(properties))


@brief_methods
@dataclass(frozen=True, repr=False)
class HiveCatalog(CatalogConfig):
    """A Hive Metastore.

    Args:
        uri: ``thrift://host:port``.
        timeout: The timeout of a connection and of a response: seconds, a timedelta or a text such as ``"30s"``.

    Raises:
        ConfigError: If a setting is wrong.

    Example:
        >>> HiveCatalog("thrift://metastore:9083").address
        'thrift://metastore:9083'
    """

    extra: ClassVar[str | None] = "hive"
    title: ClassVar[str] = "the Hive Metastore"
    capabilities: ClassVar[Capabilities] = Capabilities(nested_namespaces=False, upper_case=False)

    uri: str
    timeout: Duration = 30.0

    def __post_init__(self) -> None:
        check_uri(self.uri, "thrift://")
        keep(self, timeout=seconds)

    @property
    def address(self) -> str:
        return redact_uri(self.uri)

    def to_properties(self, storage: IcebergStorage, warehouse: str | None = None) -> dict[str, Any]:
        return {"type": "hive", "uri": self.uri, "warehouse": storage.location(warehouse), **storage.properties()}

    def open(self, properties: dict[str, Any]) -> Catalog:
        from volley.iceberg.pyiceberg_private.hive import TimeoutHiveCatalog

        return TimeoutHiveCatalog(CATALOG_NAME, seconds("timeout", self.timeout), **_without_type(properties))


def catalog_from_uri(uri: str) -> CatalogConfig:
    """Return the catalog of a URI.

    Raises:
        ConfigError: If its scheme is not http(s), sqlite, postgresql, thrift or memory.

    Example:
        >>> catalog_from_uri("thrift://metastore:9083")
        HiveCatalog(uri='thrift://metastore:9083')
    """
    scheme = uri.partition(":")[0].partition("+")[0] if isinstance(uri, str) else ""
    if scheme in ("http", "https"):
        return RestCatalog(uri)
    if scheme in ("sqlite", "postgresql"):
        return SqlCatalog(uri)
    if scheme == "thrift":
        return HiveCatalog(uri)
    if uri in ("memory", "memory://"):
        return MemoryCatalog()
    raise ConfigError(
        f"catalog uri {redact_uri(str(uri))!r} is of no known kind",
        hint="http(s)://…, sqlite:///…, postgresql://…, thrift://… or memory",
    )


def _without_type(properties: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in properties.items() if key != "type"}


def _sql_catalog(properties: dict[str, Any]) -> Catalog:
    from volley.iceberg.pyiceberg_private.sql import CachedSqlCatalog

    return CachedSqlCatalog(CATALOG_NAME, **_without_type(properties))
