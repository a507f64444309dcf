"""The folder with the Unix sockets of this process' JVM and its Python workers; those of killed ones are deleted."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import stat
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from volley.storage.local import temporary_folder

__all__ = ["socket_folder"]

_PREFIX = "jvm-"
# Older versions left them beside the logs.
_OLD = re.compile(r"\.[0-9a-f-]{36}\.sock")
_KEPT_SECONDS = 7 * 24 * 3600

_own: tuple[int, Path, int] | None = None


def socket_folder() -> tuple[Path, int]:
    """Return this process' folder for sockets, and the descriptor whose lock says that it is used.

    The JVM inherits the descriptor: the lock is there as long as one of both lives, whatever kills them, and no other
    process can have it by its id. The first call of a process deletes the folders that nobody has locked.

    Raises:
        StorageError: If another user could put something into the folder that it is in.
        OSError: If it can't be made.
    """
    global _own
    if _own is None or _own[0] != os.getpid():
        home = temporary_folder()
        _sweep(home)
        _own = os.getpid(), *_made(home)
    return _own[1:]


def _made(home: Path) -> tuple[Path, int]:
    """Make a folder and lock it; another process may take it for a left one before it is locked."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=home))
        with suppress(FileNotFoundError, BlockingIOError):
            descriptor = _locked(folder)
            if folder.exists():
                return folder, descriptor
            os.close(descriptor)


def _locked(folder: Path) -> int:
    """Return a descriptor that locks a folder.

    Raises:
        BlockingIOError: If another process has locked it.
        OSError: If it is no folder.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _sweep(home: Path) -> None:
    """Delete what killed processes have left; what can't be deleted stays."""
    for folder in home.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            descriptor = _locked(folder)
            try:
                shutil.rmtree(folder)
            finally:
                os.close(descriptor)
    with suppress(OSError):
        bound = Path("/proc/net/unix").read_text(errors="replace")
        for path in home.iterdir():
            if _OLD.fullmatch(path.name) and path.name not in bound and _is_old_socket(path.lstat()):
                path.unlink()


def _is_old_socket(status: os.stat_result) -> bool:
    return stat.S_ISSOCK(status.st_mode) and time.time() - status.st_mtime > _KEPT_SECONDS
