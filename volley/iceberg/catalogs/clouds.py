"""Catalogs of clouds, which take requests that are signed in by the cloud's own accounts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from volley.checks import keep, optional, path, text
from volley.errors import ConfigError, brief_methods
from volley.iceberg.catalogs.capabilities import Capabilities
from volley.iceberg.catalogs.values import RestCatalog, without_nones
from volley.iceberg.storage.values import AzureStorage, IcebergStorage, S3Storage

__all__ = ["BigLakeCatalog", "OneLakeCatalog", "S3TablesCatalog"]

_ARN = re.compile(r"arn:aws[a-z-]*:s3tables:([a-z0-9-]+):\d{12}:bucket/[a-z0-9-]{3,63}")
_GOOGLE = "https://biglake.googleapis.com/iceberg/v1/restcatalog"
_ONELAKE = "https://onelake.table.fabric.microsoft.com/iceberg"
_STORAGE_SCOPE = "https://storage.azure.com/.default"


def _refuse(catalog: RestCatalog, *names: str, hint: str) -> None:
    """Raise ConfigError if one of these settings, which have no meaning for a catalog, is given."""
    for name in names:
        if getattr(catalog, name) is not None:
            raise ConfigError(f"{type(catalog).__name__} takes no {name}", hint=hint)


@brief_methods
@dataclass(frozen=True, repr=False)
class S3TablesCatalog(RestCatalog):
    """Amazon S3 Tables: a table bucket, whose requests are signed with AWS' credentials.

    These are the keys of the `S3Storage`, if it has some, else those of the profile or of AWS' default chain.

    Args:
        warehouse: The table bucket's ARN, ``arn:aws:s3tables:region:account:bucket/name``.
        profile: A profile of the AWS configuration.
        uri: The address of another endpoint; None = that of the ARN's region.

    Raises:
        ConfigError: If a setting is wrong.

    Example:
        >>> S3TablesCatalog("arn:aws:s3tables:eu-central-1:123456789012:bucket/lake").address
        'https://s3tables.eu-central-1.amazonaws.com/iceberg'
    """

    extra: ClassVar[str | None] = "glue"
    title: ClassVar[str] = "S3 Tables"
    # The service compacts, expires and removes files itself.
    capabilities: ClassVar[Capabilities] = Capabilities(
        nested_namespaces=False, upper_case=False, expiry=False, format_3=None, bounds=None
    )

    uri: str | None = field(default=None, kw_only=True)  # type: ignore[assignment]
    warehouse: str = field()
    profile: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        keep(self, warehouse=text, profile=optional(text))
        if not _ARN.fullmatch(self.warehouse):
            hint = 'a table bucket\'s ARN: "arn:aws:s3tables:eu-central-1:123456789012:bucket/lake"'
            raise ConfigError(f"warehouse {self.warehouse!r} is not valid", hint=hint)
        super().__post_init__()
        hint = "requests are signed: give keys to the S3Storage, or set profile"
        _refuse(self, "credential", "token", "oauth2_server_uri", "scope", hint=hint)

    @property
    def region(self) -> str:
        """The region of the table bucket."""
        return self.warehouse.split(":")[3]

    @property
    def _given_uri(self) -> str:
        return self._endpoint

    @property
    def _endpoint(self) -> str:
        partition = ".cn" if self.warehouse.startswith("arn:aws-cn:") else ""
        return f"https://s3tables.{self.region}.amazonaws.com{partition}/iceberg" if self.uri is None else self.uri

    def sign_in_properties(self, storage: IcebergStorage) -> dict[str, Any]:
        signed = {
            "rest.sigv4-enabled": "true",
            "rest.signing-name": "s3tables",
            "rest.signing-region": self.region,
            "client.region": self.region,
            "client.profile-name": self.profile,
        }
        if isinstance(storage, S3Storage) and storage.access_key_id and self.profile is None:
            signed |= {
                "client.access-key-id": storage.access_key_id,
                "client.secret-access-key": storage.secret_access_key,
                "client.session-token": storage.session_token,
            }
        return without_nones(**signed)


@brief_methods
@dataclass(frozen=True, repr=False)
class BigLakeCatalog(RestCatalog):
    """Google's BigLake metastore, which is the catalog of Google's Lakehouse.

    Requests are signed in by Application Default Credentials, or by a service account's key.

    Args:
        warehouse: The bucket, ``gs://bucket``, or a catalog of several, ``bl://projects/project/catalogs/name``.
        project: The Google Cloud project that the requests are billed to.
        credentials_file: The file of a service account's key; None = Application Default Credentials.
        token: A bearer token, in place of these.
        uri: The address of another endpoint; None = Google's.

    Raises:
        ConfigError: If a setting is wrong.

    Example:
        >>> BigLakeCatalog("gs://lake", project="my-project").address
        'https://biglake.googleapis.com/iceberg/v1/restcatalog'
    """

    extra: ClassVar[str | None] = "gcs"
    title: ClassVar[str] = "BigLake"
    capabilities: ClassVar[Capabilities] = Capabilities(
        nested_namespaces=None, upper_case=None, format_3=None, bounds=None
    )

    uri: str | None = field(default=None, kw_only=True)  # type: ignore[assignment]
    warehouse: str = field()
    project: str = field(kw_only=True)
    credentials_file: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        keep(self, warehouse=text, project=text, credentials_file=optional(path))
        if not re.fullmatch(r"(gs|bl)://[^\s?#]+", self.warehouse):
            raise ConfigError(f"warehouse {self.warehouse!r} is not valid", hint='"gs://bucket", or "bl://…"')
        super().__post_init__()
        _refuse(self, "credential", "oauth2_server_uri", "scope", hint="set credentials_file, or token")

    @property
    def _given_uri(self) -> str:
        return self._endpoint

    @property
    def _endpoint(self) -> str:
        return _GOOGLE if self.uri is None else self.uri

    def sign_in_properties(self, storage: IcebergStorage) -> dict[str, Any]:
        billed = {"header.x-goog-user-project": self.project}
        if self.token is not None:
            return {**billed, **super().sign_in_properties(storage)}
        settings = without_nones(credentials_path=self.credentials_file)
        return {**billed, "auth": _by("GoogleManager", settings)}


@brief_methods
@dataclass(frozen=True, repr=False)
class OneLakeCatalog(RestCatalog):
    """Microsoft OneLake, the storage of Fabric, whose tables it shows in Iceberg's form.

    Requests are signed in by Microsoft Entra ID: by ``DefaultAzureCredential``, or as a service principal. The storage
    is an `AzureStorage` of the account ``onelake``, whose container is the workspace.

    Args:
        warehouse: Workspace and item, ``workspace-id/item-id``.
        credential: A service principal's id and secret, ``"id:secret"``; needs `tenant`.
        tenant: The id of the tenant of Entra.
        token: A bearer token, in place of these.
        uri: The address of another endpoint; None = Microsoft's.

    Raises:
        ConfigError: If a setting is wrong.

    Example:
        >>> OneLakeCatalog("workspace/lake.Lakehouse").address
        'https://onelake.table.fabric.microsoft.com/iceberg'
    """

    extra: ClassVar[str | None] = "azure"
    title: ClassVar[str] = "OneLake"
    # It announces requests that change tables, and answered none of them in September 2026.
    capabilities: ClassVar[Capabilities] = replace(
        RestCatalog.capabilities, nested_namespaces=False, transactions=False
    )

    uri: str | None = field(default=None, kw_only=True)  # type: ignore[assignment]
    warehouse: str = field()
    tenant: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        keep(self, warehouse=text, tenant=optional(text))
        if not re.fullmatch(r"[^/]+/[^/]+", self.warehouse):
            raise ConfigError(f"warehouse {self.warehouse!r} is not valid", hint='"workspace-id/item-id"')
        super().__post_init__()
        if self.credential is not None and self.tenant is None and self.oauth2_server_uri is None:
            raise ConfigError("tenant is missing", hint="the id of the tenant that the service principal belongs to")

    @property
    def _given_uri(self) -> str:
        return self._endpoint

    @property
    def _endpoint(self) -> str:
        return _ONELAKE if self.uri is None else self.uri

    @property
    def _default_server(self) -> str:
        return f"https://login.microsoftonline.com/{self.tenant}/oauth2/v2.0/token"

    def sign_in_properties(self, storage: IcebergStorage) -> dict[str, Any]:
        files = self._files(storage)
        if self.credential is None and self.token is None:
            return {**files, "auth": _by("EntraManager", {"scopes": [self.scope or _STORAGE_SCOPE]})}
        return {**files, "scope": _STORAGE_SCOPE, **super().sign_in_properties(storage)}

    def _files(self, storage: IcebergStorage) -> Mapping[str, Any]:
        """Return the properties by which files of OneLake are reached: its host, and the same service principal."""
        if not isinstance(storage, AzureStorage) or storage.storage_account != "onelake":
            return {}
        host = {"adls.account-host": "onelake.blob.fabric.microsoft.com"}
        if self.credential is None or self.tenant is None:
            return host
        client, _, password = self.credential.partition(":")
        names = {"adls.tenant-id": self.tenant, "adls.client-id": client, "adls.client-secret": password}
        return {**host, **names}


def _by(manager: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return pyiceberg's property that signs in by one of Volley's managers of tokens."""
    return {"type": "custom", "impl": f"volley.iceberg.pyiceberg_private.tokens.{manager}", "custom": dict(settings)}
