"""The changes of tables, of which the rows of a source are made; each connector decodes its own messages to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from volley.capture.selection import TableName

__all__ = [
    *("DELETE", "INSERT", "UPDATE"),
    *("CapturedColumn", "CapturedForm", "Numbers", "RowValues", "TableChanges", "Transactions", "Truncation"),
]

INSERT, UPDATE, DELETE = b"IUD"
Numbers = np.ndarray[Any, Any]


class CapturedColumn(Protocol):
    """A column of a table."""

    @property
    def name(self) -> str: ...

    @property
    def data_type(self) -> pa.DataType:
        """Its Arrow type."""


class CapturedForm(Protocol):
    """A table in the form that it had when its changes were made."""

    @property
    def name(self) -> TableName: ...

    @property
    def columns(self) -> Sequence[CapturedColumn]: ...

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns that identify a row; empty = none."""

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of its rows."""

    @property
    def anew(self) -> str:
        """The way out where its changes are gone."""

    @property
    def with_whole_rows(self) -> str:
        """What makes its changes have whole rows."""


class RowValues(Protocol):
    """The values of several rows, still in their messages."""

    @property
    def columns(self) -> tuple[str, ...]: ...

    def __len__(self) -> int: ...

    def take(self, rows: Numbers) -> RowValues:
        """Return some of the rows."""

    def unchanged(self, column: str) -> Numbers:
        """Return for each row whether the stream leaves a column's value out, as it has not changed."""

    def values(self, column: Any, nulls: bool) -> pa.Array:
        """Return the values of a column; nulls if these rows do not have it."""


@dataclass(frozen=True)
class Transactions:
    """The transactions of some changes."""

    positions: Numbers  # their positions in the server's log
    committed: Numbers  # when they were committed, in microseconds since 1970

    def take(self, indices: Numbers) -> Transactions:
        """Return the transactions at some indices."""
        return Transactions(self.positions[indices], self.committed[indices])


@dataclass(frozen=True)
class TableChanges:
    """Changes of one table, in their order."""

    table: CapturedForm
    numbers: Numbers  # for each change, the number of its message in the batch
    places: Numbers  # for each change, its number in its transaction, from 1
    kinds: Numbers
    new: RowValues
    old: RowValues  # the old rows, of deletes and of updates that have one
    has_new: Numbers  # for each change, whether it has a new row
    has_old: Numbers  # for each change, whether it has an old row
    transactions: Transactions  # for each change, its transaction
    rows: Numbers | int = 0  # for each change, its number in its message, from 0


@dataclass(frozen=True)
class Truncation:
    """A truncation of one table."""

    table: CapturedForm
    number: int
    transaction: Transactions
