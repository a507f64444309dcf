"""What catalogs have refused while this process runs: it is left out, or done otherwise, from then on."""

from __future__ import annotations

import threading
from collections.abc import Collection

__all__ = ["NAMESPACES", "PROPERTIES", "Refusals"]


class Refusals:
    """What catalogs, as values, have refused in a warehouse, by name."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._refused: dict[tuple[object, str | None], frozenset[str]] = {}

    def of(self, catalog: object, warehouse: str | None) -> frozenset[str]:
        """Return what a catalog has refused in a warehouse."""
        return self._refused.get((catalog, warehouse), frozenset())

    def add(self, catalog: object, warehouse: str | None, names: Collection[str]) -> frozenset[str]:
        """Remember that a catalog refuses these; return those that were not known."""
        with self._lock:
            known = self.of(catalog, warehouse)
            self._refused[catalog, warehouse] = known | frozenset(names)
            return frozenset(names) - known


PROPERTIES = Refusals()
"""Table properties: later tables are made without them."""

NAMESPACES = Refusals()
"""Kinds of namespaces: those whose parent is missing."""
