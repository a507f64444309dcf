"""The wheel of this checkout."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from tests.processes import ROOT
from tests.wheel.programs import call


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what a distribution is built of."""
    folder = tmp_path_factory.mktemp("project")
    for name in ("volley", "docs", "examples"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    files = ("CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "MANIFEST.in", "README.md", "mkdocs.yml")
    for name in (*files, "pyproject.toml", "setup.cfg", "setup.py"):
        shutil.copy(ROOT / name, folder)
    return folder


@pytest.fixture(scope="session")
def wheel(project: Path) -> Path:
    """The wheel, built in a copy of the project."""
    folder = project
    call(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", "dist", ".", folder=folder)
    (built,) = (folder / "dist").glob("volley_stream-*.whl")
    return built
