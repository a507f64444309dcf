"""Programs in environments of their own, which see nothing of this checkout."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.processes import ROOT

SECONDS = 600


def call(*command: str | Path, folder: Path) -> str:
    """Run a command to its end, and return what it printed."""
    # Nothing of this checkout, and of the sessions of other tests.
    ours = ("COVERAGE", "PYTHON", "PYSPARK", "SPARK", "JAVA_TOOL")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def install(programs: Path, *requirements: str) -> None:
    """Install packages into an environment, in the versions of this project's own.

    Args:
        programs: The environment's folder of programs.
        requirements: What pip shall install.
    """
    options = ("--quiet", "--disable-pip-version-check", "--no-compile", "--constraint", str(ROOT / "constraints.txt"))
    call(programs / "python", "-m", "pip", "install", *options, *requirements, folder=programs)
