"""What to do about a storage's refusal: which permission is missing, or that it was the keys."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

__all__ = ["permission_hint"]

_S3_OPERATIONS = {
    "PutObject": "s3:PutObject",
    "CopyObject": "s3:PutObject",
    "CreateMultipartUpload": "s3:PutObject",
    "UploadPart": "s3:PutObject",
    "CompleteMultipartUpload": "s3:PutObject",
    "GetObject": "s3:GetObject",
    # S3 answers 403, not 404, about a file that is not there to whoever may not list.
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
_EXPIRED = re.compile(r"ExpiredToken|TokenRefreshRequired|token.{0,20}expired", re.I)


def permission_hint(error: BaseException, url: str, action: str) -> str:
    """The way out for whoever was refused.

    Args:
        error: The client's error.
        url: The file or folder.
        action: What was being done with it.

    Example:
        >>> permission_hint(PermissionError("Access Denied"), "gs://lake/db/events", "listing")
        "storage.objects.list on bucket 'lake' is missing: grant the role roles/storage.objectUser there"
    """
    where = urlsplit(url)
    if where.scheme in ("", "file"):
        return "check the folder's owner and permissions"
    said = f"{type(error).__name__} {_code(error)} {error}"
    if _EXPIRED.search(said):
        return "the keys have expired: give fresh ones, or let the catalog or the cloud's default chain do so"
    if where.scheme.startswith("ab"):
        return _azure(said, where.username or where.netloc)
    if where.scheme == "gs":
        return _gcs(said, where.netloc, action)
    return _s3(said, where.netloc, getattr(error, "operation_name", None))


def _code(error: BaseException) -> str:
    """The error's code in the words of its cloud."""
    response = getattr(error, "response", None)
    if isinstance(response, dict):
        return str(response.get("Error", {}).get("Code"))
    return str(getattr(error, "error_code", ""))


def _s3(said: str, bucket: str, operation: str | None) -> str:
    if _WRONG_KEYS.search(said):
        return "check access_key_id, secret_access_key and session_token; without them, what the default chain finds"
    lacking = _S3_OPERATIONS.get(operation or "", _S3_ALL)
    # The answer to a HeadObject has no body that would say which of the two it was.
    way_out = "check access_key_id and secret_access_key, or allow it" if operation == "HeadObject" else "allow it"
    return f"{lacking} on bucket {bucket!r} is missing: {way_out} in the policy of the bucket or the user"


def _azure(said: str, container: str) -> str:
    if _WRONG_KEYS.search(said):
        return "check access_key; without it, what DefaultAzureCredential finds (environment, managed identity, CLI)"
    return f"access to container {container!r} is missing: grant the role Storage Blob Data Contributor there"


def _gcs(said: str, bucket: str, action: str) -> str:
    if _WRONG_KEYS.search(said):
        return "check service_account_key; without it, what Application Default Credentials find"
    lacking = _GCS_ACTIONS.get(action, _GCS_ALL)
    return f"{lacking} on bucket {bucket!r} is missing: grant the role roles/storage.objectUser there"
