"""The file with what the JVM and its Python workers print, and what it says of a master that took no session."""

from __future__ import annotations

import os
import re
import time
from contextlib import suppress
from pathlib import Path

from volley.errors import StorageError
from volley.storage.local import temporary_folder

__all__ = ["bound_log", "is_alive", "log_file", "refusal"]

_NAME = re.compile(r"spark-(\d+)\.log")
_KEPT_SECONDS = 7 * 24 * 3600
_MOST_BYTES = 128 << 20
_KEPT_BYTES = 4 << 20

_cleared_by: int | None = None
_URLS = "a master is local[4], spark://host:7077, yarn or k8s://https://host:port"
_LOCAL_FILES = (
    "make it a folder with room that can be written, or name another one: SPARK_LOCAL_DIRS=/folder for Spark's files, "
    "SPARK_SUBMIT_OPTS=-Djava.io.tmpdir=/folder for Java's"
)
# The first pattern that the log has; what it means, and what to do.
_REFUSALS = (
    (
        r"InvalidClassException|local class incompatible",
        "it runs another version of Spark than this program",
        "install the PySpark of the cluster's version",
    ),
    (
        r"UnknownHostException: ([^\s:]+)",
        "its host {} can't be resolved",
        "check the name in the master's URL, and this machine's DNS",
    ),
    (
        r"Connection refused: (?:[^\s/]*/)?(\S+)",
        "nothing listens at {}: connection refused",
        "check the port, and whether the master runs",
    ),
    (
        r"(?:[Cc]onnection timed out|No route to host|Network is unreachable): (?:[^\s/]*/)?(\S+)",
        "{} does not answer",
        "check the network and firewalls between",
    ),
    (
        r"Failed to create a temp directory \(under ([^)]+)\)",
        "no folder can be made below {}",
        _LOCAL_FILES,
    ),
    (
        r"DiskBlockManager: Failed to create any local dir()",
        "no folder for its local files can be written",
        _LOCAL_FILES,
    ),
    (r"(?:parse Master URL|Invalid master URL|Master must)()", "", _URLS),
)


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
    return time.time() - path.stat().st_mtime > _KEPT_SECONDS and not is_alive(process)


def is_alive(process: int) -> bool:
    """Return True if a process of this id runs."""
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


def refusal(log: str) -> tuple[str, str]:
    """Return what is wrong with a master, and what to do; empty texts if the log does not tell.

    Args:
        log: What Spark has logged, or the text of its exception.

    Example:
        >>> refusal("Caused by: java.net.UnknownHostException: nohost.example")
        ("its host nohost.example can't be resolved", "check the name in the master's URL, and this machine's DNS")
        >>> refusal("something else")
        ('', '')
    """
    for pattern, meaning, hint in _REFUSALS:
        if match := re.search(pattern, log):
            return meaning.format(*match.groups()), hint
    return "", ""
