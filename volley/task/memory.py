"""Memory of a worker process: its peak, and what the garbage collector can skip."""

from __future__ import annotations

import gc
import resource
import sys
from zipimport import zipimporter

__all__ = ["peak_memory", "settle"]

_settled = False


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
