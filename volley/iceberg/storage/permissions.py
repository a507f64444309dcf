"""Explains a storage's refusal: which permission is missing, or that the keys are wrong."""

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


def permission_hint(error: BaseException, url: str, action: str) -> str:
    """Return the hint for a refused request.

    Args:
        error: The client's error.
        url: The file or folder.
        action: The operation, as in "writing".

    Example:
        >>> permission_hint(PermissionError("Access Denied"), "gs://lake/db/events", "listing")
        "storage.objects.list on bucket 'lake' is missing: grant the role roles/storage.objectUser there"
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
