"""The wheel in a fresh environment of each supported Python: a first project runs, and DuckDB reads its table."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.duck import query
from tests.processes import ROOT

VERSIONS = ("3.11", "3.12", "3.13")
SECONDS = 600


def call(*command: str | Path, folder: Path) -> str:
    """Run a command to its end, and return what it printed."""
    # Nothing of this checkout, and of the sessions of other tests.
    ours = ("COVERAGE", "PYTHON", "PYSPARK", "SPARK", "JAVA_TOOL")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def interpreter(version: str) -> str | None:
    """The machine's Python of a version: its own, or one of pyenv."""
    if version == f"{sys.version_info.major}.{sys.version_info.minor}":
        return sys.executable
    names = [shutil.which(f"python{version}")]
    if shutil.which("pyenv"):
        known = subprocess.run(["pyenv", "versions", "--bare"], capture_output=True, text=True, check=True).stdout
        for name in known.split():
            if name.startswith(f"{version}."):
                prefix = subprocess.run(["pyenv", "prefix", name], capture_output=True, text=True, check=True).stdout
                names.append(f"{prefix.strip()}/bin/python")
    return next((name for name in names if name is not None and _is(name, version)), None)


def _is(name: str, version: str) -> bool:
    told = subprocess.run([name, "--version"], capture_output=True, text=True)
    return told.returncode == 0 and told.stdout.startswith(f"Python {version}.")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built in a copy of the project."""
    folder = tmp_path_factory.mktemp("wheel")
    shutil.copytree(ROOT / "volley", folder / "volley", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    call(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", "dist", ".", folder=folder)
    (built,) = (folder / "dist").glob("volley_stream-*.whl")
    return built


@pytest.mark.nightly
@pytest.mark.parametrize("version", VERSIONS)
def test_a_first_project(version: str, wheel: Path, tmp_path: Path) -> None:
    """What the tutorial says: install with the extra for commands, init, run, read the table."""
    python = interpreter(version)
    if python is None:
        pytest.skip(f"there is no Python {version} on this machine")
    call(python, "-m", "venv", "own", folder=tmp_path)
    programs = tmp_path / "own" / "bin"
    options = ("--quiet", "--disable-pip-version-check", "--no-compile", "--constraint", str(ROOT / "constraints.txt"))
    call(programs / "python", "-m", "pip", "install", *options, f"{wheel}[cli,jre]", folder=tmp_path)
    volley = programs / "volley"
    assert "volley init" in call(volley, "init", "--help", folder=tmp_path)
    call(volley, "init", "shop", folder=tmp_path)
    project = tmp_path / "shop"
    assert "5 columns fit" in call(volley, "check", folder=project)
    assert "orders: finished · epoch 0 · 3 rows" in call(volley, "run", folder=project)
    metadata = max((project / "lake").rglob("*.metadata.json"), key=lambda file: file.name)
    rows = query(f"select id, total from iceberg_scan('{metadata}') order by id").fetchall()
    assert rows == [(1, 7.5), (2, 8.0), (4, 25.0)]
