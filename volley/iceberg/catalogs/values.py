"""Catalogs as plain values: REST, SQL, memory, Glue, Hive and Nessie."""

from __future__ import annotations

import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import quote

from volley.checks import Duration, keep, mapping, optional, seconds, secret, text
from volley.errors import ConfigError
from volley.iceberg.storage.values import IcebergStorage, check_secret
from volley.secrets import redact_uri, redacted_repr

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog


__all__ = [
    "CATALOG_NAME",
    "CatalogConfig",
    "GlueCatalog",
    "HiveCatalog",
    "MemoryCatalog",
    "NessieCatalog",
    "RestCatalog",
    "SqlCatalog",
    "catalog_from_uri",
]

CATALOG_NAME = "volley"
"""SQL catalogs keep their name in every row: other clients must open them by this one,
``pyiceberg.catalog.sql.SqlCatalog("volley", uri="sqlite:////lake/catalog.db")``."""

_CONNECT_SECONDS = 5.0
_SQLITE_SECONDS = 30


class CatalogConfig(ABC):
    """A catalog as a plain value; nothing is reached before it is opened."""

    extra: ClassVar[str | None] = None
    """The extra of volley-stream that installs its client."""

    @property
    @abstractmethod
    def address(self) -> str:
        """Where it is, for messages: no secrets."""

    @abstractmethod
    def to_properties(self, storage: IcebergStorage, warehouse: str | None = None) -> dict[str, Any]:
        """What pyiceberg's ``load_catalog`` is told; holds the secrets, so it must never be shown.

        Args:
            storage: Where the tables' files live.
            warehouse: The sink's setting of that name.
        """

    @property
    def file(self) -> str | None:
        """The file it is, if it is one."""
        return None

    @abstractmethod
    def open(self, properties: dict[str, Any]) -> Catalog:
        """Open pyiceberg's catalog with these properties."""

    __repr__ = redacted_repr


def _check_uri(uri: object, *schemes: str) -> None:
    if not isinstance(uri, str) or not uri.startswith(schemes):
        shown = redact_uri(uri) if isinstance(uri, str) else uri
        raise ConfigError(f"catalog uri {shown!r} is not valid", hint=f"it begins with {' or '.join(schemes)}")
    # Not shown: where such a URI's password ends is anybody's guess, and each client guesses for itself.
    if re.search(r"\s", uri) or uri.partition("?")[0].count("@") > 1:
        scheme = uri.partition(":")[0]
        raise ConfigError(
            f"catalog uri {scheme}://… has a space or a second @",
            hint="escape what stands in user and password: urllib.parse.quote(password, safe='')",
        )


def _check_port(uri: str) -> None:
    # Behind the last @: an unescaped password may hold anything.
    place = uri.rpartition("@")[2] if "@" in uri else uri.partition("://")[2]
    port = re.match(r"[^/?\[\]:]*:([^/?]*)", place)
    if port and not port[1].isdigit():
        raise ConfigError(
            f"catalog uri {redact_uri(uri)!r} has a port that is no number",
            hint="postgresql://user:password@host:5432/db",
        )


def _limits(timeout: float) -> tuple[float, float]:
    """The longest to wait for a connection, and for an answer."""
    return min(_CONNECT_SECONDS, timeout), timeout


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True, repr=False)
class RestCatalog(CatalogConfig):
    """A catalog that speaks Iceberg's REST protocol: Polaris, Lakekeeper, Gravitino, Tabular, …

    Args:
        uri: Its URL, up to and without ``/v1``.
        warehouse: Its name for the warehouse.
        credential: OAuth2 client credentials, ``"id:secret"``.
        token: A bearer token, in place of `credential`.
        properties: Anything more for pyiceberg: ``oauth2-server-uri``, ``scope``, ``header.…``, …
        timeout: The longest to wait for an answer: seconds, a timedelta or a text such as ``"30s"``; for a connection
            it is 5 seconds at most.

    Raises:
        ConfigError: If a setting is wrong.

    Example:
        >>> RestCatalog("http://polaris:8181/api/catalog", warehouse="lake", credential="id:hush")
        RestCatalog(uri='http://polaris:8181/api/catalog', warehouse='lake', credential='***')
    """

    uri: str
    warehouse: str | None = None
    credential: str | None = None
    token: str | None = None
    properties: Mapping[str, Any] = field(default_factory=dict, hash=False)
    timeout: Duration = 30.0

    def __post_init__(self) -> None:
        _check_uri(self.uri, "http://", "https://")
        keep(self, warehouse=optional(text), credential=optional(secret), token=optional(secret), properties=mapping)
        keep(self, timeout=seconds)
        check_secret("token", self.token)
        if self.credential is not None and not all(self.credential.partition(":")):
            raise ConfigError("credential is not of the form 'id:secret'", hint="a bearer token is given by with_token")
        if self.credential is not None and self.credential != self.credential.strip():
            raise ConfigError("credential begins or ends with a space or a line end", hint="strip() it")
        if self.credential is not None and self.token is not None:
            raise ConfigError("credential and token are both given", hint="pyiceberg uses one of them: leave one out")

    @property
    def address(self) -> str:
        return redact_uri(self.uri)

    def to_properties(self, storage: IcebergStorage, warehouse: str | None = None) -> dict[str, Any]:
        named = _given(warehouse=warehouse or self.warehouse, credential=self.credential, token=self.token)
        if self.credential or self.token:
            # pyiceberg's own default, which it warns of when it is left to it.
            named["oauth2-server-uri"] = f"{self._endpoint.rstrip('/')}/v1/oauth/tokens"
        return {"type": "rest", "uri": self._endpoint, **storage.properties(), **named, **self.properties}

    @property
    def _endpoint(self) -> str:
        return self.uri

    def open(self, properties: dict[str, Any]) -> Catalog:
        from volley.iceberg.pyiceberg_private.rest import LimitedRestCatalog

        return LimitedRestCatalog(CATALOG_NAME, _limits(seconds("timeout", self.timeout)), **_untyped(properties))


@dataclass(frozen=True, repr=False)
class NessieCatalog(RestCatalog):
    """Nessie, by its Iceberg REST service.

    Args:
        uri: The service's URL, up to ``/iceberg``; the other settings are those of `RestCatalog`.
        branch: Nessie's branch.

    Example:
        >>> NessieCatalog("http://nessie:19120/iceberg", branch="dev").address
        'http://nessie:19120/iceberg/dev'
    """

    branch: str = "main"

    def __post_init__(self) -> None:
        super().__post_init__()
        keep(self, branch=text)

    @property
    def address(self) -> str:
        return redact_uri(self._endpoint)

    @property
    def _endpoint(self) -> str:
        return f"{self.uri.rstrip('/')}/{quote(self.branch, safe='')}"

    def open(self, properties: dict[str, Any]) -> Catalog:
        from volley.iceberg.pyiceberg_private.nessie import LimitedNessieCatalog

        return LimitedNessieCatalog(CATALOG_NAME, _limits(seconds("timeout", self.timeout)), **_untyped(properties))


@dataclass(frozen=True, repr=False)
class SqlCatalog(CatalogConfig):
    """A catalog in a SQL database; its rows carry the name `CATALOG_NAME`.

    Args:
        uri: SQLAlchemy's URL, ``sqlite:///file`` or ``postgresql+psycopg2://user:password@host/db``;
            None = the SQLite file ``catalog.db`` in local storage.

    Raises:
        ConfigError: If the URI is of another kind, or of a SQLite database without a file.
    """

    extra: ClassVar[str | None] = "postgres"

    uri: str | None = None

    def __post_init__(self) -> None:
        if self.uri is None:
            return
        _check_uri(self.uri, "sqlite:///", "postgresql://", "postgresql+")
        _check_port(self.uri)
        if self.uri.startswith("sqlite") and self.file in (None, ":memory:"):
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
            "uri": self._limited_uri(),
            # A connection that the server has closed meanwhile is found out before it is used.
            "pool_pre_ping": "true",
            "warehouse": storage.location(warehouse),
            **storage.properties(),
        }

    def _limited_uri(self) -> str:
        uri = str(self.uri)
        if "timeout=" in uri:
            return uri
        if self.file is not None:
            # A second writer waits this long, in place of failing at once with "database is locked".
            return f"{uri}{'&' if '?' in uri else '?'}timeout={_SQLITE_SECONDS}"
        if re.match(r"postgresql(\+psycopg2?)?:", uri):
            return f"{uri}{'&' if '?' in uri else '?'}connect_timeout={_CONNECT_SECONDS:.0f}"
        return uri

    def open(self, properties: dict[str, Any]) -> Catalog:
        if self.file is not None:
            from volley.iceberg.pyiceberg_private.sql import prepare_sqlite

            prepare_sqlite(self.file, _SQLITE_SECONDS)
        return _sql_catalog(properties)


@dataclass(frozen=True, repr=False)
class MemoryCatalog(CatalogConfig):
    """A catalog that ends with this process, for tests and for trying out.

    Within one process there is one per warehouse location: a table written by a job is there for every
    `TableRef` with the same location.
    """

    @property
    def address(self) -> str:
        return "memory"

    def to_properties(self, storage: IcebergStorage, warehouse: str | None = None) -> dict[str, Any]:
        return {"type": "in-memory", "warehouse": storage.location(warehouse), **storage.properties()}

    def open(self, properties: dict[str, Any]) -> Catalog:
        # SQLite's own memory databases are one per thread, and a job commits on a thread of its own: so a file that
        # goes with the process.
        with _memory_lock:
            warehouse = properties["warehouse"]
            if warehouse not in _memory_catalogs:
                folder: TemporaryDirectory[str] = TemporaryDirectory(prefix="volley-")
                catalog = _sql_catalog({**properties, "uri": f"sqlite:///{folder.name}/catalog.db"})
                _memory_catalogs[warehouse] = (catalog, folder)
            return _memory_catalogs[warehouse][0]


_memory_catalogs: dict[str, tuple[Catalog, TemporaryDirectory[str]]] = {}
_memory_lock = threading.Lock()


@dataclass(frozen=True, repr=False)
class GlueCatalog(CatalogConfig):
    """AWS Glue.

    Args:
        region: AWS' region.
        catalog_id: The account's id; None = that of the credentials.
        profile: A profile of the AWS configuration.
        database: Glue's database: the sink's namespace, if that is not given.
        timeout: The longest to wait for an answer: seconds, a timedelta or a text such as ``"30s"``; for a connection
            it is 5 seconds at most. A request
            that fails is sent again twice; ``glue.max-retries`` is pyiceberg's property for that.

    Raises:
        ConfigError: If the timeout is wrong.
    """

    extra: ClassVar[str | None] = "glue"

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
        named = _given(**{"glue.region": self.region, "glue.id": self.catalog_id, "glue.profile-name": self.profile})
        return {"type": "glue", "warehouse": storage.location(warehouse), **storage.properties(), **named}

    def open(self, properties: dict[str, Any]) -> Catalog:
        from volley.iceberg.pyiceberg_private.glue import LimitedGlueCatalog

        return LimitedGlueCatalog(CATALOG_NAME, _limits(seconds("timeout", self.timeout)), **_untyped(properties))


@dataclass(frozen=True, repr=False)
class HiveCatalog(CatalogConfig):
    """A Hive Metastore.

    Args:
        uri: ``thrift://host:port``.
        timeout: The longest to wait for a connection, and for an answer: seconds, a timedelta or a text such as
            ``"30s"``.

    Raises:
        ConfigError: If a setting is wrong.
    """

    extra: ClassVar[str | None] = "hive"

    uri: str
    timeout: Duration = 30.0

    def __post_init__(self) -> None:
        _check_uri(self.uri, "thrift://")
        keep(self, timeout=seconds)

    @property
    def address(self) -> str:
        return redact_uri(self.uri)

    def to_properties(self, storage: IcebergStorage, warehouse: str | None = None) -> dict[str, Any]:
        return {"type": "hive", "uri": self.uri, "warehouse": storage.location(warehouse), **storage.properties()}

    def open(self, properties: dict[str, Any]) -> Catalog:
        from volley.iceberg.pyiceberg_private.hive import LimitedHiveCatalog

        return LimitedHiveCatalog(CATALOG_NAME, seconds("timeout", self.timeout), **_untyped(properties))


def catalog_from_uri(uri: str) -> CatalogConfig:
    """The catalog that a URI means.

    Raises:
        ConfigError: If it is none of http(s), sqlite, postgresql, thrift, memory.

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


def _untyped(properties: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in properties.items() if key != "type"}


def _sql_catalog(properties: dict[str, Any]) -> Catalog:
    from volley.iceberg.pyiceberg_private.sql import ThriftySqlCatalog

    return ThriftySqlCatalog(CATALOG_NAME, **_untyped(properties))
