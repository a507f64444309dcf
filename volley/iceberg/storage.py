"""Where a table's files live: S3, Azure, GCS or local, reached through fsspec."""

from __future__ import annotations

import errno
import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from volley._secrets import mask_uri, show
from volley.errors import ConfigError, MissingDependencyError, StorageAccessError, StorageError, VolleyError

__all__ = ["AzureStorage", "GcsStorage", "IcebergStorage", "LocalStorage", "S3Storage", "storage_errors"]

_FSSPEC = {"py-io-impl": "pyiceberg.io.fsspec.FsspecFileIO"}


def _required(kind: str, **values: str) -> None:
    for name, value in values.items():
        if not isinstance(value, str) or not value.strip():
            raise ConfigError(f"IcebergStorage.{kind} needs a {name}, not {value!r}", hint=f"{name}=…")


def _drop_none(properties: dict[str, str | None]) -> dict[str, str]:
    return {key: value for key, value in properties.items() if value is not None}


def _installed(module: str, extra: str) -> None:
    if importlib.util.find_spec(module) is None:
        raise MissingDependencyError(
            f"the package {module} is not installed", hint=f'pip install "volley-stream[{extra}]"'
        )


@dataclass(frozen=True, repr=False)
class S3Storage:
    """Amazon S3, or anything that speaks its protocol. Without keys, AWS' default chain finds the credentials.

    Args:
        region: The bucket's region.
        bucket: Its name.
        endpoint: Another server's URL (MinIO, SeaweedFS, …); None = AWS.
        path_style_access: Bucket in the path, not in the host name; None = with an endpoint only.
        access_key_id: With `secret_access_key`, the keys.
        secret_access_key: See there.
        session_token: For temporary keys.
    """

    region: str
    bucket: str
    endpoint: str | None = None
    path_style_access: bool | None = None
    access_key_id: str | None = None
    secret_access_key: str | None = None
    session_token: str | None = None

    def __post_init__(self) -> None:
        _required("S3", region=self.region, bucket=self.bucket)
        if "/" in self.bucket:
            raise ConfigError(f"S3 bucket {self.bucket!r} is a path", hint="the bucket's name alone")
        if (self.access_key_id is None) != (self.secret_access_key is None):
            raise ConfigError(
                "S3 keys are half given",
                hint="both access_key_id and secret_access_key, or neither for the default chain",
            )

    def properties(self) -> dict[str, str]:
        """What pyiceberg's FileIO is told."""
        path_style = self.endpoint is not None if self.path_style_access is None else self.path_style_access
        return _FSSPEC | _drop_none(
            {
                "s3.region": self.region,
                "s3.endpoint": self.endpoint,
                "s3.access-key-id": self.access_key_id,
                "s3.secret-access-key": self.secret_access_key,
                "s3.session-token": self.session_token,
                "s3.force-virtual-addressing": None if path_style else "true",
            }
        )

    @property
    def location(self) -> str:
        """The URL below which tables are made."""
        return f"s3://{self.bucket}"

    def check(self) -> None:
        """Raise MissingDependencyError unless the storage's package is installed."""
        _installed("s3fs", "s3")

    __repr__ = show


@dataclass(frozen=True, repr=False)
class AzureStorage:
    """Azure Blob Storage or Data Lake.

    Args:
        storage_account: The account's name.
        container: The container's name.
        access_key: The account key; None = DefaultAzureCredential (environment, managed identity, CLI).
    """

    storage_account: str
    container: str
    access_key: str | None = None

    def __post_init__(self) -> None:
        _required("Azure", storage_account=self.storage_account, container=self.container)

    def properties(self) -> dict[str, str]:
        """What pyiceberg's FileIO is told."""
        keyless = None if self.access_key else "false"
        return _FSSPEC | _drop_none(
            {"adls.account-name": self.storage_account, "adls.account-key": self.access_key, "adls.anon": keyless}
        )

    @property
    def location(self) -> str:
        """The URL below which tables are made."""
        return f"abfss://{self.container}@{self.storage_account}.dfs.core.windows.net"

    def check(self) -> None:
        """Raise MissingDependencyError unless the storage's package is installed."""
        _installed("adlfs", "azure")

    __repr__ = show


@dataclass(frozen=True, repr=False)
class GcsStorage:
    """Google Cloud Storage.

    Args:
        project_id: The project.
        bucket: The bucket's name.
        service_account_key: The path of a service account's key file; None = Application Default Credentials.
    """

    project_id: str
    bucket: str
    service_account_key: str | None = None

    def __post_init__(self) -> None:
        _required("Gcs", project_id=self.project_id, bucket=self.bucket)

    def properties(self) -> dict[str, str]:
        """What pyiceberg's FileIO is told."""
        return _FSSPEC | _drop_none({"gcs.project-id": self.project_id, "gcs.oauth2.token": self.service_account_key})

    @property
    def location(self) -> str:
        """The URL below which tables are made."""
        return f"gs://{self.bucket}"

    def check(self) -> None:
        """Raise MissingDependencyError unless the storage's package is installed."""
        _installed("gcsfs", "gcs")

    __repr__ = show


@dataclass(frozen=True, repr=False)
class LocalStorage:
    """A folder of this machine, or one that all machines of a cluster have mounted.

    Args:
        path: The folder; made when absent.
    """

    path: str

    def __post_init__(self) -> None:
        _required("Local", path=self.path)
        object.__setattr__(self, "path", self.path.removeprefix("file://"))

    def properties(self) -> dict[str, str]:
        """What pyiceberg's FileIO is told."""
        return dict(_FSSPEC)

    @property
    def folder(self) -> Path:
        """The folder as an absolute path."""
        return Path(self.path).absolute()

    @property
    def location(self) -> str:
        """The URL below which tables are made."""
        return f"file://{self.folder}"

    def check(self) -> None:
        """Nothing has to be installed."""

    __repr__ = show


class IcebergStorage:
    """The kinds of storage, as an enumeration of value classes: ``IcebergStorage.S3(region=…, bucket=…)``.

    Example:
        >>> IcebergStorage.S3(region="us-east-1", bucket="lake", access_key_id="id", secret_access_key="hush")
        S3Storage(region='us-east-1', bucket='lake', access_key_id='***', secret_access_key='***')
    """

    S3 = S3Storage
    Azure = AzureStorage
    Gcs = GcsStorage
    Local = LocalStorage


@contextmanager
def storage_errors(path: str, action: str = "writing") -> Iterator[None]:
    """Turn what storage libraries raise into our errors; they name the path and what was being done.

    Raises:
        StorageAccessError: If the storage refused.
        StorageError: If it failed otherwise.
    """
    try:
        yield
    except VolleyError:
        raise
    except Exception as error:
        if not isinstance(error, OSError) and "access" not in str(error).lower():
            raise
        raise _storage_error(error, mask_uri(path), action) from error


def _storage_error(error: Exception, path: str, action: str) -> StorageError:
    text = str(error)
    if isinstance(error, PermissionError) or any(
        word in text for word in ("ACCESS_DENIED", "AccessDenied", "Forbidden")
    ):
        return StorageAccessError(
            f"{action} {path} was refused: {text}",
            hint="check the keys; they need to get, put, list and delete objects (s3:GetObject, s3:PutObject, …)",
        )
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return StorageError(f"{action} {path} failed: no space left", hint="make room, then start the job again")
    return StorageError(f"{action} {path} failed: {text}", hint="check that the storage is there and can be written")
