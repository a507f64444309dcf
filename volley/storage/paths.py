"""Makes paths absolute, and opens paths and URLs as fsspec file systems."""

from __future__ import annotations

import glob
import os
from collections.abc import Mapping
from typing import Any

from volley.errors import ConfigError, MissingDependencyError

__all__ = ["absolute", "filesystem"]

_EXTRAS = {"s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs", "abfs": "azure", "abfss": "azure", "az": "azure"}


def absolute(path: str, globs: bool = False) -> str:
    """Return a local path as an absolute one, since executors run in other folders; a URL is returned unchanged.

    Args:
        path: The path or URL.
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
