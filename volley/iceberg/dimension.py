"""An Iceberg table that a stream is joined with."""

from __future__ import annotations

from dataclasses import dataclass

from volley.contracts.dimension import Dimension, DimensionReader
from volley.errors import ConfigError
from volley.iceberg.config import IcebergSinkConfig
from volley.iceberg.source import IcebergSource
from volley.iceberg.source_config import IcebergSourceConfig, Incremental
from volley.iceberg.table import TableRef
from volley.iceberg.table_rows import TableRows
from volley.iceberg.time_travel import IcebergTable

__all__ = ["IcebergDimension", "iceberg_dimension"]


@dataclass(frozen=True, repr=False)
class IcebergDimension(Dimension):
    """The rows of an Iceberg table: of its current snapshot in each epoch, or of one that the config pins."""

    config: IcebergSourceConfig

    def __post_init__(self) -> None:
        if isinstance(self.config.mode, Incremental) or self.config.changes == "follow":
            raise ConfigError(
                f"join with {self!r}: a table is joined as it is in each epoch, not as a stream",
                hint="IcebergTable(table_ref), which is looked up again in each epoch",
            )

    @property
    def identity(self) -> str:
        return IcebergSource(self.config).identity

    def open(self) -> DimensionReader:
        from volley.iceberg.read.dimension import IcebergDimensionReader

        return IcebergDimensionReader(self.config)

    def __repr__(self) -> str:
        return f"IcebergTable({self.config.summary})"


def iceberg_dimension(table: object) -> IcebergDimension | None:
    """Return the dimension of a value that names an Iceberg table, or rows of one; None for any other value."""
    match table:
        case IcebergTable():
            return IcebergDimension(table.rows.config)
        case TableRows() | IcebergSource():
            return IcebergDimension(table.config)
        case TableRef() | IcebergSinkConfig():
            return IcebergDimension(IcebergSourceConfig(table))
        case IcebergSourceConfig():
            return IcebergDimension(table)
    return None
