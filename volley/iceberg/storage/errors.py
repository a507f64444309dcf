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
        made = storage_error(error, path, action)
        if made is None:
            raise
        raise made from redacted(error)


def storage_error(
    error: Exception, path: str, action: str = "writing", secrets: Collection[str] = ()
) -> StorageError | None:
    """Return the StorageError for an exception of a file or storage client; None if it is neither's."""
    client = next((each for each in (error, error.__cause__) if each is not None and _of_client(each)), None)
    if client is None and not isinstance(error, OSError):
        return None
    # Azure's errors have the answer's whole body on further lines.
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


def _of_client(error: BaseException) -> bool:
    return type(error).__module__.partition(".")[0] in _STORAGE_CLIENTS


def _is_refusal(error: Exception, client: BaseException | None, text: str) -> bool:
    if isinstance(error, PermissionError) or text.startswith(_GCS_REFUSALS):
        return True
    return client is not None and bool(_REFUSED.search(f"{type(client).__name__} {text} {client}"))


def _bucket(url: str) -> str:
    where = urlsplit(url)
    return f"container {where.username!r}" if where.username else f"bucket {where.netloc!r}"
