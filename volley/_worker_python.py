"""Which Python Spark's workers run: this process' own, started by a script where that spares them Spark's archives."""

from __future__ import annotations

import os
import re
import sys
import sysconfig
from pathlib import Path

__all__ = ["choose_worker_python"]

_SCRIPT = Path(__file__).with_suffix(".sh")


def choose_worker_python(master: str | None, starts: bool) -> None:
    """Set ``PYSPARK_PYTHON``, unless a user has.

    On this machine Spark would have each of its Python processes compile PySpark anew, from an archive that it puts
    in front of their path: half a second to two, several times before a job's first epoch.

    Args:
        master: Spark's master, None for one that spark-submit knows.
        starts: Whether a JVM starts now, with this process' environment.
    """
    chosen = os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    here = re.match(r"local(\[|$)", master or "") is not None
    if here and starts and chosen == sys.executable and _pyspark_is_found():
        os.environ |= {"PYSPARK_PYTHON": str(_SCRIPT), "VOLLEY_PYTHON": sys.executable}
    elif not here and chosen == str(_SCRIPT):
        os.environ["PYSPARK_PYTHON"] = sys.executable


def _pyspark_is_found() -> bool:
    """Whether a worker finds the PySpark of this process by itself, and the script can be run."""
    import pyspark

    loaded = Path(pyspark.__file__).parent
    installed = {Path(sysconfig.get_path(kind)) for kind in ("purelib", "platlib")}
    home = os.environ.get("SPARK_HOME")
    return loaded.parent in installed and home in (None, str(loaded)) and os.access(_SCRIPT, os.X_OK)
