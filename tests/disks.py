"""Small disks, which tests fill."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

__all__ = ["can_mount", "small_disk"]

can_mount = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
"""Marks a test that uses `small_disk`."""


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A file system of its own with room for a megabyte."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "volley-test", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)
