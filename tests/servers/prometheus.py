"""Prometheus' programs, from Debian's package."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.servers.downloads import downloaded
from tests.servers.process import needed


def promtool() -> Path:
    """The program that checks rules, and plays samples to them."""
    return downloaded("prometheus", _fetch) / "usr" / "bin" / "promtool"


def _fetch(folder: Path) -> None:
    get, unpack = needed("apt-get", "Prometheus comes from Debian"), needed("dpkg-deb", "Prometheus comes from Debian")
    subprocess.run([get, "download", "prometheus"], cwd=folder, check=True, capture_output=True)
    for package in folder.glob("*.deb"):
        subprocess.run([unpack, "--extract", package, folder], check=True)
        package.unlink()
