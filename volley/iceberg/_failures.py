"""What goes wrong below us, in our words: errors of pyiceberg, catalogs' clients and storages become Volley's."""

from __future__ import annotations

import errno
import re
import traceback
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from volley._secrets import hide, mask_uri, presentable, secrets_in
from volley.errors import (
    CatalogAuthError,
    CatalogError,
    CatalogUnreachableError,
    MissingDependencyError,
    StorageAccessError,
    StorageError,
    TableNotFoundError,
    VolleyError,
)
from volley.iceberg._permissions import permission_hint

if TYPE_CHECKING:
    from volley.iceberg.catalogs import CatalogConfig
    from volley.iceberg.config import IcebergSinkConfig

__all__ = ["catalog_errors", "storage_errors"]

_CATALOG_CLIENTS = {"hive_metastore", "pydantic_core", "pyiceberg", "requests", "sqlalchemy", "thrift"}
_STORAGE_CLIENTS = {"aiohttp", "azure", "botocore", "gcsfs", "google", "s3fs", "sqlite3"}
# gcsfs tells them apart by text only.
_GCS_REFUSALS = ("Forbidden:", "Invalid Credentials")
# An upload is answered by 404 for this reason only.
_NO_BUCKET = re.compile(r"NoSuchBucket|bucket does not exist|ContainerNotFound|/upload/storage/v1/b/", re.I)
_REFUSED = re.compile(
    r"credential|access.?denied|forbidden|unauthori[sz]ed|authentication|expired.?token|\b40[13]\b", re.I
)


@contextmanager
def storage_errors(path: str, action: str = "writing") -> Iterator[None]:
    """Turn what files and storage clients raise into our errors; anything else passes.

    Args:
        path: The file or folder, for the message.
        action: What is being done with it.

    Raises:
        StorageAccessError: If the storage refused the credentials, or they lack a permission.
        StorageError: If it failed otherwise.
    """
    try:
        yield
    except Exception as error:
        made = _storage_error(error, path, action)
        if made is None:
            raise
        raise made from presentable(error)


def _storage_error(
    error: Exception, path: str, action: str = "writing", secrets: Collection[str] = ()
) -> StorageError | None:
    """Our error for one of a file or a storage client; None if it is neither's."""
    client = next((each for each in (error, error.__cause__) if each is not None and _of_client(each)), None)
    if client is None and not isinstance(error, OSError):
        return None
    # Azure's errors have the answer's whole body on further lines.
    where, text = mask_uri(path), hide(str(error), secrets).strip().partition("\n")[0] or type(error).__name__
    if _is_refusal(error, client, text):
        return StorageAccessError(
            f"{action} {where} was refused: {text}", hint=permission_hint(client or error, where, action)
        )
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return StorageError(f"{action} {where} failed: no space left", hint="make room, then start the job again")
    if _NO_BUCKET.search(f"{client!r} {text}"):
        return StorageError(f"{action} {where} failed: {text}", hint=f"make {_bucket(where)} first, or check its name")
    return StorageError(f"{action} {where} failed: {text}", hint="check that the place exists and can be reached")


def _of_client(error: BaseException) -> bool:
    return type(error).__module__.partition(".")[0] in _STORAGE_CLIENTS


def _is_refusal(error: Exception, client: BaseException | None, text: str) -> bool:
    if isinstance(error, PermissionError) or text.startswith(_GCS_REFUSALS):
        return True
    return client is not None and bool(_REFUSED.search(f"{type(client).__name__} {text} {client}"))


def _bucket(url: str) -> str:
    where = urlsplit(url)
    return f"container {where.username!r}" if where.username else f"bucket {where.netloc!r}"


@contextmanager
def catalog_errors(config: IcebergSinkConfig) -> Iterator[None]:
    """Turn what pyiceberg and the clients below it raise into our errors.

    A conflict (pyiceberg's ``CommitFailedException``) passes as it is, for the committer to handle.

    Raises:
        CatalogError: Or one of its kinds; it names the catalog.
        StorageError: If it was the storage below the catalog that failed.
        MissingDependencyError: If a package is not installed.
    """
    try:
        yield
    except Exception as error:
        secrets = _secrets(config)
        made = _translated(error, config, secrets)
        if made is None:
            raise
        raise made from presentable(error, secrets)


def _secrets(config: IcebergSinkConfig) -> set[str]:
    given = {**config.source.to_properties(config.storage, config.warehouse), **config.properties}
    passwords = {unquote(found) for found in re.findall(r"://[^/\s:@]*:(\S+)@", str(given.get("uri", "")))}
    return secrets_in(given) | passwords | {str(given.get("credential", "")).partition(":")[2]} - {""}


def _translated(error: Exception, config: IcebergSinkConfig, secrets: Collection[str]) -> VolleyError | None:
    from pyiceberg import exceptions as theirs
    from requests import exceptions as http

    address, text = config.source.address, hide(str(error), secrets) or type(error).__name__
    if isinstance(error, VolleyError | theirs.CommitFailedException):
        return None
    if isinstance(error, ImportError | theirs.NotInstalledError):
        return _missing(error, config.source)
    absent = isinstance(error, theirs.NoSuchTableError | theirs.NoSuchNamespaceError | theirs.NoSuchIdentifierError)
    # pyiceberg has no word for a commit to a table that is not there.
    if absent or (isinstance(error, theirs.RESTError) and _asked_for_no_table(error)):
        return TableNotFoundError(
            f"table {config.table_name} not found in {address}: {text}", hint="check namespace and table"
        )
    if isinstance(error, theirs.UnauthorizedError | theirs.OAuthError | theirs.AuthorizationExpiredError):
        return _refused(address, text, 'check the credentials: with_credential("id:secret") or with_token(…)')
    if isinstance(error, theirs.ForbiddenError):
        lacking = f"a privilege is missing: writing needs TABLE_WRITE_DATA on {config.table_name} (or no credential was"
        return _refused(address, text, f"{lacking} given: with_credential)")
    if isinstance(error, _busy_errors()):
        return _busy(address, text)
    timed_out = isinstance(error, http.ConnectionError | http.Timeout | ConnectionError | TimeoutError)
    if timed_out or type(error).__name__ == "TTransportException":
        return _unreachable(address, text)
    if (origin := getattr(error, "orig", None)) is not None:
        return _sql_error(origin, config.source)
    if type(error).__module__ == "botocore.exceptions" and config.source.extra == "glue" and not _in_storage(error):
        return _glue_error(error, address, text)
    if type(error).__module__.partition(".")[0] in _CATALOG_CLIENTS:
        return CatalogError(f"catalog {address}: {text}", hint="check the address; the catalog's own log may say more")
    storage = _storage_error(error, config.storage.root, "reaching", secrets)
    if storage is None and presentable(error, secrets) is not error:
        return CatalogError(f"catalog {address}: {text}", hint="check the credentials for characters that don't belong")
    return storage


def _in_storage(error: Exception) -> bool:
    """Whether it was raised below s3fs: its client and Glue's raise the same errors."""
    frames = traceback.walk_tb(error.__traceback__)
    return any(frame.f_globals["__name__"].startswith("aiobotocore.") for frame, _ in frames)


def _glue_error(error: Exception, address: str, text: str) -> CatalogError:
    """Our error for one of AWS' client, which tells its kinds apart by codes and names."""
    answer = getattr(error, "response", None) or {}
    code = answer.get("Error", {}).get("Code") or type(error).__name__
    if re.search("Throttling|InternalService|ServiceUnavailable|OperationTimeout|TooManyRequests", code):
        return _busy(address, text)
    if re.search("Connect|Timeout|HTTPClient", code):
        return _unreachable(address, text)
    if re.search("AccessDenied|Credential|Token|Signature|Unauthorized|Profile|InvalidClientTokenId", code):
        return _refused(address, text, "check AWS' credentials (profile, environment) and that they allow glue:*")
    return CatalogError(f"catalog {address}: {text}", hint="check region, catalog_id and database")


def _refused(address: str, text: str, hint: str) -> CatalogAuthError:
    return CatalogAuthError(f"catalog {address} refused: {text}", hint=hint)


def _unreachable(address: str, text: str) -> CatalogUnreachableError:
    # The clients bury the reason in the story of their retries.
    reason = re.search(r"\[Errno -?\d+\] [^'\")\n]+|[Tt]imed out", text)
    return CatalogUnreachableError(
        f"catalog {address} does not answer: {reason[0] if reason else text}",
        hint="check that it runs, its address, and the network between",
    )


def _asked_for_no_table(error: Exception) -> bool:
    answer = getattr(error.__cause__, "response", None)
    return answer is not None and answer.status_code == 404 and "/tables/" in answer.url


def _busy_errors() -> tuple[type[Exception], ...]:
    from pyiceberg import exceptions as theirs

    return (
        theirs.ServerError,
        theirs.ServiceUnavailableError,
        theirs.TooManyRequestsError,
        theirs.CommitStateUnknownException,
    )


def _busy(address: str, text: str) -> CatalogUnreachableError:
    return CatalogUnreachableError(
        f"catalog {address} can't answer now: {text}",
        hint="its own log says more; start the job again when it recovers",
    )


def _missing(error: Exception, source: CatalogConfig) -> MissingDependencyError:
    package = f"volley-stream[{source.extra}]" if source.extra else "volley-stream"
    return MissingDependencyError(
        f"{type(source).__name__} needs a package that is not installed: {error}", hint=f'pip install "{package}"'
    )


def _sql_error(error: Exception, source: CatalogConfig) -> VolleyError:
    """Our error for one of a database, which tells its kinds apart by words only."""
    address, text = source.address, mask_uri(str(error)).strip()
    if source.file is not None and re.search("unable to open|readonly|I/O", text):
        return StorageError(f"catalog file {source.file} failed: {text}", hint="check the folder and its permissions")
    if "locked" in text:
        return CatalogUnreachableError(
            f"catalog {address} is locked: {text}", hint="another program holds the file open for writing: end it"
        )
    if re.search("authentication|permission denied", text):
        return _refused(address, text, "check user and password in the catalog's uri, and the user's grants")
    if re.search("could not connect|connection|could not translate|timeout", text, re.I):
        return _unreachable(address, text)
    return CatalogError(f"catalog {address}: {text}", hint="the database's own log may say more")
