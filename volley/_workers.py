"""What Spark's Python workers load once and keep, so that an epoch pays for its rows and not for Python."""

from __future__ import annotations

import gc
import importlib
import logging
import resource
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING
from zipimport import zipimporter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["peak_memory", "preload", "settle"]

_log = logging.getLogger(__name__)

_settled = False
_preloaded: set[tuple[str, str]] = set()


def settle() -> None:
    """Have the next task of this process pay for its rows, and not for what is loaded.

    Before each task Spark has a worker look at the archives in its path again, and after it collect garbage. With
    Spark's own archives, pyarrow and pyiceberg that is tens of milliseconds each, spent on what lives as long as the
    process does: it is taken out of the collector's sight, once, and archives are forgotten until the next import.
    """
    global _settled
    if not _settled:
        _settled = True
        gc.collect()
        gc.freeze()
    for entry, importer in list(sys.path_importer_cache.items()):
        if isinstance(importer, zipimporter):
            del sys.path_importer_cache[entry]


def peak_memory() -> int:
    """The most bytes of memory that this process has had."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak << 10


def preload(spark: SparkSession, modules: Iterable[str]) -> None:
    """Have workers start and import what tasks will need, while the driver is still busy with the query's start.

    Args:
        spark: The session.
        modules: What to import; a Spark application is asked for each of them once.
    """
    application = str(spark.sparkContext.applicationId)
    missing = {(application, module) for module in modules} - _preloaded
    if missing:
        _preloaded.update(missing)
        names = sorted(module for _, module in missing)
        threading.Thread(target=_preload, args=(spark, names), name="volley-preload", daemon=True).start()


def _preload(spark: SparkSession, modules: Sequence[str]) -> None:
    def load(numbers: Iterator[int]) -> Iterator[int]:
        for module in ("volley._tasks", *modules):
            importlib.import_module(module)
        yield from numbers

    context = spark.sparkContext
    try:
        context.parallelize(range(context.defaultParallelism), context.defaultParallelism).mapPartitions(load).count()
    except Exception:
        # Nothing is lost: a task that can't import either says why.
        _log.debug("workers were not preloaded", exc_info=True)
