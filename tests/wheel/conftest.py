"""The wheel of this checkout."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from tests.processes import ROOT
from tests.wheel.programs import call


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built in a copy of the project."""
    folder = tmp_path_factory.mktemp("wheel")
    shutil.copytree(ROOT / "volley", folder / "volley", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.cfg", "setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    call(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", "dist", ".", folder=folder)
    (built,) = (folder / "dist").glob("volley_stream-*.whl")
    return built
