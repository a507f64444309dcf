"""What a source yields: the rows of an upsert or the events of a changelog, of its one table or packed of many."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from volley.capture.changes import (
    DELETE,
    INSERT,
    UPDATE,
    CapturedForm,
    Numbers,
    RowValues,
    TableChanges,
    Transactions,
    Truncation,
)
from volley.columns.roles import ChangeColumns
from volley.errors import SchemaChangedError, SourceError
from volley.formats.packed_rows import pack_rows

__all__ = [
    "CHANGE",
    "OPERATION",
    "POSITION",
    "SEQUENCE",
    "UNCHANGED",
    "Form",
    "ManyTables",
    "OneTable",
    "Output",
    "RowForm",
    "form_of",
    "holds",
    "load_place",
]

OPERATION, SEQUENCE, UNCHANGED = "_op", "_seq", "_unchanged"
POSITION, CHANGE = "_lsn", "_change"
"""The columns in place of `SEQUENCE` that tell the place of a row in the server's log."""
_LOADED = "r"
"""The operation of a row that a load has read."""
_TRUNCATED = "t"
"""The operation of a row that stands for the end of all rows before it."""

_PLACES = 1 << 21
"""The numbers between two messages, for the loads that are read there: a million, of two numbers each."""

_NAMES = pa.list_(pa.string())
"""The type of lists of columns."""
_OPERATIONS = {INSERT: "i", UPDATE: "u", DELETE: "d"}
_MOMENT = pa.timestamp("us", "UTC")
_NAMESPACE, _TABLE, _ROWS = "namespace", "table", "rows"


def load_place(load: int, first: int) -> int:
    """Return the number that orders the truncation before a load; the load's rows have the next one.

    Args:
        first: The number of the first message after it.
    """
    return _PLACES * (first - 1) + 2 * load


@dataclass(frozen=True)
class RowForm:
    """The table's columns, with the operation, and a number that orders the changes, or their place in the log."""

    table: CapturedForm
    nulls: bool
    sequence: bool = False

    @property
    def schema(self) -> pa.Schema:
        """The schema of the rows."""
        order = (POSITION, CHANGE) if self.sequence else (SEQUENCE,)
        hidden = [(OPERATION, pa.string()), *((name, pa.int64()) for name in order), (UNCHANGED, _NAMES)]
        roles = (
            ChangeColumns(self.table.keys, None, OPERATION, UNCHANGED, order)
            if self.sequence
            else ChangeColumns(self.table.keys, SEQUENCE, OPERATION, UNCHANGED)
        )
        return roles.noted(pa.schema([*self.table.schema, *hidden]))

    def loaded(self, rows: pa.RecordBatch, place: int, position: int) -> pa.RecordBatch:
        """Return the rows of the load of a place.

        Args:
            position: A position in the server's log before all changes that the load may not have seen.
        """
        operation = pa.repeat(pa.scalar(_LOADED), rows.num_rows)
        values = (position, 0) if self.sequence else (place + 1,)
        order = (pa.repeat(pa.scalar(value, pa.int64()), rows.num_rows) for value in values)
        unchanged = pa.nulls(rows.num_rows, _NAMES)
        return pa.RecordBatch.from_arrays([*rows.columns, operation, *order, unchanged], schema=self.schema)

    def emptied(self, place: int) -> pa.RecordBatch:
        """Return the row before a load that replaces all rows."""
        return self._truncated(place)

    def truncated(self, truncation: Truncation, first: int) -> pa.RecordBatch:
        """Return the row of a truncation.

        Args:
            first: The number of the first message of its batch.
        """
        return self._truncated(_PLACES * (first + truncation.number))

    def _truncated(self, sequence: int) -> pa.RecordBatch:
        if self.sequence:
            raise SourceError(
                "it was truncated, and which rows of a table are older than that is not told by sequence",
                hint=f"delete from, in place of truncate; {self.table.anew}, or leave sequence out",
            )
        return pa.RecordBatch.from_pylist([{OPERATION: _TRUNCATED, SEQUENCE: sequence}], self.schema)

    def changed(self, changes: TableChanges, first: int) -> pa.RecordBatch:
        """Return the rows of changes: a changed key is a deletion of the old one, then, numbered next, the new row."""
        _check_keys(self.table, changes.new)
        numbers = _PLACES * (first + changes.numbers) + 2 * changes.rows
        kinds = changes.kinds[changes.has_new]
        operations = pa.array(np.where(kinds == INSERT, "i", "u"), pa.string())
        unchanged = _unchanged_columns(self.table, changes.new)
        written = self._batch(changes.new, operations, self._order(changes, numbers, changes.has_new, 1), unchanged)
        gone = self._gone(changes)
        if not gone.any():
            return written
        has_gone = changes.has_old.copy()
        has_gone[changes.has_old] = gone
        if self.sequence:
            _check_moved(self.table, changes, has_gone, unchanged)
        old = changes.old.take(np.flatnonzero(gone))
        operations = pa.repeat(pa.scalar("d"), int(gone.sum()))
        nothing = pa.nulls(len(operations), _NAMES)
        deleted = self._batch(old, operations, self._order(changes, numbers, has_gone, 0), nothing)
        both = pa.concat_batches([written, deleted])
        order = np.argsort(np.append(numbers[changes.has_new] + 1, numbers[has_gone]), kind="stable")
        return both.take(pa.array(order))

    def _order(self, changes: TableChanges, numbers: Numbers, chosen: Numbers, offset: int) -> list[pa.Array]:
        """Return the columns that order the rows of some changes; the offset is 0 for old rows, 1 for new ones."""
        if not self.sequence:
            return [pa.array(numbers[chosen] + offset)]
        return [pa.array(changes.transactions.positions[chosen]), pa.array(2 * changes.places[chosen] + offset)]

    def _gone(self, changes: TableChanges) -> Numbers:
        """Return for each old row whether its key is no longer in the table."""
        gone = np.asarray(changes.kinds[changes.has_old] == DELETE)
        changed = ~gone
        if not changed.any():
            return gone
        rows = (np.cumsum(changes.has_new) - 1)[changes.has_old & changes.has_new]
        before, after = changes.old.take(np.flatnonzero(changed)), changes.new.take(rows)
        same = np.ones(len(rows), np.bool_)
        for column in self.table.columns:
            if column.name in self.table.keys:
                equal = pc.equal(before.values(column, self.nulls), after.values(column, self.nulls))
                same &= equal.fill_null(False).to_numpy(zero_copy_only=False)
        gone[changed] = ~same
        return gone

    def _batch(
        self, rows: RowValues, operations: pa.Array, order: list[pa.Array], unchanged: pa.Array
    ) -> pa.RecordBatch:
        values = [rows.values(column, self.nulls) for column in self.table.columns]
        return pa.RecordBatch.from_arrays([*values, operations, *order, unchanged], schema=self.schema)


def _check_keys(table: CapturedForm, rows: RowValues) -> None:
    """Check that rows have their keys: a server sends an old key that is stored out of line since 13.6 and 14.2."""
    for key in table.keys:
        if key in rows.columns and rows.unchanged(key).any():
            raise SourceError(
                f"key column {key!r} has a large value that an update has not changed, which this server does not send",
                hint=f"{table.with_whole_rows}; or update the server to its last minor version; then {table.anew}",
            )


def _check_moved(table: CapturedForm, changes: TableChanges, has_gone: Numbers, unchanged: pa.ListArray) -> None:
    """Check that rows whose keys have changed have all values: by sequence, each key is settled by itself."""
    lacks = pc.greater(pc.list_value_length(unchanged), 0).fill_null(False).to_numpy(zero_copy_only=False)
    if (has_gone[changes.has_new] & lacks).any():
        raise SourceError(
            "a row has got another key, and leaves out a large value, which by sequence none but its old key has",
            hint=f"{table.with_whole_rows}; then {table.anew}",
        )


def _unchanged_columns(table: CapturedForm, rows: RowValues) -> pa.ListArray:
    """Return for each row the columns whose values are not in the stream: they are large, and have not changed."""
    names = [column.name for column in table.columns if column.name in rows.columns]
    missing = {name: positions for name in names if len(positions := np.flatnonzero(rows.unchanged(name)))}
    if not missing:
        return pa.nulls(len(rows), _NAMES)
    positions = np.concatenate([*missing.values()])
    columns = np.concatenate([np.repeat(number, len(rows)) for number, rows in enumerate(missing.values())])
    values = pa.array([*missing]).take(pa.array(columns[np.argsort(positions, kind="stable")]))
    ends = np.cumsum(np.bincount(positions, minlength=len(rows)))
    return pa.ListArray.from_arrays(pa.array([0, *ends], pa.int32()), values)


@dataclass(frozen=True)
class ChangelogForm:
    """One row an event: what happened, where and when, and the row before and after."""

    table: CapturedForm
    nulls: bool

    @property
    def schema(self) -> pa.Schema:
        """The schema of the rows."""
        row = pa.struct(list(self.table.schema))
        return pa.schema(
            {
                **{"op": pa.string(), "seq": pa.int64(), "lsn": pa.int64(), "commit_time": _MOMENT},
                **{"before": row, "after": row, "unchanged": _NAMES},
            }
        )

    def loaded(self, rows: pa.RecordBatch, place: int, position: int) -> pa.RecordBatch:
        """Return the events of the load of a place."""
        count = rows.num_rows
        after = pa.StructArray.from_arrays(rows.columns, fields=list(self.table.schema))
        columns = [
            *(pa.repeat(pa.scalar(_LOADED), count), pa.repeat(pa.scalar(place + 1, pa.int64()), count)),
            *(pa.nulls(count, field.type) for field in [*self.schema][2:5]),
            *(after, pa.nulls(count, _NAMES)),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def changed(self, changes: TableChanges, first: int) -> pa.RecordBatch:
        """Return the events of changes; an update of a key is one event."""
        operations = np.select([changes.kinds == kind for kind in _OPERATIONS], [*_OPERATIONS.values()], "")
        columns = [
            *(pa.array(operations, pa.string()), pa.array(_PLACES * (first + changes.numbers) + 2 * changes.rows)),
            *_moments(changes.transactions),
            self._rows(changes.old, changes.has_old),
            self._rows(changes.new, changes.has_new),
            _unchanged_columns(self.table, changes.new).take(_places(changes.has_new)),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def emptied(self, place: int) -> pa.RecordBatch:
        """Return the event before a load that replaces all rows."""
        values = (pa.nulls(1, field.type) for field in [*self.schema][2:])
        sequence = pa.array([place])
        return pa.RecordBatch.from_arrays([pa.array([_TRUNCATED]), sequence, *values], schema=self.schema)

    def truncated(self, truncation: Truncation, first: int) -> pa.RecordBatch:
        """Return the event of a truncation: it has no rows."""
        columns = [
            *(pa.array([_TRUNCATED]), pa.array([_PLACES * (first + truncation.number)])),
            *_moments(truncation.transaction),
            *(pa.nulls(1, field.type) for field in [*self.schema][4:]),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _rows(self, rows: RowValues, present: Numbers) -> pa.StructArray:
        """Return for each event the row that it has, or null."""
        places = _places(present)
        values = [rows.values(column, self.nulls).take(places) for column in self.table.columns]
        return pa.StructArray.from_arrays(values, fields=list(self.table.schema), mask=pa.array(~present))


def _moments(transactions: Transactions) -> tuple[pa.Array, pa.Array]:
    """Return the positions of the commits of transactions in the server's log, and their times."""
    return pa.array(transactions.positions), pa.array(transactions.committed).cast(_MOMENT)


def _places(present: Numbers) -> pa.Array:
    """Return for each event the number of the row that it has, or null."""
    return pa.array(np.cumsum(present) - 1, mask=~present)


Form = RowForm | ChangelogForm


def form_of(table: CapturedForm, nulls: bool, changelog: bool, sequence: bool) -> Form:
    """Return the form of a table's rows."""
    return ChangelogForm(table, nulls) if changelog else RowForm(table, nulls, sequence)


class Output(ABC):
    """Makes the rows that a source yields; picklable."""

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The schema of what it makes."""

    @abstractmethod
    def form(self, table: CapturedForm) -> Form:
        """Return the form of the rows of a table, which has the form that it had then.

        Raises:
            SchemaChangedError: If the job must be planned anew for such rows.
        """

    def form_of_load(self, table: CapturedForm) -> Form:
        """Return the form of the rows of a table that a load reads. Raises like `form`."""
        return self.form(table)

    @abstractmethod
    def of(self, form: Form, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return what the source yields for rows of a form."""


@dataclass(frozen=True)
class OneTable(Output):
    """The rows themselves, in the form that the table had when the job was planned."""

    fixed: Form
    dropped: frozenset[str]

    @property
    def schema(self) -> pa.Schema:
        return self.fixed.schema

    def form(self, table: CapturedForm) -> Form:
        planned = {column.name: column.data_type for column in self.fixed.table.columns}
        for column in table.columns:
            if column.name in self.dropped:
                continue
            if column.name not in planned:
                raise SchemaChangedError(f"table {table.name} has the new column {column.name!r}", hint=table.anew)
            if not holds(planned[column.name], column.data_type):
                raise SchemaChangedError(
                    f"table {table.name}: column {column.name!r} is {column.data_type}, where the job expects "
                    f"{planned[column.name]}",
                    hint=table.anew,
                )
        return self.fixed

    def form_of_load(self, table: CapturedForm) -> Form:
        if table.keys != self.fixed.table.keys:
            raise SchemaChangedError(f"table {table.name} has another key", hint=table.anew)
        return self.form(table)

    def of(self, form: Form, rows: pa.RecordBatch) -> pa.RecordBatch:
        return rows


@dataclass(frozen=True)
class ManyTables(Output):
    """The rows of each batch, packed, beside the escaped name of their table."""

    nulls: bool
    changelog: bool
    sequence: bool

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([(_NAMESPACE, pa.string()), (_TABLE, pa.string()), (_ROWS, pa.binary())])

    def form(self, table: CapturedForm) -> Form:
        return form_of(table, self.nulls, self.changelog, self.sequence)

    def of(self, form: Form, rows: pa.RecordBatch) -> pa.RecordBatch:
        name, keys = form.table.name.escaped, () if self.changelog else form.table.keys
        values = [name.schema], [name.table], [pack_rows(rows, keys)]
        return pa.RecordBatch.from_arrays([pa.array(value) for value in values], schema=self.schema)


def holds(wide: pa.DataType, narrow: pa.DataType) -> bool:
    """Return True if a type has every value of another one."""
    if pa.types.is_decimal(wide) and pa.types.is_decimal(narrow):
        return bool(wide.scale >= narrow.scale and wide.precision - wide.scale >= narrow.precision - narrow.scale)
    for is_number in (pa.types.is_integer, pa.types.is_floating):
        if is_number(wide) and is_number(narrow):
            return bool(wide.bit_width >= narrow.bit_width)
    return bool(wide in (narrow, pa.string()))
