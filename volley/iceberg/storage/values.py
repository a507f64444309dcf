"""Storages as plain values: S3, Azure, GCS and local; all of them use fsspec."""

from __future__ import annotations

import importlib.util
import json
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from volley.checks import flag, keep, optional, secret
from volley.checks import path as checked_path
from volley.errors import ConfigError, MissingDependencyError, brief_methods
from volley.secrets import redact_uri, redacted_html, redacted_repr

__all__ = ["AzureStorage", "GcsStorage", "IcebergStorage", "LocalStorage", "S3Storage", "check_secret"]


class IcebergStorage(ABC):
    """The storage of a table's files: an `S3Storage`, `AzureStorage`, `GcsStorage` or `LocalStorage`.

    ``IcebergStorage.S3(…)``, ``.Azure(…)``, ``.Gcs(…)`` and ``.Local(…)`` are aliases of these.

    Without credentials, the cloud's default chain finds them. A repr shows no credentials.

    Example:
        >>> IcebergStorage.S3(region="us-east-1", bucket="lake", access_key_id="id", secret_access_key="hush")
        S3Storage(region='us-east-1', bucket='lake', access_key_id='***', secret_access_key='***')
    """

    S3: ClassVar[type[S3Storage]]
    Azure: ClassVar[type[AzureStorage]]
    Gcs: ClassVar[type[GcsStorage]]
    Local: ClassVar[type[LocalStorage]]

    package: ClassVar[str | None] = None
    """The Python package that implements it."""
    extra: ClassVar[str | None] = None
    """The extra of volley-stream that installs the package."""
    fsspec_names: ClassVar[Mapping[str, str]] = {}
    """Maps pyiceberg's property names to fsspec's options."""

    @property
    @abstractmethod
    def root(self) -> str:
        """The URL of the bucket, container or folder, without a slash at the end."""

    @abstractmethod
    def _settings(self) -> dict[str, Any]:
        """The settings under pyiceberg's property names; None = not set."""

    def properties(self) -> dict[str, Any]:
        """Return the properties for pyiceberg's FileIO. They contain secrets: never print or log them."""
        settings = {key: value for key, value in self._settings().items() if value is not None}
        return {"py-io-impl": "pyiceberg.io.fsspec.FsspecFileIO", **settings}

    def fsspec_options(self, properties: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options of the fsspec file system, credentials included.

        Args:
            properties: pyiceberg's properties; they override the storage's own settings.
        """
        settings = {**self.properties(), **properties}
        return {option: settings[name] for name, option in self.fsspec_names.items() if settings.get(name) is not None}

    def location(self, warehouse: str | None = None) -> str:
        """Return the URL of the folder where a catalog without a server creates its tables.

        Args:
            warehouse: A folder in the storage, or its URL; None = the storage's root.

        Raises:
            ConfigError: If the URL is not in this storage.

        Example:
            >>> IcebergStorage.S3(region="us-east-1", bucket="lake").location("raw/events")
            's3://lake/raw/events'
        """
        if not warehouse:
            return self.root
        path = warehouse.rstrip("/")
        if ".." in path.split("/"):
            raise ConfigError(f"warehouse {warehouse!r} leaves the storage", hint=f"a folder below {self.root}")
        if "://" not in path and not path.startswith("/"):
            return f"{self.root}/{path}"
        url = path if "://" in path else f"file://{path}"
        if url != self.root and not url.startswith(f"{self.root}/"):
            raise ConfigError(
                f"warehouse {redact_uri(warehouse)} is not in the storage {self.root}",
                hint=f"a folder below {self.root}, or None for all of it",
            )
        return url

    def check_installed(self) -> None:
        """Check that the storage's Python package is installed.

        Raises:
            MissingDependencyError: If it is not; the hint has the command to install it.
        """
        if self.package is not None and importlib.util.find_spec(self.package) is None:
            raise MissingDependencyError(
                f"{type(self).__qualname__} needs the package {self.package}, which is not installed",
                hint=f'pip install "volley-stream[{self.extra}]"',
            )

    __repr__ = redacted_repr
    _repr_html_ = redacted_html


def _require(matches: bool, name: str, value: object, hint: str) -> None:
    if not matches:
        raise ConfigError(f"{name} {value!r} is not valid", hint=hint)


def check_secret(name: str, value: str | None) -> None:
    """Raise ConfigError if a secret can't be an HTTP header; the client would raise too, but show the secret."""
    optional(secret)(name, value)
    if value is not None and not _matches(r"[\x21-\x7e]*", value):
        raise ConfigError(
            f"{name} has a space, a line end or a character that is not ASCII",
            hint="read from a file it ends in a line end: strip() it",
        )


def _matches(pattern: str, value: object) -> bool:
    return isinstance(value, str) and re.fullmatch(pattern, value) is not None


@brief_methods
@dataclass(frozen=True, repr=False)
class S3Storage(IcebergStorage):
    """Amazon S3, or a server that is compatible with it.

    Args:
        region: The bucket's region, such as ``us-east-1``.
        bucket: The bucket's name.
        endpoint: The URL of another server (MinIO, SeaweedFS, …); None = AWS.
        path_style_access: True: the bucket is in the URL's path, False: in the host name. None = in the path if there
            is an endpoint.
        access_key_id: The key's id; None = AWS' default chain (environment, profile, instance role).
        secret_access_key: The key; needs `access_key_id`.
        session_token: The session token of temporary keys.

    Raises:
        ConfigError: If a setting is wrong, or only a part of the keys is given.
    """

    package: ClassVar[str | None] = "s3fs"
    extra: ClassVar[str | None] = "s3"
    fsspec_names: ClassVar[Mapping[str, str]] = {
        "s3.endpoint": "endpoint_url",
        "s3.access-key-id": "key",
        "s3.secret-access-key": "secret",
        "s3.session-token": "token",
        "s3.profile-name": "profile",
    }

    region: str
    bucket: str
    endpoint: str | None = None
    path_style_access: bool | None = None
    access_key_id: str | None = None
    secret_access_key: str | None = None
    session_token: str | None = None

    def __post_init__(self) -> None:
        keep(self, path_style_access=optional(flag))
        _require(_matches(r"[a-zA-Z0-9-]+", self.region), "region", self.region, 'such as "us-east-1"')
        bucket = _matches(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?", self.bucket)
        _require(bucket, "bucket", self.bucket, "the name alone, of a-z 0-9 . -; folders go into warehouse")
        if self.endpoint is not None:
            _require(
                _matches(r"https?://\S+", self.endpoint), "endpoint", self.endpoint, "http://host:port or https://…"
            )
        elif self.path_style_access:
            raise ConfigError(
                "path_style_access needs an endpoint", hint=f'endpoint="https://s3.{self.region}.amazonaws.com"'
            )
        if bool(self.access_key_id) != bool(self.secret_access_key) or (self.session_token and not self.access_key_id):
            raise ConfigError(
                "S3 keys are half given",
                hint="both access_key_id and secret_access_key (a session_token with them only), or none of them",
            )
        for name in ("access_key_id", "secret_access_key", "session_token"):
            check_secret(name, getattr(self, name))

    @property
    def root(self) -> str:
        return f"s3://{self.bucket}"

    def _settings(self) -> dict[str, Any]:
        return {
            "s3.region": self.region,
            "s3.endpoint": self.endpoint,
            "s3.access-key-id": self.access_key_id,
            "s3.secret-access-key": self.secret_access_key,
            "s3.session-token": self.session_token,
            # botocore's default is the host name on AWS and the path on any other endpoint.
            "s3.force-virtual-addressing": "true" if self.path_style_access is False else None,
        }

    def fsspec_options(self, properties: Mapping[str, Any]) -> dict[str, Any]:
        settings = {**self.properties(), **properties}
        virtual = str(settings.get("s3.force-virtual-addressing")).lower() == "true"
        return {
            **super().fsspec_options(properties),
            "client_kwargs": {"region_name": settings["s3.region"]},
            "config_kwargs": {"s3": {"addressing_style": "virtual"}} if virtual else {},
        }


@brief_methods
@dataclass(frozen=True, repr=False)
class AzureStorage(IcebergStorage):
    """Azure Blob Storage or Data Lake.

    Args:
        storage_account: The account's name.
        container: The container's name.
        access_key: The account's key; None = DefaultAzureCredential (environment, managed identity, Azure CLI).

    Raises:
        ConfigError: If Azure does not allow a name.
    """

    package: ClassVar[str | None] = "adlfs"
    extra: ClassVar[str | None] = "azure"
    # adlfs has pyiceberg's names, with underscores.
    fsspec_names: ClassVar[Mapping[str, str]] = {
        f"adls.{name}": name.replace("-", "_")
        for name in (
            *("account-name", "account-key", "account-host", "anon", "client-id", "client-secret"),
            *("connection-string", "credential", "sas-token", "tenant-id"),
        )
    }

    storage_account: str
    container: str
    access_key: str | None = None

    def __post_init__(self) -> None:
        optional(secret)("access_key", self.access_key)
        account = _matches(r"[a-z0-9]{3,24}", self.storage_account)
        _require(account, "storage_account", self.storage_account, "the name alone, 3 to 24 of a-z 0-9")
        container = _matches(r"[a-z0-9$][a-z0-9-]{2,62}", self.container)
        _require(container, "container", self.container, "the name alone, 3 to 63 of a-z 0-9 -")

    @property
    def root(self) -> str:
        return f"abfss://{self.container}@{self.storage_account}.dfs.core.windows.net"

    def _settings(self) -> dict[str, Any]:
        # adlfs looks for credentials only if anonymous access is off, which must be the value False.
        return {
            "adls.account-name": self.storage_account,
            "adls.account-key": self.access_key,
            "adls.anon": None if self.access_key else False,
        }


@brief_methods
@dataclass(frozen=True, repr=False)
class GcsStorage(IcebergStorage):
    """Google Cloud Storage.

    Args:
        project_id: The project.
        bucket: The bucket's name.
        service_account_key: A service account's key: the JSON text, or the path of its file;
            None = Application Default Credentials.

    Raises:
        ConfigError: If a name is wrong, or the key is neither a path nor valid JSON.
    """

    package: ClassVar[str | None] = "gcsfs"
    extra: ClassVar[str | None] = "gcs"
    fsspec_names: ClassVar[Mapping[str, str]] = {
        "gcs.project-id": "project",
        "gcs.oauth2.token": "token",
        "gcs.service.host": "endpoint_url",
    }

    project_id: str
    bucket: str
    service_account_key: str | None = None

    def __post_init__(self) -> None:
        _require(_matches(r"[a-z0-9:.-]+", self.project_id), "project_id", self.project_id, 'such as "my-project"')
        bucket = _matches(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]", self.bucket)
        _require(bucket, "bucket", self.bucket, "the name alone, of a-z 0-9 . _ -; folders go into warehouse")
        optional(secret)("service_account_key", self.service_account_key)
        self._token()

    def _token(self) -> object:
        key = self.service_account_key
        if key is None or not key.lstrip().startswith("{"):
            return key
        try:
            return json.loads(key)
        except ValueError:
            # Without the cause: its text may quote the key.
            raise ConfigError(
                "service_account_key is not valid JSON", hint="the key file's whole text, or its path"
            ) from None

    @property
    def root(self) -> str:
        return f"gs://{self.bucket}"

    def _settings(self) -> dict[str, Any]:
        return {"gcs.project-id": self.project_id, "gcs.oauth2.token": self._token()}


@brief_methods
@dataclass(frozen=True, repr=False)
class LocalStorage(IcebergStorage):
    """A local folder; on a cluster, a folder that every machine has mounted.

    Args:
        path: The folder; created if it does not exist. ``~`` is the home folder.

    Raises:
        ConfigError: If the path is empty, has another scheme, or a character that is special in URLs.
    """

    path: str | os.PathLike[str]

    def __post_init__(self) -> None:
        path = checked_path("path", self.path).removeprefix("file://")
        _require(path != "" and "://" not in path, "path", path, "a folder")
        object.__setattr__(self, "path", path)
        folder = str(self.folder)
        _require(_matches(r"[^?#%\x00-\x1f]+", folder), "path", folder, "a folder, without ? # %")

    @property
    def folder(self) -> Path:
        """The folder's absolute path."""
        return Path(os.path.expanduser(self.path)).absolute()

    @property
    def root(self) -> str:
        return f"file://{self.folder}"

    def _settings(self) -> dict[str, Any]:
        return {}


IcebergStorage.S3 = S3Storage
IcebergStorage.Azure = AzureStorage
IcebergStorage.Gcs = GcsStorage
IcebergStorage.Local = LocalStorage
