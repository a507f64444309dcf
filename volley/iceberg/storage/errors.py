"""Translates exceptions of files and storage clients into StorageErrors."""

from __future__ import annotations

import errno
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from volley.errors import StorageAccessError, StorageError
from volley.iceberg.storage.permissions import permission_hint
from volley.secrets import redact, redact_uri, redacted

__all__ = ["storage_error", "storage_errors"]

_STORAGE_CLIENTS = {"aiohttp", "azure", "botocore", "gcsfs", "google", "s3fs", "sqlite3"}
# gcsfs has no codes, only texts.
_GCS_REFUSALS = ("Forbidden:", "Invalid Credentials")
# An upload gets a 404 only for this reason.
_NO_BUCKET = re.compile(r"NoSuchBucket|bucket does not exist|ContainerNotFound|/upload/storage/v1/b/", re.I)
_REFUSED = re.compile(
    r"credential|access.?denied|forbidden|unauthori[sz]ed|authentication|expired.?token|\b40[13]\b", re.I
)


@contextmanager
def storage_errors(path: str, action: str = "writing") -> Iterator[None]:
    """Translate exceptions of files and storage clients into StorageErrors; others are not caught.

    Args:
        path: The file or folder, for the message.
        action: The operation, for the message, as in "writing".

    Raises:
        StorageAccessError: If the storage rejects the credentials, or they lack a permission.
        StorageError: If it fails otherwise.
    """
    try:
        yield
    except Exception as error:
        translated = storage_error(error, path, action)
        if translated is None:
            raise
        raise translated from redacted(error)


def storage_error(
    error: Exception, path: str, action: str = "writing", secrets: Collection[str] = ()
) -> StorageError | None:
    """Return the StorageError for an exception of a file or storage client; None for any other exception."""
    chain = (error, error.__cause__)
    client = next((cause for cause in chain if cause is not None and _of_client(cause)), None)
    if client is None and not isinstance(error, OSError):
        return None
    if type(client).__name__ == "SignError":
        return StorageAccessError(
            f"{action} {redact_uri(path)} was refused: the catalog did not sign the request ({_signing(client)})",
            hint="the catalog signs requests to its storage for those who may use the table: check the privileges "
            "there, and its log; or give the storage keys of its own",
        )
    # Azure's errors have the whole body of the response on further lines.
    where, text = redact_uri(path), redact(str(error), secrets).strip().partition("\n")[0] or type(error).__name__
    if _is_refusal(error, client, text):
        return StorageAccessError(
            f"{action} {where} was refused: {text}", hint=permission_hint(client or error, where, action)
        )
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return StorageError(f"{action} {where} failed: no space left", hint="make room, then start the job again")
    if _NO_BUCKET.search(f"{client!r} {text}"):
        return StorageError(f"{action} {where} failed: {text}", hint=f"make {_bucket(where)} first, or check its name")
    return StorageError(f"{action} {where} failed: {text}", hint="check that the place exists and can be reached")


def _signing(error: BaseException | None) -> str:
    """Return what a signing service answered; the text behind has the whole request."""
    return str(error).partition(":")[0]


def _of_client(error: BaseException) -> bool:
    return type(error).__name__ == "SignError" or type(error).__module__.partition(".")[0] in _STORAGE_CLIENTS


def _is_refusal(error: Exception, client: BaseException | None, text: str) -> bool:
    if isinstance(error, PermissionError) or text.startswith(_GCS_REFUSALS):
        return True
    return client is not None and bool(_REFUSED.search(f"{type(client).__name__} {text} {client}"))


def _bucket(url: str) -> str:
    where = urlsplit(url)
    return f"container {where.username!r}" if where.username else f"bucket {where.netloc!r}"
