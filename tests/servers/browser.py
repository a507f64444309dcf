"""A headless Chromium: the machine's, or Debian's."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import gettempdir

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
    found = _found() or _installed()
    if found is None:
        pytest.skip("there is no Chromium here, and apt-get does not install one: install one")
    return found


def _found() -> str | None:
    return next(filter(None, map(shutil.which, _NAMES)), None)


def _installed() -> str | None:
    """Install Debian's, in CI alone: elsewhere a test changes no machine. One process of the tests does it."""
    if not os.environ.get("CI") or os.getuid() != 0 or shutil.which("apt-get") is None:
        return None
    with open(f"{gettempdir()}/volley-chromium.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _found() is None:
            for command in (["update"], ["install", "--yes", "--no-install-recommends", "chromium"]):
                subprocess.run(["apt-get", "--quiet", *command], capture_output=True)
    return _found()
