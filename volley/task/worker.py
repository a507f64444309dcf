"""The process of a Spark task: the task that it runs, its memory, and errors that must reach the driver."""

from __future__ import annotations

import gc
import re
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from zipimport import zipimporter

from volley.errors import VolleyError

if TYPE_CHECKING:
    from pyspark import TaskContext

__all__ = ["CarriedError", "carried", "find_carried", "peak_memory", "settle", "task_and_attempt", "task_context"]
_settled = False
_MARK = "volley-error "
_LINE = re.compile(rf"{_MARK}(\{{.*\}})")


def task_context() -> TaskContext | None:
    """Return the context of the task; None outside of Spark.

    Each of Spark's workers has imported PySpark. Another process need not: that takes a fifth of the time in which it
    could show the first rows of a stream.
    """
    pyspark: Any = sys.modules.get("pyspark")
    context: TaskContext | None = pyspark.TaskContext.get() if pyspark else None
    return context


def task_and_attempt() -> tuple[int, int]:
    """Return the numbers of the task and of its attempt; outside of Spark both are 0."""
    context = task_context()
    return (context.partitionId(), context.attemptNumber()) if context else (0, 0)


def settle() -> None:
    """Keep garbage collection and zip-archive scans out of the next task in this worker.

    Before each task Spark makes a worker re-read the zip archives on its path, and after it collect garbage. With
    Spark's own archives, pyarrow and pyiceberg either takes tens of milliseconds, for modules and objects that live as
    long as the process. So freeze those objects, once, and drop the archives from the importer cache until the next
    import.
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
    """Return the peak memory of this process in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak << 10


class CarriedError(Exception):
    """A VolleyError as one line of JSON; its cause is the error itself."""

    def __init__(self, error: VolleyError) -> None:
        super().__init__(_MARK + error.to_json())


@contextmanager
def carried() -> Iterator[None]:
    """Turn a VolleyError that the block raises into a CarriedError, which survives Spark.

    Raises:
        CarriedError: If the block raises a VolleyError.
    """
    try:
        yield
    except VolleyError as error:
        raise CarriedError(error) from error


def find_carried(text: str) -> VolleyError | None:
    """Return the last carried error in Spark's error text; None if there is none."""
    lines = _LINE.findall(text)
    return VolleyError.from_json(lines[-1]) if lines else None
