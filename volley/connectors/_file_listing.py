"""Which files a FileSource finds, and in which order."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from volley._secrets import mask_uri, presentable
from volley.connectors._file_log import LoggedFile
from volley.connectors._paths import filesystem
from volley.errors import SourceError

__all__ = ["check_exists", "list_files"]

_MAGIC = frozenset("*?[")


def check_exists(path: str, options: Mapping[str, Any]) -> None:
    """Raise SourceError if a file or folder is not there; a glob may match nothing yet."""
    files, root = filesystem(path, options)
    try:
        if _is_glob(files, root) or files.exists(root):
            return
    except Exception as error:
        raise _unlistable(path, error) from presentable(error)
    raise SourceError(
        f"{mask_uri(path)} does not exist", hint="check the path; an empty folder is fine, a missing one is not"
    )


def list_files(path: str, options: Mapping[str, Any]) -> list[LoggedFile]:
    """All files of a folder, file or glob that are there and complete, oldest first, then by name.

    Raises:
        SourceError: If there is no such folder or file, or it can't be listed.
    """
    files, root = filesystem(path, options)
    try:
        # Listings of object stores are cached for good unless they are thrown away.
        files.invalidate_cache()
        check_exists(path, options)
        found = files.glob(root, detail=True) if (globbed := _is_glob(files, root)) else _below(files, root)
    except SourceError:
        raise
    except Exception as error:
        raise _unlistable(path, error) from presentable(error)
    whole = [info for info in found.values() if info["type"] == "file" and not _is_hidden(info["name"], root, globbed)]
    whole.sort(key=lambda info: (_modified(info), info["name"]))
    return [LoggedFile(info["name"], info["size"]) for info in whole]


def _unlistable(path: str, error: Exception) -> SourceError:
    return SourceError(f"{mask_uri(path)} can't be listed: {mask_uri(str(error))}", hint="check path and permissions")


def _is_glob(files: Any, root: str) -> bool:
    """True if the path has a glob's characters, and is not there under just that name."""
    return bool(_MAGIC & set(root)) and not files.exists(root)


def _below(files: Any, root: str) -> dict[str, Any]:
    if files.isfile(root):
        return {root: files.info(root)}
    found: dict[str, Any] = files.find(root, detail=True)
    return found


def _is_hidden(name: str, root: str, globbed: bool) -> bool:
    """True if the file, or a folder it is in below the one that was asked for, is not meant to be read."""
    if globbed:
        root = root[: min(root.index(char) for char in _MAGIC if char in root)].rpartition("/")[0]
    parts = [part for part in name.removeprefix(root).split("/") if part]
    return any(part.startswith((".", "_")) for part in parts) or name.endswith((".tmp", ".crc"))


def _modified(info: Mapping[str, Any]) -> float:
    """The time a file was written, by whichever name its file system has for it."""
    keys = ("mtime", "LastModified", "last_modified", "updated", "created")
    time = next((info[key] for key in keys if info.get(key)), 0.0)
    if isinstance(time, str):
        time = datetime.fromisoformat(time)
    return time.timestamp() if isinstance(time, datetime) else float(time)
