"""Decodes staged messages to changes, many messages at a time: one step of a loop is a row of each message."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from volley.capture.changes import DELETE, INSERT, UPDATE, Numbers, TableChanges, Transactions, Truncation
from volley.connectors.mariadb.binaryjson import decimal_groups
from volley.connectors.mariadb.fields import Fields, set_bytes
from volley.connectors.mariadb.log import lenenc
from volley.connectors.mariadb.messages import BEGIN, TABLE, TRUNCATE, described_table, lengths_of, numbered
from volley.connectors.mariadb.tables import Table
from volley.connectors.mariadb.types import TableColumn
from volley.errors import SourceError

__all__ = ["ChangeDecoder", "Images"]

_HEAD = 5
_PLACES_A_MESSAGE = 20
_NULL, _ABSENT = 1, 2


@dataclass(frozen=True)
class Images:
    """Rows before or after their changes, as places in their messages."""

    data: Numbers
    columns: tuple[str, ...]
    # For each column: where the values begin and end, and 0, or 1 for a null, 2 for a value that is not logged.
    starts: list[Numbers]
    ends: list[Numbers]
    marks: list[Numbers]
    count: int

    def __len__(self) -> int:
        return self.count

    def take(self, rows: Numbers) -> Images:
        """Return some of the rows."""
        starts, ends, marks = ([part[rows] for part in parts] for parts in (self.starts, self.ends, self.marks))
        return Images(self.data, self.columns, starts, ends, marks, len(rows))

    def unchanged(self, column: str) -> Numbers:
        """Return for each row whether the log leaves a column's value out."""
        return np.asarray(self.marks[self.columns.index(column)] == _ABSENT)

    def values(self, column: TableColumn, nulls: bool) -> pa.Array:
        """Return the values of a column; nulls if these rows do not have it."""
        if column.name not in self.columns:
            return pa.nulls(self.count, column.data_type)
        number = self.columns.index(column.name)
        return Fields(self.data, self.starts[number], self.ends[number], self.marks[number] != 0).values(column, nulls)

    def filled(self, old: Images) -> Images:
        """Return the rows with the values of the old ones where they have none."""
        starts, ends, marks = [], [], []
        for number in range(len(self.columns)):
            absent = self.marks[number] == _ABSENT
            starts.append(np.where(absent, old.starts[number], self.starts[number]))
            ends.append(np.where(absent, old.ends[number], self.ends[number]))
            marks.append(np.where(absent, old.marks[number], self.marks[number]))
        return Images(self.data, self.columns, starts, ends, marks, self.count)


class _Wire:
    """A table's columns as its rows have them."""

    def __init__(self, table: Table, data: Numbers) -> None:
        self._data = data
        self._sizes = [_sizes(column) for column in table.columns]

    def parsed(self, at: Numbers, present: Sequence[bool]) -> tuple[list[tuple[Numbers, Numbers, Numbers]], Numbers]:
        """Return the values of a row that begins at each place, column by column, and where the rows end."""
        width = (sum(present) + 7) // 8
        nulls = [self._data[at + byte] for byte in range(width)]
        # For each byte of the bitmaps, the bits that are set in a row at least.
        some = [int(np.bitwise_or.reduce(byte)) for byte in nulls]
        values, bit, at = [], 0, at + width
        none = np.zeros(len(at), np.int8)
        for sizes, is_there in zip(self._sizes, present, strict=True):
            if not is_there:
                values.append((at, at, np.full(len(at), _ABSENT, np.int8)))
                continue
            if some[bit // 8] >> bit % 8 & 1:
                is_null = nulls[bit // 8] >> bit % 8 & 1 == 1
                start, end = self._field(sizes, at, np.where(is_null, 0, at))
                start, end = np.where(is_null, at, start), np.where(is_null, at, end)
                values.append((start, end, is_null.astype(np.int8)))
            else:
                start, end = self._field(sizes, at, at)
                values.append((start, end, none))
            at, bit = end, bit + 1
        return values, at

    def _field(self, sizes: tuple[int, int], at: Numbers, length_at: Numbers) -> tuple[Numbers, Numbers]:
        """Return where values begin and end; behind a null there may be no byte that could be read as a length."""
        prefix, size = sizes
        if not prefix:
            return at, at + size
        length = self._data[length_at]
        for byte in range(1, prefix):
            length = length | self._data[length_at + byte].astype(np.int64) << 8 * byte
        start = at + prefix
        return start, start + length


def _sizes(column: TableColumn) -> tuple[int, int]:
    """Return the bytes of a value's length, or 0 and the bytes of each value."""
    if column.integer_bytes:
        return 0, column.integer_bytes
    if column.type in ("char", "varchar", "binary", "varbinary"):
        return (2 if column.length > 255 else 1), 0
    if column.type in ("text", "blob"):
        return column.length.bit_length() // 8, 0
    width = (column.length + 1) // 2
    fixed = {
        **{"float": 4, "double": 8, "year": 1, "date": 3, "datetime": 5 + width, "timestamp": 4 + width},
        **{"time": 3 + width, "bit": (column.length + 7) // 8, "enum": 1 if len(column.labels) < 256 else 2},
        "set": set_bytes(len(column.labels)),
    }
    if column.type == "decimal":
        return 0, sum(size for size, _ in decimal_groups(column.length, column.scale))
    # An address or UUID is logged as a text of bytes, a shape as a large blob.
    return (
        (4, 0)
        if column.type in ("geometry", "json", "vector")
        else (0, fixed[column.type])
        if column.type in fixed
        else (1, 0)
    )


class _Messages:
    """A batch of messages as one array of bytes."""

    def __init__(self, messages: pa.BinaryArray) -> None:
        offsets = np.frombuffer(messages.buffers()[1], np.int32)
        self.starts = offsets[messages.offset : messages.offset + len(messages)].astype(np.int64)
        self.lengths = lengths_of(messages)
        self.data = np.frombuffer(messages.buffers()[2], np.uint8)
        self.kinds = self.data[self.starts]
        self._messages = messages

    def __getitem__(self, number: int) -> bytes:
        message: bytes = self._messages[number].as_py()
        return message

    def integers(self, at: Numbers, width: int) -> Numbers:
        """Return the big-endian integers at some places."""
        value = np.zeros(len(at), np.int64)
        for byte in range(width):
            value = value << 8 | self.data[at + byte]
        return value


@dataclass
class ChangeDecoder:
    """Finds the changes of tables in the batches of a segment."""

    fences: Mapping[str, int]  # by the names of tables, the position before which their loads have seen all changes
    _tables: dict[int, Table] = field(default_factory=dict)
    _position: int = 0
    _committed: int = 0
    _places: int = 0  # the messages so far of the transaction that is open

    def changes(self, batch: pa.RecordBatch) -> Iterator[TableChanges | Truncation]:
        """Yield the changes in a batch of messages; their numbers tell their order."""
        if batch.num_rows == 0:
            return
        messages = _Messages(batch.column(0))
        transactions, places = self._transactions(messages)
        numbers = np.concatenate([[0], np.cumsum(numbered(messages.lengths))[:-1]])
        described = np.flatnonzero((messages.kinds == TABLE) | (messages.kinds == TRUNCATE))
        for first, last in zip([-1, *described], [*described, batch.num_rows], strict=True):
            if first >= 0:
                yield from self._note(messages, int(first), numbers, transactions)
            between = np.arange(first + 1, last)
            yield from self._between(messages, between, numbers, transactions, places)

    def _transactions(self, messages: _Messages) -> tuple[Transactions, Numbers]:
        """Return for each message its transaction, and its number there."""
        begins = np.flatnonzero(messages.kinds == BEGIN)
        at = messages.starts[begins] + 1
        positions = np.append(self._position, messages.integers(at, 8))
        committed = np.append(self._committed, messages.integers(at + 8, 8))
        own = np.searchsorted(begins, np.arange(len(messages.kinds)), side="right")
        counts = np.arange(len(messages.kinds)) - np.append(-self._places, begins)[own]
        self._position, self._committed, self._places = int(positions[-1]), int(committed[-1]), int(counts[-1]) + 1
        return Transactions(positions[own], committed[own]), counts

    def _note(
        self, messages: _Messages, number: int, numbers: Numbers, transactions: Transactions
    ) -> Iterator[Truncation]:
        """Take note of the form of a table; yield truncations."""
        if messages.kinds[number] == TABLE:
            table_id, table = described_table(messages[number])
            self._tables[table_id] = table
            return
        of = self._tables.get(int(messages.integers(messages.starts[[number]] + 1, 4)[0]))
        own = transactions.take(np.array([number]))
        if of is not None and self._is_new(of, own.positions).all():
            yield Truncation(of, int(numbers[number]), own)

    def _is_new(self, table: Table, positions: Numbers) -> Numbers:
        """Return which transactions the table's load has not seen."""
        return np.asarray(positions >= self.fences.get(str(table.name), 0))

    def _between(
        self, messages: _Messages, own: Numbers, numbers: Numbers, transactions: Transactions, places: Numbers
    ) -> Iterator[TableChanges]:
        """Yield the changes among messages between which no table gets another form."""
        kinds = messages.kinds[own]
        own = own[(kinds == INSERT) | (kinds == UPDATE) | (kinds == DELETE)]
        tables = messages.integers(messages.starts[own] + 1, 4)
        for number in np.unique(tables):
            table = self._tables[int(number)]
            of_table = own[tables == number]
            of_table = of_table[self._is_new(table, transactions.positions[of_table])]
            for alike in _alike(messages, of_table, table):
                yield _changes(messages, alike, table, numbers, transactions, places)


def _alike(messages: _Messages, own: Numbers, table: Table) -> Iterator[Numbers]:
    """Yield messages of one kind whose rows have the same columns."""
    columns = len(table.columns)
    if not len(own):
        return
    width = (columns + 7) // 8
    # The kind, and behind the number of columns, a bitmap of those that are there; an update has two.
    offset = _HEAD + (1 if columns < 251 else 3)
    heads = np.zeros((len(own), 1 + 2 * width), np.uint8)
    heads[:, 0] = messages.kinds[own]
    last = len(messages.data) - 1
    starts = messages.starts[own][:, None] + offset
    heads[:, 1 : 1 + width] = messages.data[np.minimum(starts + np.arange(width), last)]
    is_update = heads[:, 0] == UPDATE
    both = messages.data[np.minimum(starts + np.arange(width, 2 * width), last)]
    heads[is_update, 1 + width :] = both[is_update]
    _, kinds = np.unique(heads, axis=0, return_inverse=True)
    kinds = kinds.reshape(-1)
    for kind in range(int(kinds.max()) + 1):
        yield own[kinds == kind]


def _changes(
    messages: _Messages, own: Numbers, table: Table, numbers: Numbers, transactions: Transactions, places: Numbers
) -> TableChanges:
    kind = int(messages.kinds[own[0]])
    first = messages[int(own[0])]
    columns, at = lenenc(first, _HEAD)
    if columns != len(table.columns):
        raise SourceError(
            f"a row of table {table.name} has {columns} columns, where the log describes {len(table.columns)}",
            hint=table.anew,
        )
    width = (columns + 7) // 8
    bitmaps = [first[at + width * number : at + width * (number + 1)] for number in range(2 if kind == UPDATE else 1)]
    present = [[bitmap[number // 8] >> number % 8 & 1 == 1 for number in range(columns)] for bitmap in bitmaps]
    offset = at + width * len(bitmaps)
    images, rows, counts = _rows(messages, own, table, present, offset)
    of = own[rows]
    has = np.ones(len(rows), np.bool_)
    nothing = images[0].take(np.zeros(0, np.int64))
    old, new = (
        (images[0], images[-1]) if kind == UPDATE else (nothing, images[0]) if kind == INSERT else (images[0], nothing)
    )
    if kind == UPDATE:
        new = new.filled(old)
    elif kind == INSERT:
        new = _with_blanks(new, table, present[0])
    return TableChanges(
        table,
        numbers[of],
        (places[of] << _PLACES_A_MESSAGE) + counts + 1,
        np.full(len(rows), kind, np.uint8),
        new,
        old,
        has if kind != DELETE else ~has,
        has if kind != INSERT else ~has,
        transactions.take(of),
        counts,
    )


def _with_blanks(new: Images, table: Table, present: Sequence[bool]) -> Images:
    """Return inserted rows, whose columns that are not logged are null by their default.

    Raises:
        SourceError: If another default, which the log does not tell, stands for one.
    """
    for column, is_there in zip(table.columns, present, strict=True):
        if not is_there and not column.blank:
            raise SourceError(
                f"an inserted row of table {table.name} leaves out column {column.name!r}, whose default the log does "
                "not tell",
                hint=f"set global binlog_row_image = NOBLOB or FULL; {table.anew}",
            )
    marks = [np.where(mark == _ABSENT, _NULL, mark) for mark in new.marks]
    return Images(new.data, new.columns, new.starts, new.ends, marks, new.count)


def _rows(
    messages: _Messages, own: Numbers, table: Table, present: Sequence[Sequence[bool]], offset: int
) -> tuple[list[Images], Numbers, Numbers]:
    """Return the rows of messages, once for each image, and for each row its message, and its number there."""
    wire = _Wire(table, messages.data)
    at = messages.starts[own] + offset
    ends = messages.starts[own] + messages.lengths[own]
    active = np.arange(len(own))
    steps: list[list[list[tuple[Numbers, Numbers, Numbers]]]] = []
    actives: list[Numbers] = []
    wrong = SourceError(f"rows of table {table.name} do not end where the log says", hint=table.anew)
    while len(active := active[at[active] < ends[active]]):
        here, images = at[active], []
        try:
            for bits in present:
                values, here = wire.parsed(here, bits)
                images.append(values)
        except IndexError as error:
            raise wrong from error
        at[active] = here
        steps.append(images)
        actives.append(active)
    if (at != ends).any():
        raise wrong
    rows = np.concatenate(actives) if actives else np.zeros(0, np.int64)
    counts = np.concatenate([np.full(len(part), step) for step, part in enumerate(actives)] or [np.zeros(0, np.int64)])
    order = np.lexsort((counts, rows))
    images_of = [_image(messages.data, table, [step[image] for step in steps], order) for image in range(len(present))]
    return images_of, rows[order], counts[order]


def _image(
    data: Numbers, table: Table, steps: Sequence[list[tuple[Numbers, Numbers, Numbers]]], order: Numbers
) -> Images:
    parts: list[list[Numbers]] = [[], [], []]
    for column in range(len(table.columns)):
        for number, kept in enumerate(parts):
            kept.append(np.concatenate([step[column][number] for step in steps] or [np.zeros(0, np.int64)])[order])
    starts, ends, marks = parts
    return Images(data, table.names, starts, ends, marks, len(order))
