"""The file with what this process' JVM and its Python workers print: new for each process, and bounded."""

from __future__ import annotations

import os
import re
import time
from contextlib import suppress
from pathlib import Path

from volley.errors import StorageError
from volley.storage.local import temporary_folder

__all__ = ["bound_log", "log_file"]

_NAME = re.compile(r"spark-(\d+)\.log")
_KEPT_SECONDS = 7 * 24 * 3600
_MOST_BYTES = 128 << 20
_KEPT_BYTES = 4 << 20

_cleared_by: int | None = None


def log_file() -> Path:
    """Return the log file of this process' JVM and its Python workers.

    The first call of a process deletes the file of an earlier one with the same id, and those of processes that have
    ended and written nothing for a week.

    Raises:
        StorageError: If another user could put something into its folder.
        OSError: If its folder can't be made.
    """
    global _cleared_by
    folder, process = temporary_folder(), os.getpid()
    if _cleared_by != process:
        _cleared_by = process
        _delete_old(folder)
    return folder / f"spark-{process}.log"


def bound_log() -> None:
    """Leave the last 4 MB of the log if it has more than 128 MB; do nothing where that fails.

    The JVM goes on behind them, as it appends.
    """
    with suppress(OSError, StorageError):
        path = log_file()
        if path.exists() and path.stat().st_size > _MOST_BYTES:
            _shorten(path)


def _delete_old(folder: Path) -> None:
    for path in folder.glob("spark-*.log"):
        match = _NAME.fullmatch(path.name)
        # What can't be deleted stays: a log is not worth a failure.
        with suppress(OSError):
            if match and _is_old(int(match[1]), path):
                path.unlink()


def _is_old(process: int, path: Path) -> bool:
    if process == os.getpid():
        return True
    return time.time() - path.stat().st_mtime > _KEPT_SECONDS and not _runs(process)


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _shorten(path: Path) -> None:
    with path.open("r+b") as log:
        log.seek(-_KEPT_BYTES, os.SEEK_END)
        last = log.read()
        log.truncate(0)
    with path.open("ab") as log:
        log.write(b"(earlier lines are gone: the log had more than %d bytes)\n" % _MOST_BYTES + last)
