"""Which Python Spark's workers run: this process' own, started by a script where that spares them Spark's archives."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

__all__ = ["choose_worker_python"]

_SCRIPT = Path(__file__).with_suffix(".sh")
_ASK = """
from importlib.util import find_spec

pyspark = find_spec("pyspark")
print(pyspark and pyspark.origin)
print(find_spec("py4j") is not None)
"""


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
    """Whether workers that the script starts find the PySpark of this process.

    A Python that is started as they are is asked, which takes 40 ms of CPU: PySpark may be in site-packages, in a
    folder that a ``.pth`` file names, or in one of PYTHONPATH.
    """
    import pyspark

    loaded = Path(pyspark.__file__).resolve()
    home = os.environ.get("SPARK_HOME") or str(loaded.parent)
    # Another Spark's JVM needs the PySpark that comes with it.
    if Path(home).resolve() != loaded.parent or not os.access(_SCRIPT, os.X_OK):
        return False
    environment = {**os.environ, "SPARK_HOME": home, "VOLLEY_PYTHON": sys.executable}
    asked = subprocess.run([_SCRIPT, "-c", _ASK], env=environment, capture_output=True, text=True)
    found = asked.stdout.split("\n")
    return asked.returncode == 0 and Path(found[0]).resolve() == loaded and found[1] == "True"
