"""Translates exceptions of files and storage clients into StorageErrors, which say what permission is missing."""

from __future__ import annotations

import errno
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from volley.errors import StorageAccessError, StorageError
from volley.secrets import redact, redact_uri, redacted

__all__ = ["storage_error", "storage_errors"]

_S3_OPERATIONS = {
    "PutObject": "s3:PutObject",
    "CopyObject": "s3:PutObject",
    "CreateMultipartUpload": "s3:PutObject",
    "UploadPart": "s3:PutObject",
    "CompleteMultipartUpload": "s3:PutObject",
    "GetObject": "s3:GetObject",
    # Without the right to list, S3 returns 403 instead of 404 for a missing file.
    "HeadObject": "s3:GetObject and s3:ListBucket",
    "ListObjectsV2": "s3:ListBucket",
    "HeadBucket": "s3:ListBucket",
    "DeleteObject": "s3:DeleteObject",
    "DeleteObjects": "s3:DeleteObject",
}
_S3_ALL = "s3:GetObject, s3:PutObject, s3:DeleteObject, s3:ListBucket"
_GCS_ACTIONS = {
    "writing": "storage.objects.create and storage.objects.delete",
    "closing": "storage.objects.create and storage.objects.delete",
    "reading": "storage.objects.get",
    "listing": "storage.objects.list",
}
_GCS_ALL = "storage.objects.create, .get, .list, .delete"
_WRONG_KEYS = re.compile(
    r"InvalidAccessKeyId|SignatureDoesNotMatch|InvalidToken|InvalidAuthenticationInfo|AuthenticationFailed"
    r"|AuthorizationFailure|NoAuthenticationInformation|invalid_grant|invalid_client|Invalid Credentials"
    r"|credentials? (?!lack)|\b401\b",
    re.I,
)
_NO_KEYS = re.compile(r"NoCredentialsError|PartialCredentialsError|Unable to locate credentials|Partial credentials")
_EXPIRED = re.compile(r"ExpiredToken|TokenRefreshRequired|token.{0,20}expired", re.I)

_STORAGE_CLIENTS = {"aiohttp", "azure", "botocore", "gcsfs", "google", "s3fs", "sqlite3"}
# gcsfs has no codes, only texts.
_GCS_REFUSALS = ("Forbidden:", "Invalid Credentials")
# An upload gets a 404 only for this reason.
_NO_BUCKET = re.compile(r"NoSuchBucket|bucket does not exist|ContainerNotFound|/upload/storage/v1/b/", re.I)
_REFUSED = re.compile(
    r"credential|access.?denied|forbidden|unauthori[sz]ed|authentication|expired.?token|\b40[13]\b", re.I
)


def permission_hint(error: BaseException, url: str, action: str) -> str:
    """Return the hint for a refused request.

    Args:
        action: The operation, as in "writing".
    """
    where = urlsplit(url)
    if where.scheme in ("", "file"):
        return "check the folder's owner and permissions"
    text = f"{type(error).__name__} {_code(error)} {error}"
    if _EXPIRED.search(text):
        return "the keys have expired: give fresh ones, or let the catalog or the cloud's default chain do so"
    if where.scheme.startswith("ab"):
        return _azure(text, where.username or where.netloc)
    if where.scheme == "gs":
        return _gcs(text, where.netloc, action)
    return _s3(text, where.netloc, getattr(error, "operation_name", None))


def _code(error: BaseException) -> str:
    """Return the cloud's code of the error."""
    response = getattr(error, "response", None)
    if isinstance(response, dict):
        return str(response.get("Error", {}).get("Code"))
    return str(getattr(error, "error_code", ""))


def _s3(text: str, bucket: str, operation: str | None) -> str:
    if _NO_KEYS.search(text):
        return (
            "no keys were found: give access_key_id and secret_access_key, or a role, profile or environment; "
            "a REST catalog that is set up to gives them, too"
        )
    if _WRONG_KEYS.search(text):
        return "check access_key_id, secret_access_key and session_token; without them, what the default chain finds"
    lacking = _S3_OPERATIONS.get(operation or "", _S3_ALL)
    # A HeadObject response has no body that says which of the two is missing.
    way_out = "check access_key_id and secret_access_key, or allow it" if operation == "HeadObject" else "allow it"
    return f"{lacking} on bucket {bucket!r} is missing: {way_out} in the policy of the bucket or the user"


def _azure(text: str, container: str) -> str:
    if _WRONG_KEYS.search(text):
        return "check access_key; without it, what DefaultAzureCredential finds (environment, managed identity, CLI)"
    return f"access to container {container!r} is missing: grant the role Storage Blob Data Contributor there"


def _gcs(text: str, bucket: str, action: str) -> str:
    if _WRONG_KEYS.search(text):
        return "check service_account_key; without it, what Application Default Credentials find"
    lacking = _GCS_ACTIONS.get(action, _GCS_ALL)
    return f"{lacking} on bucket {bucket!r} is missing: grant the role roles/storage.objectUser there"


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
    if _is_full(error, text):
        return StorageError(f"{action} {where} failed: no space left", hint="make room, then start the job again")
    if _is_read_only(error, text):
        return StorageError(
            f"{action} {where} failed: {text}", hint="it is read-only: mount it for writing, or name another place"
        )
    if _NO_BUCKET.search(f"{client!r} {text}"):
        return StorageError(f"{action} {where} failed: {text}", hint=f"make {_bucket(where)} first, or check its name")
    return StorageError(f"{action} {where} failed: {text}", hint="check that the place exists and can be reached")


def _is_full(error: Exception, text: str) -> bool:
    return getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT) or "disk is full" in text


def _is_read_only(error: Exception, text: str) -> bool:
    return getattr(error, "errno", None) == errno.EROFS or "readonly database" in text


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
