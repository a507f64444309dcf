"""What a table needs so that a stream can be joined with it: the value that a plan holds, and the reader that runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from volley.contracts.datasets import Dataset

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Dimension", "DimensionReader", "RowHistory", "Version"]

Version = dict[str, Any]
"""The name of one state of a table, which never changes: a small dict of JSON values, such as a snapshot's id."""


class Dimension(ABC):
    """A table that a stream is joined with: a frozen, printable value. `open` makes the reader that runs.

    Its repr names it, without secrets.
    """

    @property
    @abstractmethod
    def identity(self) -> str:
        """What its versions refer to, without secrets. Joins of one identity use the same version in an epoch."""

    @property
    def earlier_identity(self) -> str | None:
        """The identity that an earlier version gave it, under which checkpoints have its rows; None = the same."""
        return None

    @property
    def selection(self) -> str:
        """What decides which rows and columns it has of a version, without secrets; by default its repr."""
        return repr(self)

    def declared(self) -> pa.Schema | None:
        """Return the Arrow schema that the settings alone tell, without a look at the table; None = not known."""
        return None

    def datasets(self) -> Sequence[Dataset]:
        """Return the names of the tables that it reads, for lineage, as of `Source.datasets`."""
        return [Dataset("volley", self.identity)]

    @abstractmethod
    def open(self) -> DimensionReader:
        """Return the reader. Called on the driver before a job starts.

        Raises:
            VolleyError: If the table can't be read.
        """


@dataclass(frozen=True)
class RowHistory:
    """The rows of a dimension over time.

    Args:
        events: The rows that were added and removed, in the order of time, as pairs of a weight and rows: 1 for added
            rows, -1 for removed ones; with the time, in microseconds since 1970.
        since: The time from which on the history is known, in microseconds since 1970; None = from the beginning.
    """

    events: Iterator[tuple[int, int, pa.RecordBatch]]
    since: int | None


class DimensionReader(ABC):
    """Reads a dimension on the driver.

    Attributes:
        schema: The table's columns.
    """

    schema: pa.Schema
    has_history: bool = False
    """True if it has `history` and `later_history`: rows can be joined with those that it had at their time."""

    is_fixed: ClassVar[bool] = False
    """True if it has one version for ever."""

    @abstractmethod
    def version(self) -> Version:
        """Return the current version. Called in each epoch, so it must be cheap.

        Raises:
            VolleyError: If the table is gone or can't be reached.
        """

    @abstractmethod
    def read(self, version: Version, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield these columns of a version's rows; the same rows on every call.

        Raises:
            SnapshotNotFoundError: If the table does not have the version any more.
            VolleyError: If it can't be read.
        """

    def changes(
        self, before: Version, after: Version, columns: Sequence[str]
    ) -> Iterator[tuple[int, pa.RecordBatch]] | None:
        """Return the rows that were added and removed between two versions: pairs of a weight, 1 or -1, and rows.

        None = `read` is better.

        Raises:
            VolleyError: If the table can't be read; also while the rows are read.
        """
        return None

    def history(self, version: Version, columns: Sequence[str]) -> RowHistory:
        """Return the rows up to a version, with the time of each change; arguments and errors as of `read`."""
        raise NotImplementedError

    def later_history(
        self, before: Version, after: Version, columns: Sequence[str]
    ) -> Iterator[tuple[int, int, pa.RecordBatch]] | None:
        """Return the events, as of `RowHistory`, that a version has behind those of an earlier one.

        None = the one history is not the beginning of the other.

        Raises:
            VolleyError: If the table can't be read; also while the events are read.
        """
        return None
