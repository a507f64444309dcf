"""Memory of a worker process: its peak, and what the garbage collector may leave alone."""

from __future__ import annotations

import gc
import resource
import sys
from zipimport import zipimporter

__all__ = ["peak_memory", "settle"]

_settled = False


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
