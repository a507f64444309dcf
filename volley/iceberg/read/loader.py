"""Loads a table again and again, by one catalog that stays open."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from volley.iceberg.catalogs.retry import retry_reads
from volley.iceberg.table import TableRef

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

__all__ = ["TableLoader"]


class TableLoader:
    """Loads the current metadata of a table. A copy made by pickling opens a catalog of its own.

    Opening a REST catalog takes a new connection and several requests, for tokens and for its settings.

    Args:
        ref: The table.
    """

    def __init__(self, ref: TableRef) -> None:
        self._ref = ref
        self._catalog: Catalog | None = None

    def load(self) -> Table:
        """Load the table; try again while the catalog can't be reached. Raises like `TableRef.load`."""
        return retry_reads(self._load)

    def _load(self) -> Table:
        # A catalog whose call fails is not used again.
        catalog, self._catalog = self._catalog or self._ref.load_catalog(), None
        with self._ref.errors():
            table = catalog.load_table(self._ref.identifier)
        # Nor is one in a file: a connection would go on reading a file that has been deleted or replaced.
        if self._ref.file is None:
            self._catalog = catalog
        return table

    def __getstate__(self) -> dict[str, Any]:
        return {"_ref": self._ref, "_catalog": None}
