"""An archive of the JVM's classes in the user's cache folder, from which later JVMs start with a third less CPU.

The first JVM that runs a job writes it when it ends, in the background; this is class data sharing:
https://docs.oracle.com/en/java/javase/17/vm/class-data-sharing.html. A JVM that has other classes passes over it.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import time
from contextlib import suppress
from pathlib import Path

from volley.errors import StorageError
from volley.storage.local import private_folder

__all__ = ["AT_ITS_ADDRESS", "archive_options"]

_FOLDER = "VOLLEY_CLASS_ARCHIVE"
_OPTIONS = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS")
_QUIET = "-Xlog:cds*=off"
AT_ITS_ADDRESS = ("-XX:+UnlockDiagnosticVMOptions", "-XX:ArchiveRelocationMode=0")
"""Maps an archive at the address it was written for; at another one the JVM patches it first, all 150 MB, in 0.15 s."""
# A JVM that has loaded it has run a query.
_QUERY = b"streaming/runtime/MicroBatchExecution"
_UNUSED_SECONDS = 90 * 24 * 3600
# Goes up when a job loads other classes than before: archives of earlier releases lack them.
_CLASSES = 2


def archive_options(java: Path, spark: Path) -> list[str]:
    """Return the options with which a JVM starts from the archive, or writes it if there is none.

    ``VOLLEY_CLASS_ARCHIVE`` names the folder of archives, default ``~/.cache/volley``; ``off`` = none. Options of the
    user's that are about archives take precedence.

    Args:
        java: The folder of Java.
        spark: The folder of Spark.

    Raises:
        StorageError: If another user could put an archive into the folder that ``VOLLEY_CLASS_ARCHIVE`` names.
    """
    chosen = os.environ.get(_FOLDER, "")
    if chosen == "off" or any("Archive" in os.environ.get(name, "") for name in _OPTIONS):
        return []
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    try:
        folder = private_folder(Path(chosen or Path(cache, "volley")), f"set {_FOLDER} to another one, or to off")
        archive = folder / f"classes-{_fingerprint(java, spark)}.jsa"
        if not archive.exists():
            _adopt(archive)
        if archive.exists():
            os.utime(archive)
            return [f"-XX:SharedArchiveFile={archive}", "-Xshare:auto", *AT_ITS_ADDRESS, _QUIET]
        if any(_is_alive(part) for part in _parts(archive)):
            return []
        return [f"-XX:ArchiveClassesAtExit={archive}.{os.getpid()}", _QUIET]
    except (OSError, RuntimeError):
        # An archive is optional: the cache folder may be read-only, or there may be no home.
        return []
    except StorageError:
        if chosen:
            raise
        return []


def _fingerprint(java: Path, spark: Path) -> str:
    """Return a text that differs for another Java, other jars or other classes."""
    binary = Path(os.path.realpath(java / "bin" / "java"))
    files = [binary, *sorted((spark / "jars").glob("*.jar"))]
    known = [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    return hashlib.sha256(repr((_CLASSES, known)).encode()).hexdigest()[:16]


def _parts(archive: Path) -> list[Path]:
    """Return the archives that JVMs write or have written, by the process ids of their drivers."""
    return [part for part in archive.parent.glob(f"{archive.name}.*") if part.suffix[1:].isdigit()]


def _is_alive(part: Path) -> bool:
    try:
        os.kill(int(part.suffix[1:]), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _adopt(archive: Path) -> None:
    """Take the archive that an earlier JVM wrote, if it is whole and from a JVM that ran a query; delete others."""
    for part in _parts(archive):
        if _is_usable(part):
            part.replace(archive)
            _delete_unused(archive)
        elif not _is_alive(part) and time.time() - part.stat().st_mtime > 600:
            part.unlink()


def _is_usable(part: Path) -> bool:
    with part.open("rb") as file, suppress(ValueError), mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        # The JVM writes the header last.
        return data[:4] != bytes(4) and data.find(_QUERY) >= 0
    return False


def _delete_unused(archive: Path) -> None:
    for other in archive.parent.glob("classes-*.jsa"):
        if time.time() - other.stat().st_mtime > _UNUSED_SECONDS:
            other.unlink()
