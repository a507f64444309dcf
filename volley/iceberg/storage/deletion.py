"""Deletes files: on S3 a thousand in one request, elsewhere several at the same time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count
from typing import Any

from fsspec import AbstractFileSystem

from volley.iceberg.storage.errors import storage_error
from volley.secrets import redact
from volley.task.failpoints import reach

__all__ = ["delete_files", "deletion_error"]

_THREADS = 16
# The most keys of one DeleteObjects request.
_CHUNK = 1000

FilesOf = Callable[[str], AbstractFileSystem]


def delete_files(
    files_of: FilesOf, paths: Sequence[str], may_go_on: Callable[[], bool] = lambda: True
) -> tuple[int, dict[str, Exception]]:
    """Delete files in chunks, in their order. A file that is gone counts as deleted.

    Args:
        files_of: Returns the file system of a path.
        paths: Their paths or URLs, as that file system takes them; a ``*`` in one stands for itself.
        may_go_on: Asked before each chunk; False ends the deletion.

    Returns:
        The number of files, from the first on, that were to be deleted by then, and the exception for each of them
        that can't be deleted.
    """
    failures: dict[str, Exception] = {}
    with ThreadPoolExecutor(_THREADS) as pool:
        for start in range(0, len(paths), _CHUNK):
            if not may_go_on():
                return start, failures
            chunk = paths[start : start + _CHUNK]
            left = _left_on_s3(files_of(chunk[0]), chunk)
            outcomes = pool.map(partial(_delete, files_of), left, count(start + 1))
            failures |= {path: failure for path, failure in zip(left, outcomes, strict=True) if failure}
    return len(paths), failures


def deletion_error(error: Exception, path: str) -> str:
    """Return the reason for which a file can't be deleted, without secrets."""
    translated = storage_error(error, path, "deleting")
    return translated.message if translated else redact(str(error)) or type(error).__name__


def _delete(files_of: FilesOf, path: str, number: int) -> Exception | None:
    """Delete the file with this number; return the exception if it can't be deleted."""
    failure = _failure(files_of, path)
    reach("in-deletion", number)
    return failure


def _failure(files_of: FilesOf, path: str) -> Exception | None:
    try:
        # Not `rm`: it would take * and [ in a path for a pattern.
        files_of(path).rm_file(path)
    except FileNotFoundError:
        pass
    except Exception as error:
        return error
    return None


def _left_on_s3(files: Any, paths: Sequence[str]) -> Sequence[str]:
    """Delete files by one request; return those that it has not deleted: all, if there is no such request.

    Not `rm` of s3fs: it takes * for a pattern, and reports no failures.
    """
    if "s3" not in files.protocol:
        return paths
    by_key = {files.split_path(path)[:2]: path for path in paths}
    buckets = {bucket for bucket, _ in by_key}
    if len(buckets) > 1:
        return paths
    (bucket,) = buckets
    request = {"Objects": [{"Key": key} for _, key in by_key], "Quiet": True}
    try:
        answer = files.call_s3("delete_objects", Bucket=bucket, Delete=request)
    except Exception:
        return paths
    return [by_key[bucket, failure["Key"]] for failure in answer.get("Errors", ())]
