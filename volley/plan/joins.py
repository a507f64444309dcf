"""Joins of a stream with a table, as values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from volley.dimension import Dimension

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["How", "JoinedRows", "TableJoin"]

How = Literal["inner", "left"]


@dataclass(frozen=True)
class TableJoin:
    """How a stream is joined with a table.

    Args:
        table: The table.
        on: Pairs of key columns: the stream's and the table's.
        how: ``"inner"`` drops rows of the stream without a match; ``"left"`` keeps them, with nulls.
        as_of: The stream's time column and the table's validity column; None = every row of a key matches.
        columns: The table's columns that are added; None = all but its keys.
        suffix: The end of the added columns' names.
        max_bytes: The most bytes that the table's rows may take.
    """

    table: Dimension
    on: tuple[tuple[str, str], ...]
    how: How
    as_of: tuple[str, str] | None
    columns: tuple[str, ...] | None
    suffix: str
    max_bytes: int

    @property
    def left_columns(self) -> tuple[str, ...]:
        """The stream's columns that decide which rows match."""
        return (*(left for left, _ in self.on), *([self.as_of[0]] if self.as_of else []))

    @property
    def right_keys(self) -> tuple[str, ...]:
        """The table's key columns."""
        return tuple(right for _, right in self.on)

    @property
    def valid_from(self) -> str | None:
        """The table's validity column."""
        return self.as_of[1] if self.as_of else None

    def added(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the table's columns that are added to the stream's, by their names in the table.

        Args:
            names: The names of all of the table's columns.
        """
        return tuple(name for name in names if name not in self.right_keys) if self.columns is None else self.columns

    def __str__(self) -> str:
        keys = ", ".join(repr(left) if left == right else f"{left!r} = {right!r}" for left, right in self.on)
        as_of = f" as of {self.as_of[0]!r} >= {self.as_of[1]!r}" if self.as_of else ""
        return f"{self.how} join {self.table!r} on {keys}{as_of}"


class JoinedRows(Protocol):
    """The rows of a join's table, indexed by key; picklable."""

    @property
    def schema(self) -> pa.Schema:
        """The table's columns."""

    def index(self) -> Any:
        """Return the `JoinIndex` of the rows that the current epoch is joined with."""
