"""Rows that can be looked at in this process: the same conversions for streams, tables and sinks in memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from volley.checks import count, of_type, optional
from volley.errors import brief_methods
from volley.registry import installed

if TYPE_CHECKING:
    import duckdb
    import pandas
    import polars
    import pyarrow as pa

__all__ = ["Rows"]


@brief_methods
class Rows(ABC):
    """Rows that this process can read: whatever has `to_arrow` gets the other conversions from here."""

    @abstractmethod
    def to_arrow(self, limit: int | None = None) -> pa.Table:
        """Return the rows as an Arrow table.

        Args:
            limit: The most rows; None = all.
        """

    def head(self, rows: int = 10) -> pa.Table:
        """Return the first rows as an Arrow table. See `to_arrow`.

        Args:
            rows: The most rows.
        """
        return self.to_arrow(count("rows", rows))

    def show(self, rows: int = 10) -> None:
        """Print the first rows as a table. See `to_arrow`.

        Args:
            rows: The most rows.

        Example:
            >>> from volley import Environment, MemorySource, col
            >>> prices = Environment().from_source(MemorySource([{"price": 2}, {"price": 9}]))
            >>> prices.with_column("gross", col("price") * 1.5).show()
            price    gross
            int64   double
            ──────────────
                2      3.0
                9     13.5
        """
        from volley.columns.show import show

        show(self.head(rows))

    def to_pandas(self, limit: int | None = None) -> pandas.DataFrame:
        """Return the rows as a pandas DataFrame. See `to_arrow`.

        Raises:
            MissingDependencyError: If pandas is not installed.
        """
        installed("pandas")
        return self.to_arrow(limit).to_pandas()

    def to_polars(self, limit: int | None = None) -> polars.DataFrame:
        """Return the rows as a polars DataFrame. See `to_arrow`.

        Raises:
            MissingDependencyError: If polars is not installed.
        """
        frame: polars.DataFrame = installed("polars").from_arrow(self.to_arrow(limit))
        return frame

    def to_duckdb(
        self, connection: duckdb.DuckDBPyConnection | None = None, limit: int | None = None
    ) -> duckdb.DuckDBPyRelation:
        """Return the rows as a relation of DuckDB, in memory. See `to_arrow`.

        Args:
            connection: The connection to use; None = DuckDB's default.
            limit: The most rows; None = all.

        Raises:
            MissingDependencyError: If duckdb is not installed.
        """
        library = installed("duckdb")
        optional(of_type(library.DuckDBPyConnection, "duckdb.connect()"))("connection", connection)
        relation: duckdb.DuckDBPyRelation = (connection or library).from_arrow(self.to_arrow(limit))
        return relation
