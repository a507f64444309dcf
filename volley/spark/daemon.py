"""Spark's daemon of Python workers on this machine: imports what tasks need once, and then forks the workers.

Spark starts it in the place of `pyspark.daemon`, which forks first: each worker then imports PyArrow, PySpark and
pyiceberg by itself, for more than a second of CPU.
"""

from __future__ import annotations

import gc
import importlib
import os
from contextlib import suppress

from volley.garbage import none_collected
from volley.spark.jvm import PRELOAD

__all__: list[str] = []


def _preload() -> None:
    with none_collected():
        for module in ("pyspark.worker", "volley.task.task", *os.environ.get(PRELOAD, "").split(",")):
            # A worker that needs the module raises with the reason.
            with suppress(Exception):
                importlib.import_module(module)
    # Workers collect garbage after each task; what is imported by now never is.
    gc.freeze()


if __name__ == "__main__":
    _preload()
    from pyspark.daemon import manager

    manager()
