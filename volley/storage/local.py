"""The local disk: folders and files that no other user may enter or read, and room for rows that memory can't hold."""

from __future__ import annotations

import fcntl
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from volley.errors import StorageError

__all__ = [
    *("begin_file", "begin_local_file", "local_folder", "locked_folder", "make_folder", "no_room"),
    *("private_folder", "temporary_folder"),
]


def local_folder() -> str:
    """Return the first of Spark's local folders; without Spark, the one for temporary files."""
    return os.environ.get("SPARK_LOCAL_DIRS", tempfile.gettempdir()).split(",")[0]


def no_room(place: str, size: int, cause: OSError) -> StorageError:
    """Return the error for rows that can't be kept on a disk.

    Args:
        size: The bytes that were written there, or are to be.
    """
    instead = ", or let spark.local.dir, without Spark TMPDIR, name another folder" if place == local_folder() else ""
    return StorageError(
        f"{size:,} bytes of rows can't be kept in {place}: {cause}",
        hint=f"make room there, or check that it can be written{instead}; then start the job again: nothing is lost",
    )


def temporary_folder() -> Path:
    """Return this user's folder for temporary files of Volley; make it if it is missing.

    Raises:
        StorageError: If another user could put something into it.
        OSError: If it can't be made.
    """
    return private_folder(Path(tempfile.gettempdir(), f"volley-{os.geteuid()}"), "set TMPDIR to another folder")


def private_folder(path: Path, instead: str) -> Path:
    """Return a folder that belongs to this user alone; make it if it is missing.

    Everyone can guess its name, and in a shared folder whoever comes first makes it. Only its owner can replace it
    afterwards, if the folder that it is in is this user's too, or has the sticky bit as ``/tmp`` has.

    Args:
        path: The folder.
        instead: What the user can do about a folder that is not private, as a clause.

    Raises:
        StorageError: If it is a link or no folder, belongs to another user, or others may enter it.
        OSError: If it can't be made.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        path.mkdir(mode=0o700)
    if fault := _fault(path.lstat()):
        raise StorageError(
            f"{path} {fault}: Volley runs and writes only what no other user can have put there",
            hint=f"find out who made it and delete it, or {instead}",
        )
    return path


def _fault(status: os.stat_result) -> str | None:
    """Return why a folder is not private, as a clause; None if it is."""
    mode, owner = stat.S_IMODE(status.st_mode), f"user {status.st_uid}"
    if not stat.S_ISDIR(status.st_mode):
        return f"is {'a link' if stat.S_ISLNK(status.st_mode) else 'no folder'} of {owner}"
    if status.st_uid != os.geteuid():
        return f"belongs to {owner} (mode {mode:04o}), and this is user {os.geteuid()}"
    if mode & 0o077:
        return f"of {owner} has mode {mode:04o} and not 0700"
    return None


def make_folder(files: Any, path: str) -> None:
    """Make a folder of a checkpoint, and those that it is in; other users of this machine may not enter the new ones.

    Raises:
        OSError: If it can't be made.
    """
    if "file" in files.protocol:
        _make(Path(path))
    else:
        files.makedirs(path, exist_ok=True)


def _make(folder: Path) -> None:
    if not folder.is_dir():
        _make(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def begin_file(files: Any, path: str) -> None:
    """Make an empty file of a checkpoint, and its folders; what is written to it later, other users can't read.

    An object store has no file before its bytes: nothing happens there.

    Raises:
        OSError: If it can't be made.
    """
    if "file" in files.protocol:
        begin_local_file(path)
    else:
        files.makedirs(os.path.dirname(path), exist_ok=True)


def begin_local_file(path: str) -> None:
    """Make a private file of the local disk, and its folders; one that is there keeps its bytes.

    Raises:
        OSError: If it can't be made.
    """
    _make(Path(path).parent)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        # The file of an earlier release, or of a process that died, may have another mode.
        os.fchmod(descriptor, 0o600)
    finally:
        os.close(descriptor)


@contextmanager
def locked_folder(files: Any, path: str) -> Iterator[None]:
    """Lock a folder of a checkpoint for this process while the block runs, and make it if it is absent.

    An object store has no locks: nothing is locked there.

    Raises:
        OSError: If the folder can't be made or opened.
    """
    if "file" not in files.protocol:
        yield
        return
    make_folder(files, path)
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
