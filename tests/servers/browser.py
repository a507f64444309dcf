"""A headless Chromium: the machine's, or Debian's."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, sync_playwright

__all__ = ["browser"]

_NAMES = ("chromium", "chromium-browser", "google-chrome")
# It asks nobody for anything but the page.
_QUIET = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
)


@contextmanager
def browser() -> Iterator[Browser]:
    """Start it, and end it behind the block."""
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=_program(), args=[*_QUIET])
        try:
            yield started
        finally:
            started.close()


def _program() -> str:
    found = next(filter(None, map(shutil.which, _NAMES)), None)
    if found is None and os.environ.get("CI") and os.getuid() == 0:
        for command in (["update"], ["install", "--yes", "--no-install-recommends", "chromium"]):
            subprocess.run(["apt-get", "--quiet", *command], check=True, capture_output=True)
        found = shutil.which("chromium")
    if found is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("there is no Chromium here: install one")
    return found
