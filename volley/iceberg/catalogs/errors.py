"""Translates exceptions of pyiceberg and of catalog clients into VolleyErrors."""

from __future__ import annotations

import errno
import re
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
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
from volley.iceberg.catalogs.answers import Answer, answers, is_own_check
from volley.iceberg.storage.errors import storage_error
from volley.secrets import redact, redact_uri, redacted, secrets_in

if TYPE_CHECKING:
    from volley.iceberg.catalogs.config import CatalogConfig
    from volley.iceberg.storage.values import IcebergStorage

__all__ = ["catalog_errors"]

_CATALOG_CLIENTS = {"pyiceberg", "requests", "sqlalchemy"}
_NETWORK = {errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN}
_LONGEST_TEXT = 500
_CHECK_CREDENTIALS = 'check the credentials: with_credential("id:secret") or with_token(…)'
_TABLE = "/v1/namespaces/n/tables/t"
_STATUSES = {
    "AuthorizationExpiredError": 419,
    "BadRequestError": 400,
    "CommitStateUnknownException": 500,
    "ForbiddenError": 403,
    "ServerError": 500,
    "ServiceUnavailableError": 503,
    "TooManyRequestsError": 429,
    "UnauthorizedError": 401,
}
# By request, as Polaris names them.
_PRIVILEGES = {
    "GET table": "a privilege is missing: reading needs TABLE_READ_DATA on {}, writing TABLE_WRITE_DATA",
    "POST table": "a privilege is missing: writing needs TABLE_WRITE_DATA on {}",
    "POST tables": "a privilege is missing: making table {} needs TABLE_CREATE",
    "GET namespace": "a privilege is missing: looking at a namespace needs NAMESPACE_READ_PROPERTIES",
    "GET namespaces": "a privilege is missing: listing namespaces needs NAMESPACE_LIST",
}


@contextmanager
def catalog_errors(
    catalog: CatalogConfig, storage: IcebergStorage, table: str, properties: Callable[[], Mapping[str, Any]]
) -> Iterator[None]:
    """Translate exceptions of pyiceberg and the clients below it into VolleyErrors.

    A conflict (pyiceberg's ``CommitFailedException``) is not translated: the committer handles it.

    Args:
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
        text = _text(error, secrets)
        translated = _translated(error, _Origin(catalog, storage, table), text, secrets)
        if translated is None:
            raise
        # What the catalog has answered stands in pydantic's own text: credentials for the storage, or a token.
        cause = redacted(error, secrets) if _faults(error) is None else RuntimeError(text)
        raise translated from cause


def _text(error: Exception, secrets: Collection[str]) -> str:
    """Return the text of an error in one line, without secrets, and without most of a page of HTML."""
    if (faults := _faults(error)) is None:
        text = str(error) or type(error).__name__
    else:
        text = "; ".join(f"{'.'.join(map(str, fault['loc']))} {fault['msg']}".strip() for fault in faults)
    line = " ".join(redact(text, secrets).split())
    return line if len(line) <= _LONGEST_TEXT else line[:_LONGEST_TEXT] + "…"


def _faults(error: Exception) -> list[dict[str, Any]] | None:
    """Return what pydantic found wrong, without the values; None for any other error."""
    # pyiceberg has an exception of its own around that of pydantic for a metadata file.
    pydantic: Any = error.__cause__ if type(error).__module__ == "pyiceberg.exceptions" else error
    if type(pydantic).__name__ != "ValidationError" or not type(pydantic).__module__.startswith("pydantic_core"):
        return None
    faults: list[dict[str, Any]] = pydantic.errors(include_url=False, include_context=False, include_input=False)
    return faults


@dataclass(frozen=True)
class _Origin:
    catalog: CatalogConfig
    storage: IcebergStorage
    table: str


def _secrets(properties: Mapping[str, Any]) -> set[str]:
    passwords = {unquote(match) for match in re.findall(r"://[^/\s:@]*:(\S+)@", str(properties.get("uri", "")))}
    return secrets_in(properties) | passwords | {str(properties.get("credential", "")).partition(":")[2]} - {""}


def _translated(error: Exception, place: _Origin, text: str, secrets: Collection[str]) -> VolleyError | None:
    from pyiceberg import exceptions as theirs

    address = place.catalog.address
    if isinstance(error, VolleyError | theirs.CommitFailedException):
        return None
    if isinstance(error, ImportError | theirs.NotInstalledError):
        return _missing(error, place.catalog)
    if isinstance(error, theirs.OAuthError):
        return _refused(address, text, _CHECK_CREDENTIALS)
    if isinstance(error, theirs.RESTError | NotImplementedError) and (answer := _answer_of(error)):
        return _by_status(answer, address, text, place.table)
    if isinstance(error, theirs.NoSuchTableError | theirs.NoSuchNamespaceError | theirs.NoSuchIdentifierError):
        answer = next(answers(error), Answer(404))
        # Those of AWS have no path.
        return _not_found(replace(answer, path=answer.path or _TABLE), address, text, place.table)
    if _is_lost(error):
        return _untrusted(address) if "CERTIFICATE_VERIFY_FAILED" in text else _unreachable(address, text)
    if (origin := getattr(error, "orig", None)) is not None:
        return _sql_error(origin, place.catalog)
    if type(error).__module__ == "botocore.exceptions" and place.catalog.extra == "glue" and not _in_storage(error):
        return _glue_error(error, address, text, place.table)
    if isinstance(error, NotImplementedError):
        return _not_offered(address, text)
    if isinstance(error, UnicodeDecodeError) or _faults(error) is not None or _is_garbled(error):
        return _unreadable(error, address, text, place.table)
    return _of_client(error, address, text, place.table) or _of_storage(error, place, text, secrets)


def _answer_of(error: Exception) -> Answer | None:
    """Return the answer that has caused an error, or the one that its class stands for; None if neither is known."""
    status = _STATUSES.get(type(error).__name__)
    return next(answers(error), None) or (None if status is None else Answer(status, method="POST", path=_TABLE))


def _is_lost(error: Exception) -> bool:
    """Return True if a connection was not made, or ended before the answer did."""
    from requests import exceptions as http

    lost = (http.ConnectionError, http.Timeout, http.ChunkedEncodingError, ConnectionError, TimeoutError)
    # Thrift's client passes on what a socket raises.
    unreachable = isinstance(error, OSError) and error.errno in _NETWORK
    return isinstance(error, lost) or unreachable or type(error).__name__ == "TTransportException"


def _by_status(answer: Answer, address: str, text: str, table: str) -> CatalogError:
    """Translate the answer of a REST catalog."""
    if answer.status in (401, 419):
        return _refused(address, text, _CHECK_CREDENTIALS)
    if answer.status in (407, 511):
        return _refused(
            address, text, "this is a proxy's answer: set HTTPS_PROXY with the user and password it asks for"
        )
    if answer.status == 403:
        needed = _PRIVILEGES.get(f"{answer.method} {answer.subject}", "the credentials may not use this warehouse")
        return _refused(address, text, f"{needed.format(table)} (or no credential was given: with_credential)")
    if not answer.is_offered:
        return _not_offered(address, text)
    if answer.is_busy:
        return _busy(address, text)
    if answer.status == 404:
        return _not_found(answer, address, text, table)
    return _rejected(address, text, table, answer.subject)


def _not_found(answer: Answer, address: str, text: str, table: str) -> CatalogError:
    if not answer.subject.startswith("table"):
        return CatalogError(
            f"catalog {address} has no {answer.path.rpartition('/v1')[2] or answer.path}: {text}",
            hint="check the address, which ends before /v1, and the warehouse",
        )
    address_too = "" if answer.is_of_catalog else ", and the address: this is not an answer of an Iceberg catalog"
    return TableNotFoundError(
        f"table {table} not found in {address}: {text}", hint=f"check namespace and table{address_too}"
    )


def _rejected(address: str, text: str, table: str, subject: str = "table") -> CatalogError:
    if not subject:
        return CatalogError(
            f"catalog {address} rejected the request for its settings: {text}",
            hint="the reason is the catalog's own: check address, warehouse and properties",
        )
    what = "table" if subject.startswith("table") else "the namespace of table"
    return CatalogError(f"catalog {address} rejected the request for {what} {table}: {text}", hint=_way_out(what, text))


def _way_out(what: str, text: str) -> str:
    """Return what to do about a request that a catalog has rejected with this text."""
    if mark := re.search(r"volley\.[a-z-]+", text):
        return f"properties that begin with {mark[0]} keep which rows are in the table: have the catalog take them"
    if what != "table":
        return "the reason is the catalog's own: choose a name that it takes, of one level if it has no more"
    return "the reason is the catalog's own: choose names that it takes, and leave out table_properties that it refuses"


def _is_garbled(error: Exception) -> bool:
    from requests import exceptions as http

    return isinstance(error, http.JSONDecodeError | http.ContentDecodingError | http.TooManyRedirects)


def _unreadable(error: Exception, address: str, text: str, table: str) -> CatalogError:
    """Return the error for an answer of another protocol, or for metadata that can't be read."""
    if _is_garbled(error) or _is_no_response(error):
        return CatalogError(
            f"catalog {address} gave an answer that is not of Iceberg's REST protocol: {text}",
            hint="check the address, which ends before /v1"
            + (
                "; a proxy or a page to sign in may stand before it"
                if _is_no_json(error)
                else ", and the server's version"
            ),
        )
    return CatalogError(
        f"catalog {address}: what it has of table {table} is not in the form of Iceberg's metadata: {text}",
        hint="the table's metadata file may be damaged, or of a format that pyiceberg does not know; the catalog's "
        "list of earlier metadata files has one to go back to",
    )


def _is_no_json(error: Exception) -> bool:
    faults = _faults(error)
    return faults is None or any(fault["type"] == "json_invalid" for fault in faults)


def _is_no_response(error: Exception) -> bool:
    """Return True if an answer has another form than the protocol says, except for the metadata within."""
    faults = _faults(error) or []
    within = any(fault["loc"][:1] == ("metadata",) and fault["type"] != "missing" for fault in faults)
    return bool(faults) and str(getattr(error, "title", "")).endswith("Response") and not within


def _of_client(error: Exception, address: str, text: str, table: str) -> CatalogError | None:
    """Translate other errors of pyiceberg and of the clients below it."""
    client = type(error).__module__.partition(".")[0]
    if client in ("hive_metastore", "thrift"):
        return _rejected(address, text, table)
    if type(error).__name__ == "SignError":
        return None
    if is_own_check(error):
        return CatalogError(
            f"table {table} of catalog {address}: pyiceberg refuses this: {type(error).__name__}: {text}",
            hint="the text says what it can't read or do: another engine may, or another setting of the table",
        )
    if client in _CATALOG_CLIENTS:
        return CatalogError(f"catalog {address}: {text}", hint="check the address; the catalog's own log may say more")
    return None


def _of_storage(error: Exception, place: _Origin, text: str, secrets: Collection[str]) -> VolleyError | None:
    storage = storage_error(error, place.storage.root, "reaching", secrets)
    if storage is None and redacted(error, secrets) is not error:
        hint = "check the credentials for characters that don't belong"
        return CatalogError(f"catalog {place.catalog.address}: {text}", hint=hint)
    return storage


def _not_offered(address: str, text: str) -> CatalogError:
    """Return the error for a request that was not sent, or answered with 501."""
    return CatalogError(
        f"catalog {address} does not offer a request that this needs: {text}",
        hint="the catalog's documentation lists its requests; use an engine or a catalog that has this one",
    )


def _in_storage(error: Exception) -> bool:
    """Return True if the error was raised below s3fs: its client and Glue's raise the same types."""
    frames = traceback.walk_tb(error.__traceback__)
    return any(frame.f_globals["__name__"].startswith("aiobotocore.") for frame, _ in frames)


def _glue_error(error: Exception, address: str, text: str, table: str) -> CatalogError:
    """Translate an error of AWS' client by its code or type name."""
    response = getattr(error, "response", None) or {}
    code = response.get("Error", {}).get("Code") or type(error).__name__
    if re.search("Throttling|InternalService|ServiceUnavailable|OperationTimeout|TooManyRequests", code):
        return _busy(address, text)
    if re.search("Connect|Timeout|HTTPClient", code):
        return _unreachable(address, text)
    if re.search("AccessDenied|Credential|Token|Signature|Unauthorized|Profile|InvalidClientTokenId", code):
        return _refused(address, text, "check AWS' credentials (profile, environment) and that they allow glue:*")
    if re.search("InvalidInput|Validation|LimitExceeded", code):
        return _rejected(address, text, table)
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


def _untrusted(address: str) -> CatalogError:
    return CatalogError(
        f"catalog {address} has a certificate that is not trusted here",
        hint='give the authority that has signed it: properties={"ssl": {"cabundle": "/etc/ssl/ca.pem"}}, or the '
        "variable REQUESTS_CA_BUNDLE",
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
    if source.file is not None and "disk is full" in text:
        return StorageError(f"catalog file {source.file} failed: {text}", hint="make room, then start the job again")
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
