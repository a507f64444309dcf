"""Spark's Python workers: which Python they run, and what they import before their first task."""

from __future__ import annotations

import importlib
import logging
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["choose_worker_python", "is_script_chosen", "preload", "workers_python"]

_SCRIPT = Path(__file__).with_suffix(".sh")
_FIND_PYSPARK = """
from importlib.util import find_spec

pyspark = find_spec("pyspark")
print(pyspark and pyspark.origin)
print(find_spec("py4j") is not None)
"""
_log = logging.getLogger(__name__)
_preloaded: set[tuple[str, str]] = set()


def choose_worker_python(master: str | None, starts: bool) -> None:
    """Set ``PYSPARK_PYTHON``, unless the user has set it.

    On a local master Spark puts a zip archive of PySpark first on each worker's sys.path, and each worker compiles
    PySpark from it: half a second to two, several times before a job's first epoch.

    Args:
        master: Spark's master; None = the one of spark-submit.
        starts: True if a JVM is about to start with this process' environment.
    """
    chosen = os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    is_local = re.match(r"local(\[|$)", master or "") is not None
    if is_local and starts and chosen == sys.executable and _pyspark_is_found():
        os.environ |= {"PYSPARK_PYTHON": str(_SCRIPT), "VOLLEY_PYTHON": sys.executable}
    elif not is_local and is_script_chosen():
        os.environ["PYSPARK_PYTHON"] = sys.executable


def is_script_chosen() -> bool:
    """Return True if the script starts the workers' Python."""
    return os.environ.get("PYSPARK_PYTHON") == str(_SCRIPT)


def _pyspark_is_found() -> bool:
    """Return True if workers that the script starts import this process' PySpark.

    Starts a Python like them and looks, for 40 ms of CPU: PySpark may come from site-packages, from a folder in a
    ``.pth`` file, or from PYTHONPATH.
    """
    spec = find_spec("pyspark")
    assert spec is not None
    loaded = Path(str(spec.origin)).resolve()
    home = os.environ.get("SPARK_HOME") or str(loaded.parent)
    # The JVM of another Spark needs its own PySpark.
    if Path(home).resolve() != loaded.parent or not os.access(_SCRIPT, os.X_OK):
        return False
    environment = {**os.environ, "SPARK_HOME": home, "VOLLEY_PYTHON": sys.executable}
    probe = subprocess.run([_SCRIPT, "-c", _FIND_PYSPARK], env=environment, capture_output=True, text=True, timeout=60)
    lines = probe.stdout.split("\n")
    return probe.returncode == 0 and Path(lines[0]).resolve() == loaded and lines[1] == "True"


def workers_python() -> str:
    """Return the path of the Python that the active context's workers run; they need not have Volley."""
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    assert context is not None
    with suppress(Exception):
        return str(context.parallelize([0], 1).map(_executable).collect()[0])
    return str(context.pythonExec)


def _executable(_: object) -> str:
    import sys

    return sys.executable


# Functions of this module are pickled by value, and others by the name of their module, which the workers lack.
_executable.__module__ = "__main__"


def preload(context: SparkContext, modules: Iterable[str]) -> None:
    """Start workers and import modules in them, in the background, while the driver starts the query.

    Args:
        modules: What to import; each module once per Spark application.
    """
    application = str(context.applicationId)
    missing = {(application, module) for module in modules} - _preloaded
    if missing:
        _preloaded.update(missing)
        names = sorted(module for _, module in missing)
        threading.Thread(target=_preload, args=(context, names), name="volley-preload", daemon=True).start()


def _preload(context: SparkContext, modules: Sequence[str]) -> None:
    def load(numbers: Iterable[int]) -> Iterator[int]:
        for module in ("volley.task.task", *modules):
            importlib.import_module(module)
        yield from numbers

    try:
        context.parallelize(range(context.defaultParallelism), context.defaultParallelism).mapPartitions(load).count()
    except Exception:
        # Preloading is optional: a task that can't import the module raises with the reason.
        _log.debug("workers were not preloaded", exc_info=True)
