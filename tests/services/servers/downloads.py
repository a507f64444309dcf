"""Where servers that come from package registries are kept: a cache folder outside the repository."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.services.conftest import needed


def cache() -> Path:
    """The folder: VOLLEY_TEST_CACHE, or one in the user's cache."""
    folder = Path(os.environ.get("VOLLEY_TEST_CACHE", Path.home() / ".cache" / "volley-tests"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def npm_package(name: str, version: str) -> Path:
    """The folder of a package from npm, fetched once."""
    npm = needed("npm", "it comes with Node.js")
    folder = cache() / f"{name}-{version}"
    with _alone(folder):
        if not (folder / "fetched").exists():
            _run(npm, "install", "--silent", "--no-fund", "--no-audit", f"--prefix={folder}", f"{name}@{version}")
            (folder / "fetched").touch()
    return folder / "node_modules" / name


def python_package(name: str, version: str) -> Path:
    """A folder for PYTHONPATH with a package in another version than the tests' own, fetched once."""
    folder = cache() / f"{name}-{version}"
    with _alone(folder):
        if not (folder / "fetched").exists():
            _run(sys.executable, "-m", "pip", "install", "--quiet", f"--target={folder}", f"{name}=={version}")
            (folder / "fetched").touch()
    return folder


def maven_jar(artifact: str) -> Path:
    """A jar from Maven Central, named ``group:artifact:version``, fetched once."""
    mvn = needed("mvn", "apt-get install maven")
    _, name, version = artifact.split(":")
    jar = cache() / "jars" / f"{name}-{version}.jar"
    with _alone(jar):
        if not jar.exists():
            _run(mvn, "-B", "-q", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={jar.parent}")
    return jar


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        failed = f"{' '.join(command)} failed: {(done.stdout + done.stderr)[-1000:]}"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(failed)


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Two test runs at once fetch a thing once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_name(f"{path.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
