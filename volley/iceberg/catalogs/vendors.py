"""Catalogs with Iceberg's REST protocol by the names of their makers: address, sign-in, what each refuses."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar
from urllib.parse import urlsplit

from volley.checks import keep, optional, text
from volley.errors import ConfigError, brief_methods
from volley.iceberg.catalogs.capabilities import Capabilities
from volley.iceberg.catalogs.values import RestCatalog, without_nones
from volley.iceberg.storage.values import IcebergStorage

__all__ = [
    "GravitinoCatalog",
    "LakekeeperCatalog",
    "PolarisCatalog",
    "SnowflakeOpenCatalog",
    "UnityCatalog",
]

_ROLES = "PRINCIPAL_ROLE:ALL"
# Of an Iceberg REST server that keeps metadata as Iceberg's own library does; what differs between releases is asked.
_ICEBERG = Capabilities(format_3=None, bounds=None, transactions=True)


def _with_path(uri: str, ending: str) -> str:
    """Return the URI with this path, if it has none."""
    return uri if urlsplit(uri).path.strip("/") else f"{uri.rstrip('/')}{ending}"


def _need_server(catalog: RestCatalog) -> None:
    """Raise ConfigError if client credentials are given, and no address that gives tokens for them."""
    if catalog.credential is not None and catalog.oauth2_server_uri is None:
        raise ConfigError(
            f"oauth2_server_uri is missing: {catalog.title} gives no tokens itself",
            hint="the token endpoint of its authorization server, as "
            'oauth2_server_uri="https://keycloak/realms/lake/protocol/openid-connect/token"',
        )


@brief_methods
@dataclass(frozen=True, repr=False)
class PolarisCatalog(RestCatalog):
    """Apache Polaris.

    Args:
        uri: The server's URL; without a path, ``/api/catalog`` is added.
        warehouse: The name of the catalog in Polaris. The settings that follow are those of `RestCatalog`.
        scope: The roles that the tokens have: all that the principal has, or one as in ``PRINCIPAL_ROLE:writer``.
        realm: The realm, for a server that has several.

    Raises:
        ConfigError: If a setting is wrong.

    Example:
        >>> PolarisCatalog("http://polaris:8181", "lake", credential="id:hush").address
        'http://polaris:8181/api/catalog'
    """

    title: ClassVar[str] = "Polaris"
    capabilities: ClassVar[Capabilities] = _ICEBERG

    # Without field() the default would be that of RestCatalog.
    warehouse: str = field()
    scope: str = field(default=_ROLES, kw_only=True)
    realm: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        keep(self, warehouse=text, scope=text, realm=optional(text))

    @property
    def _endpoint(self) -> str:
        return _with_path(self.uri, "/api/catalog")

    def sign_in_properties(self, storage: IcebergStorage) -> dict[str, Any]:
        return {**super().sign_in_properties(storage), **without_nones(**{"header.Polaris-Realm": self.realm})}


@brief_methods
@dataclass(frozen=True, repr=False)
class SnowflakeOpenCatalog(RestCatalog):
    """Snowflake Open Catalog, which is Polaris as a service of Snowflake.

    Args:
        uri: The account's URL; without a path, ``/polaris/api/catalog`` is added.
        warehouse: The name of the catalog. The settings that follow are those of `RestCatalog`.
        scope: The roles that the tokens have: all that the service connection has, or one as in
            ``PRINCIPAL_ROLE:writer``; ``session:role:…`` for Snowflake Horizon, which has the same path.

    Raises:
        ConfigError: If a setting is wrong.

    Example:
        >>> SnowflakeOpenCatalog("https://org-lake.snowflakecomputing.com", "lake", credential="id:hush").address
        'https://org-lake.snowflakecomputing.com/polaris/api/catalog'
    """

    title: ClassVar[str] = "Snowflake Open Catalog"
    # Horizon refuses tags, upgrades of the format and commits of several tables, which Open Catalog takes.
    capabilities: ClassVar[Capabilities] = replace(_ICEBERG, branches=None, transactions=None)

    warehouse: str = field()
    scope: str = field(default=_ROLES, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        keep(self, warehouse=text, scope=text)

    @property
    def _endpoint(self) -> str:
        return _with_path(self.uri, "/polaris/api/catalog")


@brief_methods
@dataclass(frozen=True, repr=False)
class GravitinoCatalog(RestCatalog):
    """Apache Gravitino's Iceberg REST service.

    Args:
        uri: The service's URL; without a path, ``/iceberg`` is added.
        warehouse: The name of a catalog in Gravitino; None = its default catalog. The settings that follow are those
            of `RestCatalog`.
        credential: OAuth2 client credentials, ``"id:secret"``, of the authorization server at `oauth2_server_uri`.

    Raises:
        ConfigError: If a setting is wrong, or client credentials are given without `oauth2_server_uri`.

    Example:
        >>> GravitinoCatalog("http://gravitino:9001").address
        'http://gravitino:9001/iceberg'
    """

    title: ClassVar[str] = "Gravitino"
    # Names and namespaces are those of the catalog behind it, such as Hive's.
    capabilities: ClassVar[Capabilities] = replace(
        _ICEBERG, nested_namespaces=None, upper_case=None, transactions=False
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        _need_server(self)

    @property
    def _endpoint(self) -> str:
        return _with_path(self.uri, "/iceberg")


@brief_methods
@dataclass(frozen=True, repr=False)
class LakekeeperCatalog(RestCatalog):
    """Lakekeeper.

    Args:
        uri: The server's URL; without a path, ``/catalog`` is added.
        warehouse: The name of the warehouse. The settings that follow are those of `RestCatalog`.
        credential: OAuth2 client credentials, ``"id:secret"``, of the authorization server at `oauth2_server_uri`.
        project: The id of the project that the warehouse is in; None = the server's default project.

    Raises:
        ConfigError: If a setting is wrong, or client credentials are given without `oauth2_server_uri`.

    Example:
        >>> LakekeeperCatalog("http://lakekeeper:8181", "lake").address
        'http://lakekeeper:8181/catalog'
    """

    title: ClassVar[str] = "Lakekeeper"
    capabilities: ClassVar[Capabilities] = replace(_ICEBERG, upper_case=None)

    warehouse: str = field()
    project: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        keep(self, warehouse=text, project=optional(text))
        _need_server(self)

    @property
    def _endpoint(self) -> str:
        return _with_path(self.uri, "/catalog")

    def sign_in_properties(self, storage: IcebergStorage) -> dict[str, Any]:
        return {**super().sign_in_properties(storage), **without_nones(**{"header.x-project-id": self.project})}


@brief_methods
@dataclass(frozen=True, repr=False)
class UnityCatalog(RestCatalog):
    """Unity Catalog: that of Databricks, or the open-source server.

    Args:
        uri: The workspace's URL, or the server's; without a path, that of the Iceberg REST service is added.
        warehouse: The name of the catalog. The settings that follow are those of `RestCatalog`.
        credential: OAuth2 client credentials of a service principal, ``"id:secret"``. Databricks exchanges them at the
            workspace; the open-source server needs `oauth2_server_uri`.
        token: A personal access token, with the scope ``all-apis``, in place of `credential`.
        scope: The scope of the tokens; None = ``all-apis`` for Databricks.

    Raises:
        ConfigError: If a setting is wrong.

    Example:
        >>> UnityCatalog("https://dbc-1.cloud.databricks.com", "main", token="hush").address
        'https://dbc-1.cloud.databricks.com/api/2.1/unity-catalog/iceberg-rest'
        >>> UnityCatalog("http://unity:8080", "main").address
        'http://unity:8080/api/2.1/unity-catalog/iceberg'
    """

    title: ClassVar[str] = "Unity Catalog"
    # What it announces tells the rest: the open-source server takes no commit unless it is set to.
    capabilities: ClassVar[Capabilities] = replace(
        RestCatalog.capabilities, nested_namespaces=False, upper_case=False, transactions=None
    )

    warehouse: str = field()

    def __post_init__(self) -> None:
        super().__post_init__()
        keep(self, warehouse=text)
        if not self._is_databricks:
            _need_server(self)

    @property
    def _is_databricks(self) -> bool:
        return "databricks" in (urlsplit(self.uri).hostname or "")

    @property
    def _endpoint(self) -> str:
        return _with_path(self.uri, f"/api/2.1/unity-catalog/iceberg{'-rest' if self._is_databricks else ''}")

    @property
    def _default_server(self) -> str:
        return f"{self.uri.partition('://')[0]}://{urlsplit(self.uri).netloc}/oidc/v1/token"

    def sign_in_properties(self, storage: IcebergStorage) -> dict[str, Any]:
        default = {"scope": "all-apis"} if self._is_databricks and self.credential else {}
        return {**default, **super().sign_in_properties(storage)}
