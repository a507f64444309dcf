"""Which files a FileSource finds, and in which order."""

from __future__ import annotations

import difflib
import posixpath
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import islice
from typing import Any

from volley.connectors.files.log import LoggedFile
from volley.errors import SourceError, VolleyError
from volley.secrets import mask_uri, presentable
from volley.storage.listing import modified_time
from volley.storage.paths import filesystem

__all__ = ["MARKERS", "STAGED", "check_exists", "check_not_empty", "list_files"]

MARKERS = "_volley"
"""The folder in which a FileSink keeps its marks, beside the files of its epochs."""

STAGED = ".volley-"
"""What the names of a FileSink's files begin with before they are published."""

_MAGIC = frozenset("*?[")
_SHOWN = 5
_LEFT_OUT = "names that begin with . or _ or end in .tmp or .crc are left out, and so are links"


def check_exists(path: str, options: Mapping[str, Any], known: Collection[str] = ()) -> None:
    """Raise SourceError if a file, a folder or the folder that a glob begins with is not there.

    An object store has no folders: one whose files have been deleted is gone. A local folder that is gone has been
    moved, or its disk is not mounted.

    Args:
        path: The path of the source.
        options: For fsspec.
        known: The files that were found there before.
    """
    files, root = filesystem(path, options)
    with _listing(path):
        # Listings of object stores are cached for good unless they are thrown away.
        files.invalidate_cache()
        base = _base(root) if _is_glob(files, root) else root
        if files.exists(base) or (known and (base in known or not _is_local(files))):
            return
        hint = f"{_what_is_there(files, base)}an empty folder is fine, a missing one is not"
    folder = "" if base == root else f": there is no folder {mask_uri(base)}"
    raise SourceError(f"{mask_uri(path)} does not exist{folder}", hint=hint)


def check_not_empty(path: str, options: Mapping[str, Any]) -> None:
    """Raise SourceError if a glob matches no file, or if a folder has files and none of them is to be read.

    An empty folder passes: what is to be read may come before the next run.
    """
    files, root = filesystem(path, options)
    with _listing(path):
        globbed = _is_glob(files, root)
        left_out = []
        for info in files.glob(root, detail=True).values() if globbed else _entries(files, root):
            if _is_taken(info, root, globbed):
                return
            if info["type"] != "directory" and not _is_of_a_sink(info["name"]):
                left_out.append(info["name"])
        if not globbed and not left_out and files.isdir(root):
            return
        hint = f"there are {_listed(sorted(left_out))}; " if left_out else _what_is_there(files, _base(root))
    raise SourceError(f"{mask_uri(path)} matches no file to read", hint=hint + _LEFT_OUT)


def list_files(path: str, options: Mapping[str, Any], known: Collection[str] = ()) -> list[LoggedFile]:
    """All files of a folder, file or glob that are there and complete, oldest first, then by name.

    Args:
        path: The path of the source.
        options: For fsspec.
        known: The files that were found there before.

    Raises:
        SourceError: If there is no such folder or file, or it can't be listed.
    """
    files, root = filesystem(path, options)
    with _listing(path):
        check_exists(path, options, known)
        found = files.glob(root, detail=True) if (globbed := _is_glob(files, root)) else _below(files, root)
    whole = [info for info in found.values() if _is_taken(info, root, globbed)]
    whole.sort(key=lambda info: (modified_time(info) or 0.0, info["name"]))
    return [LoggedFile(info["name"], info["size"]) for info in whole]


@contextmanager
def _listing(path: str) -> Iterator[None]:
    """Whatever the storage's driver raises as one of ours."""
    try:
        yield
    except VolleyError:
        raise
    except Exception as error:
        raise SourceError(
            f"{mask_uri(path)} can't be listed: {mask_uri(str(error))}", hint="check path and permissions"
        ) from presentable(error)


def _is_glob(files: Any, root: str) -> bool:
    """True if the path has a glob's characters, and is not there under just that name."""
    return bool(_MAGIC & set(root)) and not files.exists(root)


def _base(root: str) -> str:
    """The folder that a glob begins with."""
    at = min((root.index(char) for char in _MAGIC if char in root), default=len(root))
    return root[:at].rpartition("/")[0] or "/"


def _is_local(files: Any) -> bool:
    from fsspec.implementations.local import LocalFileSystem

    return isinstance(files, LocalFileSystem)


def _below(files: Any, root: str) -> dict[str, Any]:
    if files.isfile(root):
        return {root: files.info(root)}
    # A folder of an object store is gone with its files.
    found: dict[str, Any] = files.find(root, detail=True) if files.exists(root) else {}
    return found


def _entries(files: Any, root: str) -> Iterator[dict[str, Any]]:
    """What is below a folder, one folder after the other; or the file itself."""
    if not files.isdir(root):
        yield files.info(root)
        return
    for _, _, found in files.walk(root, detail=True):
        yield from found.values()


def _is_taken(info: Mapping[str, Any], root: str, globbed: bool) -> bool:
    return info["type"] == "file" and not _is_hidden(info["name"], root, globbed)


def _is_of_a_sink(name: str) -> bool:
    return f"/{MARKERS}/" in name or posixpath.basename(name).startswith(STAGED)


def _is_hidden(name: str, root: str, globbed: bool) -> bool:
    """True if the file, or a folder it is in below the one that was asked for, is not meant to be read."""
    parts = [part for part in name.removeprefix(_base(root) if globbed else root).split("/") if part]
    return any(part.startswith((".", "_")) for part in parts) or name.endswith((".tmp", ".crc"))


def _what_is_there(files: Any, path: str) -> str:
    """The next folder that does exist, and the names in it that are most like the one that does not."""
    name = ""
    with suppress(Exception):
        while not files.exists(path) and path.strip("/"):
            path, name = posixpath.split(path)
        names = sorted(posixpath.basename(found.rstrip("/")) for found in files.ls(path, detail=False))
        close = difflib.get_close_matches(name, names, n=3)
        return f"{mask_uri(path)} has {_listed(names, close)}; " if names else f"{mask_uri(path)} is empty; "
    return ""


def _listed(names: list[str], first: list[str] | None = None) -> str:
    shown = first or list(islice(names, _SHOWN))
    more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
    return ", ".join(map(repr, map(mask_uri, shown))) + more
