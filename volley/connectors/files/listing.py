"""Lists the files of a FileSource, oldest first."""

from __future__ import annotations

import difflib
import fnmatch
import posixpath
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

from volley.errors import SourceError, SourceNotFoundError, VolleyError
from volley.secrets import redact_uri, redacted
from volley.storage.paths import filesystem, modified_time

__all__ = [
    "HIDDEN_PREFIX",
    "MARKERS",
    "LoggedFile",
    "check_exists",
    "check_not_empty",
    "list_files",
    "look_up",
    "start_of",
]

MARKERS = "_volley"
"""The folder of a FileSink's marker files, beside the files of its epochs."""

HIDDEN_PREFIX = ".volley-"
"""The prefix of a FileSink's file names until they are published."""

_MAGIC = frozenset("*?[")
_ESCAPED = re.compile(r"\[([*?[])\]")
_PATTERN = re.compile(r"((?:\[[*?[]\]|[^*?[])*).*", re.DOTALL)
_SHOWN = 5
_LOOKS_AT_ONCE = 16
_UNFINISHED = (
    *(".tmp", ".temp", ".part", ".partial", ".filepart", ".crdownload", ".opdownload", ".download", ".aria2"),
    *("._copying_", ".gstmp", ".writing", ".uploading", ".inprogress", ".incomplete", ".!ut", ".!qb", ".bc!", ".$$$"),
    *(".lock", ".lck", ".camellock", ".swp", "~"),
)
"""How names end, in lower case, while something copies, downloads or edits a file, which then gets its final name; and
those of locks beside a file. Backups such as ``.bak`` and ``.old`` are files like any other."""

_LEFT_OUT = (
    f"names that begin with ., _ or ~$, end in .crc, {', '.join(_UNFINISHED[:-1])} or {_UNFINISHED[-1]}, or are #…#, "
    "are left out, and so are links"
)


@dataclass(frozen=True)
class LoggedFile:
    """A file as it was when it was first listed."""

    path: str
    size: int
    # When it was last written, in seconds since 1970; None = unknown, as in logs of Volley 0.2.
    modified: float | None = None


def check_exists(path: str, options: Mapping[str, Any], known: Container[str] = ()) -> None:
    """Raise SourceNotFoundError if a file, a folder or the folder in which a glob starts does not exist.

    Object stores have no folders: one disappears when its files are deleted, which is no error if files were read
    from it before. A missing local folder was moved, or its disk is not mounted.

    Args:
        known: The files that were listed there before; false if there are none.
    """
    files, root = _searched(path, options)
    with _listing(path):
        # fsspec caches listings of object stores for ever.
        files.invalidate_cache()
        base = _base(root) if _is_glob(files, root) else root
        if files.exists(base) or (known and (base in known or not _is_local(files))):
            return
        hint = f"{_contents(files, base)}check the path"
    folder = "" if base == root else f": there is no folder {redact_uri(base)}"
    raise SourceNotFoundError(f"{redact_uri(path)} does not exist{folder}", hint=hint)


def check_not_empty(path: str, options: Mapping[str, Any], exclude: Sequence[str] = ()) -> None:
    """Raise SourceNotFoundError if a glob matches no file, or a folder has none, or only files that are left out."""
    files, root = _searched(path, options)
    with _listing(path):
        globbed = _is_glob(files, root)
        left_out, excluded = [], _excluded(exclude)
        for info in files.glob(root, detail=True).values() if globbed else _entries(files, root):
            if _is_readable(info, root, globbed, excluded):
                return
            if info["type"] != "directory" and not _is_of_a_sink(info["name"]):
                left_out.append(info["name"])
        if not globbed and not left_out:
            raise SourceNotFoundError(
                f"{redact_uri(path)} is there, but has no file to read",
                hint="put a file there first; bounded=False waits for one",
            )
        hint = f"there are {_name_list(sorted(left_out))}; " if left_out else _contents(files, _base(root))
    raise SourceNotFoundError(f"{redact_uri(path)} matches no file to read", hint=hint + _LEFT_OUT)


def list_files(
    path: str, options: Mapping[str, Any], known: Container[str] = (), exclude: Sequence[str] = ()
) -> list[LoggedFile]:
    """Return all complete files of a folder, file or glob, oldest first, then by name.

    Args:
        exclude: Patterns of names of files and folders below it that are left out.

    Raises:
        SourceError: If the folder or file does not exist, or can't be listed.
    """
    files, root = _searched(path, options)
    with _listing(path):
        check_exists(path, options, known)
        entries = files.glob(root, detail=True) if (globbed := _is_glob(files, root)) else _files_below(files, root)
    excluded = _excluded(exclude)
    complete = [info for info in entries.values() if _is_readable(info, root, globbed, excluded)]
    return _in_order(complete)


def look_up(path: str, options: Mapping[str, Any], names: Sequence[str], exclude: Sequence[str]) -> list[LoggedFile]:
    """Return those of some files that are there, and that a listing of a path would return; in its order.

    Raises:
        SourceError: If one can't be looked at.
    """
    files, root = _searched(path, options)
    excluded = _excluded(exclude)
    with _listing(path), ThreadPoolExecutor(_LOOKS_AT_ONCE) as pool:
        files.invalidate_cache()
        globbed = _is_glob(files, root)
        is_below = _is_below(root, globbed)
        below = [name for name in map(files._strip_protocol, names) if is_below(name)]
        entries = [info for info in pool.map(partial(_info, files), below) if info is not None]
    complete = [info for info in entries if _is_readable(info, root, globbed, excluded)]
    return _in_order(complete)


def _is_below(root: str, globbed: bool) -> Callable[[str], bool]:
    """Return what tells whether a search finds a file."""
    if globbed:
        from fsspec.utils import glob_translate

        pattern = re.compile(glob_translate(root))
        return lambda name: pattern.match(name) is not None
    return lambda name: name == root or name.startswith(root.rstrip("/") + "/")


def _info(files: Any, name: str) -> dict[str, Any] | None:
    """Return the details of a file; None if it is gone."""
    try:
        info: dict[str, Any] = files.info(name)
    except FileNotFoundError:
        return None
    return info


def _in_order(entries: Iterable[Mapping[str, Any]]) -> list[LoggedFile]:
    logged = [LoggedFile(info["name"], info["size"], modified_time(info)) for info in entries]
    return sorted(logged, key=lambda file: (file.modified or 0.0, file.path))


def start_of(root: str, path: str) -> str:
    """Return where the search that found a file began: the source's path, or the folder in which its glob starts."""
    return root if path.startswith(root) else _base(root)


@contextmanager
def _listing(path: str) -> Iterator[None]:
    """Translate exceptions of the storage into SourceErrors."""
    try:
        yield
    except VolleyError:
        raise
    except Exception as error:
        raise SourceError(
            f"{redact_uri(path)} can't be listed: {redact_uri(str(error))}", hint="check path and permissions"
        ) from redacted(error)


def _is_glob(files: Any, root: str) -> bool:
    """Return True if the path has glob characters, and no file has exactly that name."""
    return bool(_MAGIC & set(root)) and not files.exists(root)


def _base(root: str) -> str:
    """Return the folder in which a glob starts."""
    folder = _PATTERN.sub(r"\1", root, count=1).rpartition("/")[0]
    return _ESCAPED.sub(r"\1", folder) or "/"


def _searched(path: str, options: Mapping[str, Any]) -> tuple[Any, str]:
    """Return the file system in which to look for the files of a path, and the path in it."""
    from volley.connectors.files.tree import searched

    files, root = filesystem(path, options)
    return searched(files, root), root


def _is_local(files: Any) -> bool:
    from fsspec.implementations.local import LocalFileSystem

    return isinstance(files, LocalFileSystem)


def _files_below(files: Any, root: str) -> dict[str, Any]:
    if files.isfile(root):
        return {root: files.info(root)}
    # A folder of an object store disappears with its files.
    entries: dict[str, Any] = files.find(root, detail=True) if files.exists(root) else {}
    return entries


def _entries(files: Any, root: str) -> Iterator[dict[str, Any]]:
    """Yield the entries below a folder, one folder after the other; or the file itself."""
    if not files.isdir(root):
        yield files.info(root)
        return
    for _, _, entries in files.walk(root, detail=True):
        yield from entries.values()


def _is_readable(info: Mapping[str, Any], root: str, globbed: bool, excluded: re.Pattern[str] | None = None) -> bool:
    return info["type"] == "file" and not _is_hidden(info["name"], root, globbed, excluded)


def _excluded(patterns: Sequence[str]) -> re.Pattern[str] | None:
    """Return what matches the names that are left out; None if there are no patterns."""
    return re.compile("|".join(map(fnmatch.translate, patterns))) if patterns else None


def _is_of_a_sink(name: str) -> bool:
    return f"/{MARKERS}/" in name or posixpath.basename(name).startswith(HIDDEN_PREFIX)


def _is_hidden(name: str, root: str, globbed: bool, excluded: re.Pattern[str] | None) -> bool:
    """Return True if the name of the file, or of a folder between the source's path and it, marks it as hidden.

    A folder may have the name of one that is still copied, too. One that names a column may begin with _.
    """
    parts = [part for part in name.removeprefix(_base(root) if globbed else root).split("/") if part]
    names = [part.lower() for part in (*parts[:-1], posixpath.basename(name))]
    named = [part for part in parts[:-1] if not (part.startswith("_") and "=" in part)] + parts[-1:]
    if any(part.startswith((".", "_")) for part in named) or any(map(_is_unfinished, names)):
        return True
    return excluded is not None and any(excluded.match(part) for part in parts or [posixpath.basename(name)])


def _is_unfinished(name: str) -> bool:
    # An editor saves unsaved text as #name#, an office program locks a file by ~$name.
    return name.endswith((".crc", *_UNFINISHED)) or (name[0] == name[-1] == "#") or name.startswith("~$")


def _contents(files: Any, path: str) -> str:
    """Return a hint: the nearest folder that exists, and the names in it that are most like the missing one."""
    name = ""
    with suppress(Exception):
        while not files.exists(path) and path.strip("/"):
            path, name = posixpath.split(path)
        names = sorted(posixpath.basename(entry.rstrip("/")) for entry in files.ls(path, detail=False))
        close = difflib.get_close_matches(name, names, n=3)
        return f"{redact_uri(path)} has {_name_list(names, close)}; " if names else f"{redact_uri(path)} is empty; "
    return ""


def _name_list(names: list[str], first: list[str] | None = None) -> str:
    shown = first or list(islice(names, _SHOWN))
    more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
    return ", ".join(map(repr, map(redact_uri, shown))) + more
