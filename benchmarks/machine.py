"""What a result was measured on: the day, cores, memory and versions; neither names nor paths."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from importlib.metadata import version

import psutil

__all__ = ["this_machine"]

_PACKAGES = ("pyspark", "pyiceberg", "pyarrow")


def this_machine() -> dict[str, str]:
    """Each with its label."""
    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "cores": str(os.cpu_count()),
        "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GB",
        "system": f"{platform.system()} {platform.machine()}",
        "Python": platform.python_version(),
        **{name: version(name) for name in _PACKAGES},
    }
