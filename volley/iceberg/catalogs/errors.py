"""Translates exceptions of pyiceberg and of catalog clients into VolleyErrors."""

from __future__ import annotations

import re
import time
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from volley.errors import (
    CatalogAuthError,
    CatalogError,
    CatalogUnreachableError,
    MissingDependencyError,
    StorageError,
    TableNotFoundError,
    VolleyError,
)
from volley.iceberg.storage.errors import storage_error
from volley.secrets import redact, redact_uri, redacted, secrets_in

if TYPE_CHECKING:
    from volley.iceberg.catalogs.config import CatalogConfig
    from volley.iceberg.storage.values import IcebergStorage

__all__ = ["catalog_errors", "refuses", "retry_after", "status_of"]

_CATALOG_CLIENTS = {"hive_metastore", "pyiceberg", "requests", "sqlalchemy", "thrift"}


@contextmanager
def catalog_errors(
    catalog: CatalogConfig, storage: IcebergStorage, table: str, properties: Callable[[], Mapping[str, Any]]
) -> Iterator[None]:
    """Translate exceptions of pyiceberg and the clients below it into VolleyErrors.

    A conflict (pyiceberg's ``CommitFailedException``) is not translated: the committer handles it.

    Args:
        catalog: The catalog.
        storage: The storage of its tables.
        table: The table's dotted name.
        properties: Returns the properties given to pyiceberg, whose secrets are redacted; called only on an error.

    Raises:
        CatalogError: Or a subclass, if the catalog failed; names the catalog.
        StorageError: If the storage failed.
        MissingDependencyError: If a package is not installed.
    """
    try:
        yield
    except Exception as error:
        secrets = _secrets(properties())
        translated = _translated(error, _Place(catalog, storage, table), secrets)
        if translated is None:
            raise
        raise translated from redacted(error, secrets)


def refuses(error: BaseException) -> bool:
    """Return True if the error of a commit is a catalog's refusal: once the table lacks the commit, it can't land.

    A gateway that repeats a request may pass on the refusal of one that has landed.
    """
    if isinstance(error, TableNotFoundError | CatalogAuthError):
        return True
    # A proxy answers 408 when it has waited long enough: the request may still be on its way.
    is_refused = any(400 <= status < 500 and status != 408 for status, _ in _answers(error))
    # Raised for a request that the catalog does not offer, before it is sent, and for 501.
    return is_refused or any(isinstance(cause, NotImplementedError) for cause in _causes(error))


def status_of(error: BaseException) -> int | None:
    """Return the status of the HTTP answer that has caused an error; None without one."""
    return next((status for status, _ in _answers(error)), None)


def retry_after(error: BaseException) -> float | None:
    """Return the seconds after which the catalog is to be asked again, as its answer says; None if it does not."""
    for _, headers in _answers(error):
        text = headers.get("Retry-After", "").strip()
        if text.isdecimal():
            return float(text[:9])
        with suppress(ValueError):
            return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    return None


def _answers(error: BaseException) -> Iterator[tuple[int, Mapping[str, str]]]:
    """Yield status and headers of the HTTP answers that have caused an error."""
    for cause in _causes(error):
        response: Any = getattr(cause, "response", None)
        if hasattr(response, "status_code"):
            yield response.status_code, response.headers


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__


@dataclass(frozen=True)
class _Place:
    catalog: CatalogConfig
    storage: IcebergStorage
    table: str


def _secrets(properties: Mapping[str, Any]) -> set[str]:
    passwords = {unquote(match) for match in re.findall(r"://[^/\s:@]*:(\S+)@", str(properties.get("uri", "")))}
    return secrets_in(properties) | passwords | {str(properties.get("credential", "")).partition(":")[2]} - {""}


def _translated(error: Exception, place: _Place, secrets: Collection[str]) -> VolleyError | None:
    from pyiceberg import exceptions as theirs
    from requests import exceptions as http

    address, text = place.catalog.address, redact(str(error), secrets) or type(error).__name__
    if isinstance(error, VolleyError | theirs.CommitFailedException):
        return None
    if isinstance(error, ImportError | theirs.NotInstalledError):
        return _missing(error, place.catalog)
    absent = isinstance(error, theirs.NoSuchTableError | theirs.NoSuchNamespaceError | theirs.NoSuchIdentifierError)
    # pyiceberg has no exception for a commit to a missing table.
    if absent or (isinstance(error, theirs.RESTError) and _is_missing_table(error)):
        return TableNotFoundError(
            f"table {place.table} not found in {address}: {text}", hint="check namespace and table"
        )
    if isinstance(error, theirs.UnauthorizedError | theirs.OAuthError | theirs.AuthorizationExpiredError):
        return _refused(address, text, 'check the credentials: with_credential("id:secret") or with_token(…)')
    if isinstance(error, theirs.ForbiddenError):
        lacking = f"a privilege is missing: writing needs TABLE_WRITE_DATA on {place.table} (or no credential was"
        return _refused(address, text, f"{lacking} given: with_credential)")
    if isinstance(error, _busy_errors()):
        return _busy(address, text)
    timed_out = isinstance(error, http.ConnectionError | http.Timeout | ConnectionError | TimeoutError)
    if timed_out or type(error).__name__ == "TTransportException":
        return _unreachable(address, text)
    if (origin := getattr(error, "orig", None)) is not None:
        return _sql_error(origin, place.catalog)
    if type(error).__module__ == "botocore.exceptions" and place.catalog.extra == "glue" and not _in_storage(error):
        return _glue_error(error, address, text)
    if isinstance(error, NotImplementedError):
        return _not_offered(address, text, place.table)
    if isinstance(error, theirs.BadRequestError) or type(error).__name__ == "InvalidObjectException":
        return CatalogError(
            f"catalog {address} rejected the request for table {place.table}: {text}",
            hint="the reason is the catalog's own: if it is the name, choose one that this catalog takes",
        )
    if isinstance(error, UnicodeDecodeError) or type(error).__module__.startswith("pydantic_core"):
        return CatalogError(
            f"catalog {address}: what it has of table {place.table} is not in the form of Iceberg's metadata: {text}",
            hint="the table's metadata file may be damaged, or of a format that pyiceberg does not know; the catalog's "
            "list of earlier metadata files has one to go back to",
        )
    if type(error).__module__.partition(".")[0] in _CATALOG_CLIENTS:
        return CatalogError(f"catalog {address}: {text}", hint="check the address; the catalog's own log may say more")
    storage = storage_error(error, place.storage.root, "reaching", secrets)
    if storage is None and redacted(error, secrets) is not error:
        return CatalogError(f"catalog {address}: {text}", hint="check the credentials for characters that don't belong")
    return storage


def _not_offered(address: str, text: str, table: str) -> CatalogError:
    """Return the error for a request that was not sent, or answered with 501."""
    if "V3" in text:
        return CatalogError(
            f"table {table} of catalog {address} has format version 3, which pyiceberg can't commit to here: {text}",
            hint="change it by an engine that writes format version 3, or through a REST catalog",
        )
    return CatalogError(
        f"catalog {address} does not offer a request that this needs: {text}",
        hint="the catalog's documentation lists its requests; use an engine or a catalog that has this one",
    )


def _in_storage(error: Exception) -> bool:
    """Return True if the error was raised below s3fs: its client and Glue's raise the same types."""
    frames = traceback.walk_tb(error.__traceback__)
    return any(frame.f_globals["__name__"].startswith("aiobotocore.") for frame, _ in frames)


def _glue_error(error: Exception, address: str, text: str) -> CatalogError:
    """Translate an error of AWS' client by its code or type name."""
    response = getattr(error, "response", None) or {}
    code = response.get("Error", {}).get("Code") or type(error).__name__
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
    # Extract the reason from the clients' report of their retries.
    reason = re.search(r"\[Errno -?\d+\] [^'\")\n]+|[Tt]imed out", text)
    return CatalogUnreachableError(
        f"catalog {address} does not answer: {reason[0] if reason else text}",
        hint="check that it runs, its address, and the network between",
    )


def _is_missing_table(error: Exception) -> bool:
    response = getattr(error.__cause__, "response", None)
    return response is not None and response.status_code == 404 and "/tables/" in response.url


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
    """Translate an error of a database by its text: databases have no common codes."""
    address, text = source.address, redact_uri(str(error)).strip()
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
