"""Processes that tests start by themselves."""

from __future__ import annotations

import os
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
RUN_SECONDS = 240
"""The longest that the run of a job may take."""


def said(text: str) -> list[str]:
    """The lines that jobs print, without those that come because time passes: in a long start, and each 30 seconds."""
    return [line for line in text.splitlines() if not re.search(r" s so far$|: running\b", line)]


def plain_environment(**more: str) -> dict[str, str]:
    """This process' environment for a process of its own: it finds this checkout, and its coverage is not measured,
    which would double its time; what it runs, other tests run in this process too."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}
    return {**kept, "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), kept.get("PYTHONPATH")])), **more}
