"""Runs the command `volley` as a process."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tests.processes import RUN_SECONDS, plain_environment

__all__ = ["Ended", "start", "volley"]


@dataclass(frozen=True)
class Ended:
    """What a command printed and how it ended.

    Args:
        code: The exit code.
        out: What it wrote to stdout.
        err: What it wrote to stderr.
    """

    code: int
    out: str
    err: str


def start(
    folder: Path, *arguments: str, stderr: IO[str] | int = subprocess.PIPE, **variables: str
) -> subprocess.Popen[str]:
    """Start a command in a folder."""
    command = [sys.executable, "-m", "volley", *arguments]
    environment = plain_environment(COLUMNS="160", **variables)
    return subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=stderr, text=True)


def volley(folder: Path, *arguments: str, **variables: str) -> Ended:
    """Run a command in a folder to its end."""
    process = start(folder, *arguments, stderr=subprocess.PIPE, **variables)
    out, err = process.communicate(timeout=RUN_SECONDS)
    return Ended(process.returncode, out, err)
