"""Compares full extracts as an operator: what is new, has changed or is gone since the one before comes out.

The state is the last extract, by key. A row's clock tells its extract: the version, how often that was read again, and
whether it has rows, or bad ones. The clock is followed as an event time is, so that each bucket of keys knows of an
extract, though it may have no row in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from functools import cached_property
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from volley.columns.compiled import whole
from volley.columns.dictionaries import decode
from volley.columns.expectations import count_outcome
from volley.columns.keys.equality import differing
from volley.columns.keys.normal import normal
from volley.columns.operators import BEFORE_ALL, Merged, Operator, Times
from volley.columns.roles import ChangeColumns
from volley.errors import ExpressionError, SchemaMismatchError, SourceError, near
from volley.plan.keyed_nodes import CHANGE, CompareExtracts

__all__ = [
    *(
        "BAD",
        "MARK",
        "MOST_AGAIN",
        "PRESENT",
        "ROWS",
        "ExtractComparer",
        "clock",
        "of_versions",
        "version_text",
        "version_values",
    ),
]

PRESENT = pa.field("_version", pa.timestamp("us", "UTC"))
"""The column of versions that are times of looks, or of commits."""


MARK, BAD, ROWS = 1, 2, 4
"""Bits of a clock: the row itself is none of the extract; rows can't be read; the extract has rows."""

_AGAIN, _VERSION = 3, 8
MOST_AGAIN = (1 << (_VERSION - _AGAIN)) - 1
"""How often an extract is read again at most."""
_MOST = 1 << (61 - _VERSION)
_OLD, _NEW = "old", "new"

_Numbers = npt.NDArray[np.int64]


def clock(version: int, again: int) -> int:
    """Return the clock of an extract without rows.

    Args:
        version: Its version.
        again: How often it was read again, as its files were written again; at most `MOST_AGAIN`.

    Raises:
        SourceError: If the version is too large.

    Example:
        >>> version_values(clock(7, again=2) | ROWS, pa.int64(), 1).to_pylist()
        [7]
    """
    if abs(version) >= _MOST:
        raise SourceError(f"version {version} of an extract is too large", hint=f"versions are below {_MOST}")
    return version << _VERSION | again << _AGAIN


def of_versions(data_type: pa.DataType) -> pa.DataType | None:
    """Return the type of versions that a column of a type has; None = it can't have any."""
    if pa.types.is_timestamp(data_type):
        return pa.timestamp("us", data_type.tz)
    if pa.types.is_date(data_type):
        return pa.date32()
    return pa.int64() if pa.types.is_integer(data_type) else None


def given_version(value: int | date) -> tuple[int, pa.DataType]:
    """Return a version that the user gives, as a number, and its type; a time without a zone is in UTC.

    Example:
        >>> given_version(date(2026, 1, 1))
        (20454, DataType(date32[day]))
    """
    without_time = pa.date32() if isinstance(value, date) else pa.int64()
    data_type = PRESENT.type if isinstance(value, datetime) else without_time
    return version_number(pa.scalar(value, data_type)), data_type


def version_number(version: pa.Scalar) -> int:
    """Return a version as a number: itself, or the days or microseconds since 1970."""
    number: int = version.cast(pa.int32() if version.type == pa.date32() else pa.int64()).as_py()
    return number


def version_values(moment: int, data_type: pa.DataType, rows: int) -> pa.Array:
    """Return the version of a clock, once for each row."""
    whole_number = pa.int32() if data_type == pa.date32() else pa.int64()
    return pa.repeat(pa.scalar(moment >> _VERSION, whole_number), rows).cast(data_type)


def version_text(version: int, data_type: pa.DataType) -> str:
    """Return a version as text.

    Example:
        >>> version_text(20454, pa.date32())
        '2026-01-01'
    """
    return str(version_values(version << _VERSION, data_type, 1)[0].as_py())


@dataclass(frozen=True)
class ExtractComparer(Operator):
    """The comparison of extracts, compiled for rows of one schema: an `Operator` with one input.

    The last two columns of the input are the version and the clock.
    """

    folder: ClassVar[str] = "extracts"
    fills_states: ClassVar[bool] = True
    node: CompareExtracts
    input: pa.Schema

    @property
    def is_timed(self) -> bool:
        return False

    @cached_property
    def output(self) -> pa.Schema:
        names = self._content.names
        for name in (*self.node.keys, *self.node.ignored):
            if name not in names:
                raise ExpressionError(f"extracts have no column {name!r}", hint=near(name, names))
        for name in self.node.keys:
            data_type = self.input.field(name).type
            if pa.types.is_floating(data_type) or pa.types.is_nested(data_type):
                raise ExpressionError(
                    f"key {name!r} is of type {data_type}, whose values don't tell rows apart",
                    hint="use columns of whole numbers, decimals, texts, dates, times or bytes as keys",
                )
        if CHANGE in names or self._version.name in names:
            raise ExpressionError(f"extracts have a column {CHANGE!r}, which comparing adds", hint="rename it")
        schema = pa.schema([*self._content, self._version, (CHANGE, pa.string())])
        return ChangeColumns(self.node.keys, operation=CHANGE).noted(schema)

    @cached_property
    def states(self) -> tuple[pa.Schema, ...]:
        keys = [(name, normal(pa.nulls(0, self.input.field(key).type)).type) for name, key in self._keys.items()]
        columns = [(f"row_{field.name}", field.type) for field in self._content]
        return (pa.schema([*keys, *columns]),)

    def time_column(self, input: int) -> str | None:
        name: str = self.input.names[-1]
        return name

    def ends(self, times: Times) -> Times:
        return times + 1

    def check(self, input: int, batch: pa.RecordBatch) -> None:
        rows = _without_marks(batch)
        for key in self.node.keys:
            if nulls := rows.column(key).null_count:
                error = _NullKey(
                    f"key column {key!r} has {nulls} nulls: such rows can't be told apart",
                    hint="mend them in the extract, or give the sink a dead letter",
                )
                error.moment = rows.column(rows.num_columns - 1)[0].as_py()
                raise error

    def after_rejection(self, latest: int | None, error: Exception) -> int | None:
        moment = error.moment if isinstance(error, _NullKey) else latest
        return latest if moment is None else max(moment | ROWS | BAD, moment if latest is None else latest)

    def lifted(self, input: int, batch: pa.RecordBatch, times: pa.Array) -> pa.Table:
        rows = _without_marks(batch).select(self._content.names)
        columns = [decode(column) for column in rows.columns]
        keys = [normal(columns[self._content.names.index(key)]) for key in self.node.keys]
        return pa.Table.from_arrays([*keys, *columns], schema=self.states[0])

    def merge(self, old: Sequence[pa.Table], new: Sequence[pa.Table], before: int, watermark: int) -> Merged:
        (known,), (rows,) = old, new
        if watermark == before:
            return Merged((), (known,))
        self._refuse_duplicates(rows, watermark)
        matched, partners = self._matched(known, rows)
        is_gone = _others(matched, len(known))
        # What a row that can't be read was is not known: it may be any of those that are not there.
        held, gone = (is_gone, is_gone[:0]) if watermark & BAD else (is_gone[:0], is_gone)
        changed = partners[self._differ(known, rows, matched, partners)]
        added = _others(partners, len(rows))
        if before != BEFORE_ALL and before >> _VERSION == watermark >> _VERSION:
            self._refuse_changes(watermark, [(rows, added), (rows, changed), (known, gone)])
        if self.node.max_deleted is not None:
            count_outcome(self.node.bound, len(known), len(gone))
        changes = (("insert", rows, added), ("update_after", rows, changed), ("delete", known, gone))
        kept = pa.concat_tables([rows, known.take(pa.array(held))])
        return Merged(self._batches(changes, watermark), (kept,))

    def _refuse_duplicates(self, rows: pa.Table, moment: int) -> None:
        """Raise SourceError if two rows have the same key."""
        names = [*self._keys]
        counted = rows.group_by(names, use_threads=False).aggregate([([], "count_all")])
        if len(counted) < len(rows):
            twice = counted.filter(pc.greater(counted["count_all"], 1))
            raise SourceError(
                f"extract {self._text(moment)} has {twice['count_all'][0]} rows with the key {self._key(twice, 0)}",
                hint="name all columns that tell rows apart as keys; or put the extract right, and start over: "
                "fresh=True",
            )

    def _refuse_changes(self, moment: int, changes: Sequence[tuple[pa.Table, _Numbers]]) -> None:
        """Raise SourceError if an extract that was read again is another one."""
        for rows, numbers in changes:
            if len(numbers):
                raise SourceError(
                    f"extract {self._text(moment)} was written again with other rows, as for the key "
                    f"{self._key(rows, int(numbers[0]))}",
                    hint="put it back as it was, and give what is new a version of its own",
                )

    def _matched(self, known: pa.Table, rows: pa.Table) -> tuple[_Numbers, _Numbers]:
        """Return the numbers of known rows and of new ones with the same keys."""
        names = [*self._keys]
        ours, theirs = (
            table.select(names).append_column(name, pa.array(np.arange(len(table))))
            for name, table in ((_OLD, known), (_NEW, rows))
        )
        pairs = ours.join(theirs, names, join_type="inner", use_threads=False)
        return pairs[_OLD].to_numpy(), pairs[_NEW].to_numpy()

    def _differ(self, known: pa.Table, rows: pa.Table, matched: _Numbers, partners: _Numbers) -> npt.NDArray[np.bool_]:
        """Return for each pair of rows whether they differ, bit by bit."""
        names = [f"row_{name}" for name in self._content.names if name not in self.node.ignored]
        return differing(known.select(names).take(pa.array(matched)), rows.select(names).take(pa.array(partners)))

    def _batches(self, changes: Sequence[tuple[str, pa.Table, _Numbers]], moment: int) -> Iterator[pa.RecordBatch]:
        for change, table, numbers in changes:
            if len(numbers):
                rows = table.take(pa.array(np.sort(numbers)))
                columns = [whole(rows[f"row_{name}"]) for name in self._content.names]
                versions = version_values(moment, self._version.type, len(rows))
                kinds = pa.repeat(pa.scalar(change), len(rows))
                yield pa.RecordBatch.from_arrays([*columns, versions, kinds], schema=self.output)

    def _key(self, rows: pa.Table, number: int) -> str:
        values = [rows[name][number].as_py() for name in self._keys]
        return ", ".join(f"{key}={value!r}" for key, value in zip(self.node.keys, values, strict=True))

    def _text(self, moment: int) -> str:
        return version_text(moment >> _VERSION, self._version.type)

    @cached_property
    def _content(self) -> pa.Schema:
        """The columns of the extracts."""
        return pa.schema([self.input.field(number) for number in range(len(self.input) - 2)])

    @property
    def _version(self) -> pa.Field:
        return self.input.field(len(self.input) - 2)

    @cached_property
    def _keys(self) -> dict[str, str]:
        """The names of the keys' columns in a table of states, and of the rows' columns that they are of."""
        return {f"key_{number}": key for number, key in enumerate(self.node.keys)}


class _NullKey(SchemaMismatchError):
    """A row without a key, and the clock of its extract."""

    moment = 0


def _without_marks(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows without those that only tell a clock."""
    marks = pc.bit_wise_and(batch.column(batch.num_columns - 1), MARK)
    return batch.filter(pc.equal(marks, 0)) if pc.any(pc.cast(marks, pa.bool_())).as_py() else batch


def _others(numbers: _Numbers, count: int) -> _Numbers:
    """Return the numbers below a count that are not among some."""
    are_others = np.ones(count, bool)
    are_others[numbers] = False
    return np.flatnonzero(are_others)
