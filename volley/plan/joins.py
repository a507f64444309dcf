"""Joins of a stream with a table, or with another stream, as values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, Protocol

from volley.contracts.dimension import Dimension, DimensionReader
from volley.plan.windows import Timing, seconds_text

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["FILTERS", "How", "JoinedRows", "KeyJoin", "NamedTable", "StreamJoin", "TableJoin"]

How = Literal["inner", "left", "right", "full", "semi", "anti"]
"""Which rows come out: pairs; also the left rows without a match, the right ones, or both; or left rows alone: those
with a match, or those without.
"""

FILTERS: tuple[How, ...] = ("semi", "anti")
"""The joins that add no columns: a row comes out alone, at most once."""


@dataclass(frozen=True, kw_only=True)
class KeyJoin:
    """How a stream is joined with rows of the same key: the right side, of which columns are added.

    Args:
        on: Pairs of key columns: the stream's and the right side's.
        how: ``"inner"`` drops rows of the stream without a match; ``"left"`` keeps them, with nulls; ``"semi"`` keeps
            each row with a match once, and ``"anti"`` those without, both without further columns. ``"right"`` and
            ``"full"`` also keep the right side's rows without a match, whose keys are then those of the result.
        columns: The right side's columns that are added; None = all but its keys.
        suffix: The end of the added columns' names.
    """

    on: tuple[tuple[str, str], ...]
    how: How
    columns: tuple[str, ...] | None
    suffix: str

    @property
    def left_keys(self) -> tuple[str, ...]:
        """The stream's key columns."""
        return tuple(left for left, _ in self.on)

    @property
    def right_keys(self) -> tuple[str, ...]:
        """The right side's key columns."""
        return tuple(right for _, right in self.on)

    def added(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the right side's columns that are added to the stream's, by their names there.

        Args:
            names: The names of all of the right side's columns.
        """
        return tuple(name for name in names if name not in self.right_keys) if self.columns is None else self.columns

    @property
    def keeps_left(self) -> bool:
        """True if pairs come out, and rows of the stream without a match with nulls."""
        return self.how in ("left", "full")

    @property
    def keeps_right(self) -> bool:
        """True if pairs come out, and rows of the right side without a match with nulls."""
        return self.how in ("right", "full")

    @property
    def known_additions(self) -> frozenset[str] | None:
        """The names of the added columns; None = all of the right side's, which are not known here."""
        return None if self.columns is None else frozenset(name + self.suffix for name in self.columns)

    @property
    def _keys(self) -> str:
        return ", ".join(repr(left) if left == right else f"{left!r} = {right!r}" for left, right in self.on)


@dataclass(frozen=True, kw_only=True)
class TableJoin(KeyJoin):
    """How a stream is joined with a table.

    Args:
        as_of: The stream's time column and the table's validity column; or the time column alone: the rows that the
            table had then. None = every row of a key matches.
        max_bytes: The most bytes of the table's rows in memory; a larger table is divided by key.
        nulls_match: True: a null key matches a null one.
    """

    table: Dimension
    as_of: tuple[str, str] | str | None
    max_bytes: int
    nulls_match: bool = False

    @property
    def left_columns(self) -> tuple[str, ...]:
        """The stream's columns that decide which rows match."""
        return (*self.left_keys, *([] if self.time is None else [self.time]))

    @property
    def time(self) -> str | None:
        """The stream's time column."""
        return self.as_of[0] if isinstance(self.as_of, tuple) else self.as_of

    @property
    def by_history(self) -> bool:
        """True if a row is joined with the rows that the table had at its time."""
        return isinstance(self.as_of, str)

    @property
    def valid_from(self) -> str | None:
        """The table's validity column."""
        return self.as_of[1] if isinstance(self.as_of, tuple) else None

    def __str__(self) -> str:
        as_of = "" if self.time is None else f" as of {self.time!r}"
        as_of += "" if self.valid_from is None else f" >= {self.valid_from!r}"
        nulls = ", null = null" if self.nulls_match else ""
        return f"{self.how} join {self.table!r} on {self._keys}{nulls}{as_of}"


@dataclass(frozen=True, kw_only=True)
class StreamJoin(KeyJoin):
    """How a stream is joined with another one, whose rows are near in time.

    Args:
        times: The time columns of both sides.
        before: How much earlier than the stream's row a row of the other side may be.
        after: How much later it may be.
        timing: How the join follows event time.
    """

    times: tuple[str, str]
    before: timedelta
    after: timedelta
    timing: Timing

    @property
    def is_filter(self) -> bool:
        """True if rows of the stream come out alone, each at most once."""
        return self.how in FILTERS

    def __str__(self) -> str:
        left, right = self.times
        spans = f"{seconds_text(self.before)} before to {seconds_text(self.after)} after"
        return f"{self.how} join of streams on {self._keys}, {right!r} from {spans} {left!r}"


@dataclass(frozen=True, repr=False)
class NamedTable(Dimension):
    """Stands for a table in tasks: these need its name, and not its rows or secrets."""

    name: str

    @property
    def identity(self) -> str:
        return self.name

    def open(self) -> DimensionReader:
        raise AssertionError("only the driver reads a joined table")

    def __repr__(self) -> str:
        return self.name


class JoinedRows(Protocol):
    """The rows of a join's table, indexed by key; picklable."""

    @property
    def schema(self) -> pa.Schema:
        """The table's columns."""

    def buckets(self) -> Any:
        """Return the `JoinBuckets` of the rows that the current epoch is joined with."""
