"""Rows of a table, read in this process without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from volley.columns.rows import Rows
from volley.errors import ConfigError, brief_methods
from volley.iceberg.source import IcebergSource
from volley.iceberg.source_config import IcebergSourceConfig
from volley.plan.expressions import Expr

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["TableRows"]


@brief_methods
@dataclass(frozen=True)
class TableRows(Rows):
    """Rows of a table, read when they are asked for. A frozen value: `select` and `filter` return changed copies.

    `IcebergTable` creates it. Nulls stay nulls, at every level of nested columns.

    Args:
        config: The table and what to read of it.
    """

    config: IcebergSourceConfig

    def select(self, *columns: str) -> TableRows:
        """Return only these columns, in this order."""
        return TableRows(self.config.with_columns(columns))

    def filter(self, predicate: str | Expr) -> TableRows:
        """Return only the rows for which a predicate is true; see `IcebergSourceConfig.with_partition_filter`."""
        if self.config.partition_filter is not None:
            raise ConfigError("the rows have a filter already", hint='join the conditions: "a = 1 and b = 2"')
        return TableRows(self.config.with_partition_filter(predicate))

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows as Arrow batches; files are read in parallel, and a few of them held in memory.

        Raises:
            SnapshotNotFoundError: If the table has no such snapshot, branch or tag.
            ConfigError: If a column or the filter does not fit the table.
            CatalogError: If the table does not exist, or the catalog can't be reached.
            SourceError: If a file is gone or damaged.
        """
        from volley.iceberg.read.whole import read_snapshot

        return read_snapshot(self.config)[1]

    def to_arrow(self, limit: int | None = None) -> pa.Table:
        """Return the rows as an Arrow table. Raises like `to_batches`.

        Args:
            limit: The most rows, in any order; None = all.
        """
        from volley.iceberg.read.whole import read_table

        return read_table(self.config, limit)

    def to_source(self) -> IcebergSource:
        """Return the source with which a job reads these rows."""
        return IcebergSource(self.config)

    def __repr__(self) -> str:
        return f"TableRows({self.config.summary})"
