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
from tests.wheel.programs import call, install

VERSIONS = ("3.11", "3.12", "3.13", "3.14")


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


@pytest.mark.nightly
@pytest.mark.parametrize("version", VERSIONS)
def test_a_first_project(version: str, wheel: Path, tmp_path: Path) -> None:
    """What the tutorial says: install with the extra for commands, init, run, read the table."""
    python = interpreter(version)
    if python is None:
        pytest.skip(f"there is no Python {version} on this machine")
    call(python, "-m", "venv", "own", folder=tmp_path)
    programs = tmp_path / "own" / "bin"
    install(programs, f"{wheel}[cli,jre]")
    volley = programs / "volley"
    assert "volley init" in call(volley, "init", "--help", folder=tmp_path)
    call(volley, "init", "shop", folder=tmp_path)
    project = tmp_path / "shop"
    assert "5 columns fit" in call(volley, "check", folder=project)
    assert "orders: finished · epoch 0 · 3 rows" in call(volley, "run", folder=project)
    metadata = max((project / "lake").rglob("*.metadata.json"), key=lambda file: file.name)
    rows = query(f"select id, total from iceberg_scan('{metadata}') order by id").fetchall()
    assert rows == [(1, 7.5), (2, 8.0), (4, 25.0)]
    # A bad row that is mended, in a project of its own.
    path = f"PATH={programs}{os.pathsep}{os.environ['PATH']}"
    hour = call("env", path, "bash", ROOT / "examples" / "first_hour.sh", "hour", folder=tmp_path)
    assert "1 dead letter of 'orders' is replayed: 1 row" in hour
