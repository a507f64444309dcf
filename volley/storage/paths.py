"""Makes paths absolute, opens paths and URLs as fsspec file systems, and sees whether a folder there can be used."""

from __future__ import annotations

import glob
import os
import uuid
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from volley.errors import ConfigError, MissingDependencyError, StorageError
from volley.secrets import redact_uri, redacted

__all__ = ["absolute", "filesystem", "modified_time", "write_and_delete"]

_EXTRAS = {"s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs", "abfs": "azure", "abfss": "azure", "az": "azure"}
_KEYS = ("mtime", "LastModified", "last_modified", "updated", "created")


def absolute(path: str, globs: bool = False) -> str:
    """Return a local path as an absolute one, since executors run in other folders; a URL is returned unchanged.

    Args:
        globs: True: the path may be a glob. The characters of the working folder still stand for themselves.

    Example:
        >>> absolute("s3://bucket/in"), absolute("/data/../in"), absolute("file:///in")
        ('s3://bucket/in', '/in', '/in')
    """
    path = path.removeprefix("file://")
    if "://" in path or "::" in path:
        return path
    path = os.path.expanduser(path)
    whole = os.path.abspath(path)
    if globs and glob.has_magic(path) and not os.path.exists(whole):
        return os.path.normpath(os.path.join(glob.escape(os.getcwd()), path))
    return whole


def filesystem(path: str, options: Mapping[str, Any]) -> tuple[Any, str]:
    """Return the fsspec file system of a path or URL, and the path in it, without a slash at the end.

    Raises:
        MissingDependencyError: If the package for the URL's scheme is not installed.
        ConfigError: If the URL's scheme is unknown.
    """
    import fsspec

    scheme = path.partition("://")[0]
    try:
        files, root = fsspec.core.url_to_fs(path, **options)
    except ImportError as error:
        hint = f'pip install "volley-stream[{_EXTRAS[scheme]}]"' if scheme in _EXTRAS else "install its fsspec package"
        raise MissingDependencyError(f"files of {scheme}:// need a package that is missing: {error}", hint) from error
    except ValueError as error:
        hint = "check the path's scheme, and what storage_options it needs"
        raise ConfigError(f"{scheme}:// can't be used as a file system: {error}", hint=hint) from error
    return files, root.rstrip("/") or "/"


def modified_time(info: Mapping[str, Any]) -> float | None:
    """Return when a file was last written, in seconds since 1970; None if its file system does not report it.

    Args:
        info: The file's details as fsspec returns them; each file system has its own key for the time.

    Example:
        >>> modified_time({"name": "a.json", "LastModified": "1970-01-01T00:01:00Z"})
        60.0
    """
    time = next((info[key] for key in _KEYS if info.get(key)), None)
    if isinstance(time, str):
        time = datetime.fromisoformat(time)
    return time.timestamp() if isinstance(time, datetime) else time


def write_and_delete(folder: str, options: Mapping[str, Any]) -> str:
    """Write a small file in a folder, read it and delete it; return what was done, in words.

    Folders that had to be made for it are deleted too.

    Args:
        folder: A path or URL; it may not exist yet.

    Raises:
        StorageError: If one of the three fails.
    """
    files, root = filesystem(folder, options)
    missing = [parent for parent in _parents(root) if not files.exists(parent)]
    path, action = f"{root}/.volley-check-{uuid.uuid4().hex}", "written"
    try:
        files.makedirs(root, exist_ok=True)
        files.pipe_file(path, b"volley")
        action = "read"
        files.cat_file(path)
        action = "deleted"
        files.rm_file(path)
        for parent in missing:
            files.rmdir(parent)
    except Exception as error:
        raise StorageError(
            f"a file in {redact_uri(folder)} can't be {action}: {redact_uri(str(error))}",
            hint="check that the folder exists and who may write there",
        ) from redacted(error)
    return f"{redact_uri(folder)}: written, read and deleted"


def _parents(path: str) -> list[str]:
    """Return a folder and those that it is in, the innermost first."""
    parts = path.split("/")
    return ["/".join(parts[:length]) for length in range(len(parts), 1, -1)]
