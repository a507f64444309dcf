"""Starts Spark's Python workers and their imports early, so that the first epoch does not wait for them."""

from __future__ import annotations

import importlib
import logging
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["preload"]

_log = logging.getLogger(__name__)

_preloaded: set[tuple[str, str]] = set()


def preload(context: SparkContext, modules: Iterable[str]) -> None:
    """Start workers and import modules in them, in the background, while the driver starts the query.

    Args:
        context: Spark's context.
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
