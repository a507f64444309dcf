"""Completes rows whose key has changed: the values that they leave out are those of the row of their old key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from volley.columns.keys.equality import distinct
from volley.columns.keys.normal import normal_rows
from volley.contracts.epoch import WriteResult
from volley.iceberg.upsert.parked import (
    DELETED,
    ORDER,
    UNCHANGED,
    ParkedFile,
    UpsertWriter,
    is_partial,
    rekeyed_from,
)
from volley.iceberg.upsert.replace import ascending, rows_after, without_source

__all__ = ["Rekey"]

_Sources = Mapping[str, int]
"""By the name of a column, the number of the row that has its value."""


@dataclass(frozen=True)
class Rekey:
    """Executor work: parks whole rows in place of those that had another key before and leave out values.

    Args:
        writer: The keys, and the writer of the data files.
        number: A unique number for the names of its files.
        parked: All parked files, those that were filled from the table first.
        truncated: The order of the epoch's last truncation; None = there is none.
    """

    writer: UpsertWriter
    number: int
    parked: tuple[ParkedFile, ...]
    truncated: int | None

    def __call__(self) -> WriteResult:
        rows = rows_after(self.writer.rows_of(self.parked, self._keys()), self.truncated)
        columns = frozenset(chain.from_iterable(file.unchanged for file in self.parked))
        completed = dict(_completed(rows, self.writer, columns))
        parking = self.writer.open(self.number)
        try:
            for batch in _whole(rows, completed, columns).to_batches():
                parking.park(batch)
            return parking.close()
        except BaseException:
            parking.abort()
            raise

    def _keys(self) -> pa.Table:
        """Return all keys that the rows in question have or had, each once."""
        steps = self.writer.steps([file for file in self.parked if file.rekeyed])
        deleted = rekeyed_from(steps)
        orders = pc.add(deleted[ORDER], 1).combine_chunks()
        rekeyed = steps.filter(pc.and_(is_partial(steps), pc.is_in(steps[ORDER], orders)))
        names = self.writer.key_schema.names
        keys = pa.concat_tables([deleted, rekeyed]).select(self.writer.keys).rename_columns(names)
        return distinct(normal_rows(keys))


def _completed(rows: pa.Table, writer: UpsertWriter, columns: frozenset[str]) -> Iterator[tuple[int, _Sources]]:
    """Yield each row that had another key, with the rows that have the values that it leaves out.

    Few rows change their key without their large values: a loop over those of the same keys is fast enough.
    """
    keys = list(zip(*(column.to_pylist() for column in normal_rows(rows.select(writer.keys)).columns), strict=True))
    orders, deleted, unchanged = (rows[name].to_pylist() for name in (ORDER, DELETED, UNCHANGED))
    current: dict[Any, _Sources] = {}
    before: tuple[int | None, _Sources] = None, {}
    for row in ascending(rows, writer).tolist():
        if deleted[row]:
            before = orders[row], current.pop(keys[row], {})
            continue
        is_rekeyed = orders[row] is not None and before[0] == orders[row] - 1
        earlier = before[1] if is_rekeyed else current.get(keys[row], {})
        missing = unchanged[row] or ()
        if is_rekeyed and missing:
            if lacking := [column for column in missing if column not in earlier]:
                raise without_source(1, lacking[0])
            yield row, {column: earlier[column] for column in missing}
        known = {column: row for column in columns if column not in missing}
        current[keys[row]] = {**known, **{column: earlier[column] for column in missing if column in earlier}}


def _whole(rows: pa.Table, completed: Mapping[int, _Sources], columns: frozenset[str]) -> pa.Table:
    """Return these rows with all values."""
    whole = rows.take(pa.array(list(completed), pa.int64()))
    for column in columns:
        sources = pa.array([sources.get(column, row) for row, sources in completed.items()], pa.int64())
        whole = whole.set_column(
            whole.column_names.index(column), rows.schema.field(column), rows[column].take(sources)
        )
    at = whole.column_names.index(UNCHANGED)
    return whole.set_column(at, whole.schema.field(at), pa.nulls(whole.num_rows, whole.schema.field(at).type))
