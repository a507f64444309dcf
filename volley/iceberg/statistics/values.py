"""The result of a computation of statistics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from volley.html_table import text_html

__all__ = ["TableStatistics"]


@dataclass(frozen=True)
class TableStatistics:
    """How many distinct values the columns of a table have; prints as a table.

    Args:
        table: The table's dotted name.
        snapshot_id: The snapshot; None = the table has none.
        distinct: The number of distinct values of each column, nulls left out; of a dry run, empty.
        data_files: The number of data files that were read, or would be.
        bytes: Their size.
        path: The location of the statistics file; None if there is none.
        seconds: How long it took.
        dry_run: True if nothing was done.
    """

    table: str
    snapshot_id: int | None = None
    distinct: Mapping[str, int] = field(default_factory=dict, hash=False)
    data_files: int = 0
    bytes: int = 0
    path: str | None = None
    seconds: float = 0.0
    dry_run: bool = False

    def __str__(self) -> str:
        if self.snapshot_id is None:
            return f"table {self.table} has no snapshot"
        verb = "would be" if self.dry_run else "were"
        read = f"{self.data_files:,} data files ({self.bytes:,} bytes) {verb} read, in {self.seconds:.1f} s"
        width = max(map(len, self.distinct), default=0)
        lines = [f"{name:<{width}}  {count:>15,} distinct values" for name, count in self.distinct.items()]
        return "\n".join([f"snapshot {self.snapshot_id} of table {self.table}: {read}", *lines])

    _repr_html_ = text_html
