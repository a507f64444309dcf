"""Decodes messages to rows, a whole batch of messages at a time: no loop over rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from volley.capture.changes import DELETE, INSERT, UPDATE, Numbers, TableChanges, Transactions, Truncation
from volley.connectors.postgres.loads import Fence
from volley.connectors.postgres.messages import (
    BEGIN,
    EPOCH_MICROSECONDS,
    TABLE,
    TRUNCATE,
    truncated,
)
from volley.connectors.postgres.tables import Table, table_of
from volley.connectors.postgres.types import TableColumn, from_text
from volley.formats.cursors import spans

__all__ = ["ChangeDecoder", "Tuples"]

_NULL, _UNCHANGED = b"nu"
_KEY, _OLD = b"KO"
_IS_CHANGE = np.isin(np.arange(256), (INSERT, UPDATE, DELETE, TRUNCATE))
"""Whether a message of a kind is a change."""


class MessageBytes:
    """A batch of messages as one array of bytes."""

    def __init__(self, messages: pa.BinaryArray) -> None:
        offsets = np.frombuffer(messages.buffers()[1], np.int32)
        self.starts = offsets[messages.offset : messages.offset + len(messages)].astype(np.int64)
        self.data = np.frombuffer(messages.buffers()[2], np.uint8)
        self.kinds = self.data[self.starts]
        self._messages = messages

    def __getitem__(self, number: int) -> bytes:
        message: bytes = self._messages[number].as_py()
        return message

    def numbers(self, *kinds: int) -> Numbers:
        """Return the numbers of the messages of some kinds."""
        return np.flatnonzero(np.isin(self.kinds, kinds))

    def integers(self, at: Numbers, width: int) -> Numbers:
        """Return the big-endian integers at some positions."""
        value = self.data[at].astype(np.int64)
        for byte in range(1, width):
            value = value << 8 | self.data[at + byte]
        return value


@dataclass(frozen=True)
class Tuples:
    """The values of several rows, as positions in their messages."""

    messages: MessageBytes
    columns: tuple[str, ...]
    kinds: list[Numbers]  # for each column, the kinds of the values
    starts: list[Numbers]  # for each column, where the texts begin
    ends: list[Numbers]  # for each column, where they end
    after: Numbers  # where the rows end

    @classmethod
    def at(cls, messages: MessageBytes, columns: tuple[str, ...], at: Numbers) -> Tuples:
        """Find the values of the rows that begin at some positions."""
        kinds, starts, ends = [], [], []
        at = at + 2
        for _ in columns:
            kind = messages.data[at]
            has_text = (kind != _NULL) & (kind != _UNCHANGED)
            start = np.where(has_text, at + 5, at + 1)
            # The last bytes of a batch may be a value without a length.
            length = messages.integers(np.where(has_text, at + 1, 0), 4)
            at = start + np.where(has_text, length, 0)
            kinds.append(kind)
            starts.append(start)
            ends.append(at)
        return cls(messages, columns, kinds, starts, ends, at)

    def __len__(self) -> int:
        return len(self.after)

    def take(self, rows: Numbers) -> Tuples:
        """Return some of the rows."""
        kinds, starts, ends = ([part[rows] for part in parts] for parts in (self.kinds, self.starts, self.ends))
        return Tuples(self.messages, self.columns, kinds, starts, ends, self.after[rows])

    def with_unchanged(self, rows: Numbers, old: Tuples) -> Tuples:
        """Return the rows with the values that some of them have in their old rows where they are unchanged."""
        kinds, starts, ends = list(self.kinds), list(self.starts), list(self.ends)
        for number in range(len(self.columns)):
            # An old row of the key alone has nulls elsewhere; what is stored out of line is never null.
            unchanged = (kinds[number][rows] == _UNCHANGED) & (old.kinds[number] != _NULL)
            if not unchanged.any():
                continue
            where = rows[unchanged]
            for new, before in ((kinds, old.kinds), (starts, old.starts), (ends, old.ends)):
                new[number] = new[number].copy()
                new[number][where] = before[number][unchanged]
        return Tuples(self.messages, self.columns, kinds, starts, ends, self.after)

    def unchanged(self, column: str) -> Numbers:
        """Return for each row whether the stream leaves a column's value out, as it has not changed."""
        return np.asarray(self.kinds[self.columns.index(column)] == _UNCHANGED)

    def values(self, column: TableColumn, nulls: bool) -> pa.Array:
        """Return the values of a column; nulls if these rows do not have it."""
        if column.name not in self.columns:
            return pa.nulls(len(self.after), column.data_type)
        number = self.columns.index(column.name)
        missing = (self.kinds[number] == _NULL) | (self.kinds[number] == _UNCHANGED)
        texts = spans(self.messages.data, self.starts[number], self.ends[number], missing, pa.string())
        return from_text(column, texts, nulls)


@dataclass(frozen=True)
class StreamedTransactions(Transactions):
    """The transactions of a batch of messages, the one that is open before it first."""

    xids: Numbers  # the lower 32 bits of their ids

    @classmethod
    def begun(cls, messages: MessageBytes, begins: Numbers, before: StreamedTransactions) -> StreamedTransactions:
        """Return the transactions that begin at some messages, after the last one of those before."""
        at = messages.starts[begins] + 1
        begun = (
            messages.integers(at, 8),
            messages.integers(at + 8, 8) + EPOCH_MICROSECONDS,
            messages.integers(at + 16, 4),
        )
        earlier = (before.positions, before.committed, before.xids)
        return cls(*(np.concatenate([old[-1:], new]) for old, new in zip(earlier, begun, strict=True)))

    def take(self, indices: Numbers) -> StreamedTransactions:
        return StreamedTransactions(self.positions[indices], self.committed[indices], self.xids[indices])


@dataclass
class ChangeDecoder:
    """Finds the changes of tables in the batches of a segment, in the order of each table."""

    fences: Mapping[int, Fence]  # by the oids of tables, the transactions that their loads have seen
    _tables: dict[int, Table] = field(default_factory=dict)
    _open: int = 0  # the changes so far of the transaction that is open
    _transactions: StreamedTransactions = field(
        default_factory=lambda: StreamedTransactions(*np.zeros((3, 1), np.int64))
    )

    def changes(self, batch: pa.RecordBatch) -> Iterator[TableChanges | Truncation]:
        """Yield the changes in a batch of messages; those of a table in its order, whatever forms it has in turn."""
        if batch.num_rows == 0:
            return
        messages = MessageBytes(batch.column(0))
        begins = messages.numbers(BEGIN)
        # Not the forms of tables, which the server sends when it likes.
        counts = np.cumsum(_IS_CHANGE[messages.kinds])
        bases = np.append(-self._open, counts[begins])
        self._open = int(counts[-1] - bases[-1])
        self._transactions = StreamedTransactions.begun(messages, begins, self._transactions)
        described = messages.numbers(TABLE, TRUNCATE)
        for first, last in zip([-1, *described], [*described, batch.num_rows], strict=True):
            if first >= 0:
                yield from self._note(messages, int(first), begins)
            if last > first + 1:
                yield from self._between(messages, int(first) + 1, int(last), begins, counts, bases)

    def _note(self, messages: MessageBytes, number: int, begins: Numbers) -> Iterator[Truncation]:
        """Take note of the form of a table; yield truncations."""
        if messages.kinds[number] == TABLE:
            table = table_of(messages[number])
            self._tables[table.oid] = table
            return
        transaction = np.searchsorted(begins, [number])
        for table in filter(None, map(self._tables.get, truncated(messages[number]))):
            if self._is_new(table, transaction).all():
                yield Truncation(table, number, self._transactions.take(transaction))

    def _is_new(self, table: Table, transactions: Numbers) -> Numbers:
        """Return for transactions, by their indices, whether the table's load has not seen them."""
        fence = self.fences.get(table.oid)
        if fence is None:
            return np.ones(len(transactions), np.bool_)
        own = self._transactions.take(transactions)
        return ~fence.has(own.positions, own.xids)

    def _between(
        self, messages: MessageBytes, first: int, last: int, begins: Numbers, counts: Numbers, bases: Numbers
    ) -> Iterator[TableChanges]:
        """Yield the changes among the messages of a range, in which each table has one form.

        Args:
            begins: The numbers of the messages that begin transactions.
            counts: For each message, the number of changes up to it.
            bases: For each transaction, the number of changes before it.
        """
        kinds = messages.kinds[first:last]
        numbers = first + np.flatnonzero((kinds == INSERT) | (kinds == UPDATE) | (kinds == DELETE))
        oids = messages.integers(messages.starts[numbers] + 1, 4)
        for oid in np.unique(oids):
            table = self._tables.get(int(oid))
            if table is not None:
                own = numbers[oids == oid]
                transactions = np.searchsorted(begins, own)
                yield from self._of_table(messages, table, own, transactions, counts[own] - bases[transactions])

    def _of_table(
        self, messages: MessageBytes, table: Table, numbers: Numbers, transactions: Numbers, places: Numbers
    ) -> Iterator[TableChanges]:
        new = self._is_new(table, transactions)
        if new.any():
            yield _found(messages, table, numbers[new], places[new], self._transactions.take(transactions[new]))


def _found(
    messages: MessageBytes, table: Table, numbers: Numbers, places: Numbers, transactions: Transactions
) -> TableChanges:
    columns = table.names
    kinds, starts = messages.kinds[numbers], messages.starts[numbers]
    marks = messages.data[starts + 5]
    has_old = (marks == _KEY) | (marks == _OLD)
    has_new = kinds != DELETE
    old = Tuples.at(messages, columns, starts[has_old] + 6)
    at = starts + 6
    # The new row follows the old one, after a mark of one byte.
    at[has_old] = old.after + 1
    new = Tuples.at(messages, columns, at[has_new])
    # A whole old row has the values that an update leaves out, one with its key those of the key.
    if (both := has_new & has_old).any():
        rows = (np.cumsum(has_new) - 1)[both]
        new = new.with_unchanged(rows, old.take((np.cumsum(has_old) - 1)[both]))
    return TableChanges(table, numbers, places, kinds, new, old, has_new, has_old, transactions)
