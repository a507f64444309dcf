"""Table properties that catalogs have refused while this process runs: later tables are made without them."""

from __future__ import annotations

import threading
from collections.abc import Collection

__all__ = ["add", "of"]

_lock = threading.Lock()
_refused: dict[tuple[object, str | None], frozenset[str]] = {}


def of(catalog: object, warehouse: str | None) -> frozenset[str]:
    """Return the names of the properties that a catalog, a value, has refused in a warehouse."""
    return _refused.get((catalog, warehouse), frozenset())


def add(catalog: object, warehouse: str | None, names: Collection[str]) -> frozenset[str]:
    """Remember that a catalog refuses these properties; return those that were not known."""
    with _lock:
        known = of(catalog, warehouse)
        _refused[catalog, warehouse] = known | frozenset(names)
        return frozenset(names) - known
