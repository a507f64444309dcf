"""The rows of a view's table: finds those that a refresh replaces, and stages their replacement."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from pyiceberg.table import Table

from volley.columns.keys.equality import matching_rows
from volley.columns.keys.order import sort_indices
from volley.iceberg.read.delete_files import deleted_positions
from volley.iceberg.read.entries import Content, FileEntry, PlannedFile, to_data_file
from volley.iceberg.read.history import head_of
from volley.iceberg.read.planning import plan
from volley.iceberg.read.predicates import pruning
from volley.iceberg.read.rows import Mask, RowReader, file_task
from volley.iceberg.read.scope import selected
from volley.iceberg.read.skipping import Positions
from volley.iceberg.schema.types import arrow_schema
from volley.iceberg.views.keys import Keys
from volley.iceberg.write.data_files import write_position_deletes
from volley.iceberg.write.writer import IcebergWriter, write_batches
from volley.iceberg.write.written import SnapshotFiles, WrittenFile
from volley.plan.expressions import lit

_log = logging.getLogger(__name__)

__all__ = ["Contents", "Match", "chosen", "ordered", "without"]

# A file is written anew without its replaced rows if it is small, or if this share of its rows is deleted: each data
# file has one delete file at most, and there are few small files, however often the view is refreshed.
_SMALL_ROWS = 65_536
_REWRITTEN_PART = 0.2
_BATCH_ROWS = 100_000


@dataclass(frozen=True)
class Match:
    """Rows of one data file of a view.

    Args:
        planned: The file, with its delete files.
        positions: The rows' positions in it, ascending.
        rows: The rows.
    """

    planned: PlannedFile
    positions: Positions
    rows: pa.Table


class Contents:
    """The rows of a view's table.

    Args:
        table: The freshly loaded table.
        branch: Its branch.
        writer: Writes its data files.
        order: The columns by which new files are sorted, so that later refreshes read few pages; () = none.
    """

    def __init__(self, table: Table, branch: str, writer: IcebergWriter, order: Sequence[str]) -> None:
        self._table = table
        self._branch = branch
        self._writer = writer
        self._order = order
        self._number = 0
        self.written: list[WrittenFile] = []

    @property
    def schema(self) -> pa.Schema:
        """The schema of the view's rows."""
        return self._writer.rows_schema

    def matches(self, keys: Keys | None, columns: Sequence[str]) -> list[Match]:
        """Return the rows that have one of the keys, and perhaps others; all rows without keys.

        Args:
            keys: The keys.
            columns: The columns of the matches, in their order.
        """
        table = self._table
        head = head_of(table, self._branch)
        if head is None:
            return []
        row_filter = pruning((keys and keys.predicate()) or lit(True).node, table.schema())
        planned = plan(table.io, table.metadata, head, row_filter, table.schema()).files
        # Columns that a changed query has added are the table's last ones.
        reader = RowReader.of(table.metadata, selected(table.schema(), columns))
        reader = replace(reader, row_filter=row_filter, filter_schema=table.schema())
        found = (self._matches(file, reader, keys) for file in planned)
        return [match for match in found if len(match.positions)]

    @property
    def _reader(self) -> RowReader:
        return RowReader.of(self._table.metadata)

    def _matches(self, planned: PlannedFile, reader: RowReader, keys: Keys | None) -> Match:
        rows, places = list[pa.RecordBatch](), [np.empty(0, np.int64)]
        task, chosen = file_task(planned, self._table.metadata), _all_rows if keys is None else keys.mask
        by = None if keys is None else reader.schema.select(*keys.columns)
        for batch, positions in reader.read_located(self._table.io, task, chosen, by):
            rows.append(batch)
            places.append(positions)
        return Match(planned, np.concatenate(places), pa.Table.from_batches(rows, arrow_schema(reader.schema)))

    def replaced(self, matches: Sequence[Match], rows: pa.Table) -> SnapshotFiles:
        """Write the files that remove some rows and add others.

        Args:
            matches: The rows to remove.
            rows: The rows to add.
        """
        deletes, removed, added = list[WrittenFile](), list[PlannedFile](), [rows]
        for match in matches:
            file = match.planned
            positions = np.union1d(match.positions, self._deleted(file))
            if file.file.rows <= _SMALL_ROWS or len(positions) >= file.file.rows * _REWRITTEN_PART:
                removed.append(file)
                added.append(self._rest(file, positions))
            else:
                deletes.append(self._position_deletes(file, positions))
        return SnapshotFiles(
            self.write(ordered(pa.concat_tables(added), self._order).to_batches(_BATCH_ROWS)),
            deletes,
            [to_data_file(file.file) for file in removed],
            [delete.path for match in matches for delete in match.planned.deletes if _is_of(delete, match.planned)],
        )

    def _deleted(self, planned: PlannedFile) -> Positions:
        """Return the positions that are deleted already: only position deletes are in a view's table."""
        io, path = self._table.io, planned.file.path
        positions = [deleted_positions(io, path, delete) for delete in planned.deletes]
        return np.concatenate([np.empty(0, np.int64), *positions])

    def _rest(self, planned: PlannedFile, positions: Positions) -> pa.Table:
        """Return the rows of a file that stay."""
        rows = pa.Table.from_batches(
            self._reader.read(self._table.io, file_task(PlannedFile(planned.file), self._table.metadata)),
            self.schema,
        )
        kept = np.ones(rows.num_rows, bool)
        kept[positions] = False
        return rows.filter(pa.array(kept))

    def write(self, batches: Iterable[pa.RecordBatch]) -> list[WrittenFile]:
        """Write rows to new data files."""
        self._number += 1
        added = list(write_batches(self._writer.open(self._number), batches).committables)
        self.written += added
        return added

    def discard(self) -> None:
        """Delete all files that were written."""
        for file in self.written:
            try:
                self._table.io.delete(file.path)
            except Exception:
                _log.warning("orphan file left behind: %s", file.path, exc_info=True)

    def _position_deletes(self, planned: PlannedFile, positions: Positions) -> WrittenFile:
        deletes = write_position_deletes(self._writer, to_data_file(planned.file), positions)
        self.written.append(deletes)
        return deletes


def _all_rows(batch: pa.RecordBatch) -> Mask:
    return np.ones(batch.num_rows, np.bool_)


def _is_of(delete: FileEntry, planned: PlannedFile) -> bool:
    """Return True if a delete file has no rows of other data files."""
    return delete.content == Content.POSITION_DELETES and delete.referenced_file == planned.file.path


def ordered(rows: pa.Table, order: Sequence[str]) -> pa.Table:
    """Return rows sorted by some columns; without a column, as they are."""
    return rows.take(sort_indices(rows, [(name, "ascending") for name in order])) if order else rows


def chosen(matches: Iterable[Match], rows: pa.Table) -> Iterator[Match]:
    """Yield those rows of matches that are equal to one of some rows in its columns; each of these is taken once."""
    for match in matches:
        found, taken = matching_rows(match.rows.select(rows.column_names), rows, rows.column_names)
        order = np.argsort(found)
        rows = _without(rows, taken)
        if len(found):
            yield _some(match, found[order])


def without(matches: Iterable[Match], rows: pa.Table) -> tuple[list[Match], pa.Table]:
    """Return matches and rows without those that are equal in the columns of the matches."""
    different = []
    for match in matches:
        columns = match.rows.column_names
        ours, theirs = matching_rows(match.rows, rows.select(columns), columns)
        rows = _without(rows, theirs)
        kept = np.setdiff1d(np.arange(len(match.rows)), ours)
        if len(kept):
            different.append(_some(match, kept))
    return different, rows


def _some(match: Match, numbers: Positions) -> Match:
    return Match(match.planned, match.positions[numbers], match.rows.take(pa.array(numbers)))


def _without(rows: pa.Table, numbers: Positions) -> pa.Table:
    return rows.take(pa.array(np.setdiff1d(np.arange(len(rows)), numbers)))
