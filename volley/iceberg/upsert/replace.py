"""Takes the rows that an upsert replaces out of data files: writes the other rows anew, or deletes of these."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.table.metadata import TableMetadata

from volley.contracts.epoch import WriteResult
from volley.iceberg.read.delete_files import Mask, remember_positions
from volley.iceberg.read.entries import FileEntry, PlannedFile, to_data_file
from volley.iceberg.read.shredding import shredding_of
from volley.iceberg.schema.mapping import mapped_fields
from volley.iceberg.schema.types import ROW_ID, with_shredding
from volley.iceberg.storage.errors import storage_errors
from volley.iceberg.storage.files import delete_new_files
from volley.iceberg.upsert.changes import STORED_ID, STORED_IN, UpsertWriter
from volley.iceberg.upsert.row_ids import CHANGE, SCHEMA, ChangeNumbers, RowIdFile, write_ids
from volley.iceberg.upsert.tasks import FilesTask, Finder, Places, rows_of_mask
from volley.iceberg.write.vectors import write_deletes
from volley.iceberg.write.writer import write_batches
from volley.iceberg.write.written import WrittenFile

__all__ = ["Replace", "ReplaceKeys", "Replaced"]

# From this part of a file on, rewriting it costs no more than reading it with its deletes one to three times, depending
# on the reader (python -m benchmarks upsert_strategy); below it, some readers hardly notice the deletes.
_REWRITTEN_PART = 0.2

_Numbers = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Replaced:
    """What becomes of a data file: it stays, is removed, or its remaining rows or its deletes are in new files.

    Args:
        ids: The ids of the rows that it loses, with those of other files of the task.
    """

    file: FileEntry
    removed: bool = False
    added: tuple[WrittenFile, ...] = ()
    deletes: tuple[WrittenFile, ...] = ()
    ids: RowIdFile | None = None

    @property
    def loses_rows(self) -> bool:
        """True if rows of the file are replaced."""
        return self.removed or bool(self.deletes)


class Replace(FilesTask, ABC):
    """Takes rows out of data files: writes the others anew, or position deletes."""

    def __call__(self) -> WriteResult:
        return self._replace(self._places())

    def _replace(self, places: Places) -> WriteResult:
        results = list[WriteResult]()
        deleted = list[_Deleted]()
        try:
            for planned in self.files:
                done = self._replaced(planned, places)
                deleted += [done] if isinstance(done, _Deleted) else []
                results += [done] if isinstance(done, WriteResult) else []
            results.append(self._write_deletes(deleted))
        except BaseException:
            delete_new_files(self.writer.rows.io, {path for result in results for path in _written(result)})
            raise
        return WriteResult(
            **{
                name: sum(getattr(result, name) for result in results) for name in ("rows", "bytes", "seconds", "files")
            },
            committables=tuple(chain.from_iterable(result.committables for result in results)),
        )

    @abstractmethod
    def _places(self) -> Places:
        """Return where the rows are."""

    def _replaced(self, planned: PlannedFile, places: Places) -> WriteResult | _Deleted:
        file = planned.file
        with storage_errors(file.path, "reading"):
            matching = places.find(planned)
            if len(matching) == 0:
                return WriteResult(committables=(Replaced(file),))
            if self._adds_few_deletes(planned, matching):
                return _Deleted(file, matching)
            deleted = places.deleted(planned)
        new = matching[~deleted[matching]]
        if len(new) == 0:
            return WriteResult(committables=(Replaced(file),))
        kept = ~deleted
        kept[new] = False
        remaining = int(np.count_nonzero(kept))
        if remaining == 0:
            return WriteResult(committables=(Replaced(file, removed=True),))
        if self._should_rewrite(len(new) / (remaining + len(new))):
            return self._rewrite(planned, kept)
        # A vector has all positions, those of the delete files before it too.
        return _Deleted(file, np.flatnonzero(~kept) if self.writer.rows.has_row_ids else new)

    def _adds_few_deletes(self, planned: PlannedFile, positions: _Numbers) -> bool:
        """Return True if it is known, without a look at the delete files, that new ones are all there is to do."""
        rows = planned.file.rows - sum(delete.rows for delete in planned.deletes)
        return (
            rows > len(positions)
            and not (self.writer.rows.has_row_ids and planned.deletes)
            and not self._should_rewrite(len(positions) / rows)
            and all(_is_apart(delete, positions) for delete in planned.deletes)
        )

    def _should_rewrite(self, part: float) -> bool:
        # Format version 1 has no delete files.
        strategy = self.writer.mode.strategy if self.metadata.format_version > 1 else "copy_on_write"
        return strategy == "copy_on_write" or (strategy == "auto" and part >= _REWRITTEN_PART)

    def _rewrite(self, planned: PlannedFile, kept: Mask) -> WriteResult:
        rows, names = self.writer.rows, mapped_fields(self.metadata)
        schema = with_shredding(rows.schema, shredding_of(rows.io, [planned.file], rows.schema, names))
        written = replace(rows, schema=schema, keeps_row_ids=rows.has_row_ids)
        remaining = rows_of_mask(self._read(planned, written.written_schema), kept)
        result = write_batches(written.open(self.number), remaining)
        return replace(result, committables=(Replaced(planned.file, True, added=result.committables),))

    def _write_deletes(self, deleted: Sequence[_Deleted]) -> WriteResult:
        written = write_deletes(self.writer.rows, [(to_data_file(each.file), each.positions) for each in deleted])
        for deletes, each in zip(written, deleted, strict=True):
            remember_positions(each.file.path, deletes.data_file, each.positions)
        sizes = {deletes.path: deletes.data_file.file_size_in_bytes for deletes in written}
        return WriteResult(
            files=len(sizes),
            bytes=sum(sizes.values()),
            committables=tuple(
                Replaced(each.file, deletes=(deletes,)) for deletes, each in zip(written, deleted, strict=True)
            ),
        )


@dataclass(frozen=True)
class _Deleted:
    """Rows of a data file that are to be deleted.

    Args:
        positions: Their positions; for a deletion vector, with those of all that are deleted already.
    """

    file: FileEntry
    positions: _Numbers


class _IdFinder(Finder):
    """Finds rows with one of some keys that are not deleted, and keeps their ids and the numbers of their keys."""

    def __init__(self, keys: pa.Table, writer: UpsertWriter, metadata: TableMetadata) -> None:
        super().__init__(keys, writer, metadata)
        self._found: dict[str, tuple[_Numbers, pa.Table]] = {}

    def find(self, planned: PlannedFile) -> _Numbers:
        return self._kept(planned)[0]

    def ids(self, planned: PlannedFile) -> pa.Table:
        """Return the ids of the rows that `find` finds, and the numbers of their keys."""
        return self._kept(planned)[1]

    def _kept(self, planned: PlannedFile) -> tuple[_Numbers, pa.Table]:
        if (known := self._found.get(planned.file.path)) is not None:
            return known
        positions, ids = self.find_ids(planned)
        if planned.deletes and len(positions):
            live = ~self.deleted(planned)[positions]
            positions, ids = positions[live], ids.filter(pa.array(live))
        return self._found.setdefault(planned.file.path, (positions, ids))


@dataclass(frozen=True)
class ReplaceKeys(Replace):
    """Takes the rows that have the key of a change out of data files; writes their ids, if they have some.

    Args:
        numbers: The numbers of the files.
    """

    numbers: tuple[int, ...]

    def _places(self) -> Finder:
        return Finder(self.writer.all_keys(self.changes), self.writer, self.metadata)

    def __call__(self) -> WriteResult:
        if not self.writer.rows.has_row_ids:
            return super().__call__()
        finder = _IdFinder(self.writer.all_keys(self.changes), self.writer, self.metadata)
        ids = pa.concat_tables(self._ids(finder, *file) for file in zip(self.numbers, self.files, strict=True))
        file = write_ids(self.writer, self.number, ids, ChangeNumbers(self.changes))
        try:
            done = self._replace(finder)
        except BaseException:
            delete_new_files(self.writer.rows.io, [file.path] if file is not None else [])
            raise
        items = tuple(replace(item, ids=file) if item.loses_rows else item for item in done.committables)
        return replace(done, committables=items)

    def _ids(self, finder: _IdFinder, number: int, planned: PlannedFile) -> pa.Table:
        with storage_errors(planned.file.path, "reading"):
            ids = finder.ids(planned)
        columns = {CHANGE: ids[CHANGE], STORED_ID: ids[ROW_ID]}
        columns[STORED_IN] = pa.repeat(pa.scalar(number, pa.int32()), ids.num_rows)
        return pa.table({name: columns[name] for name in SCHEMA.names}, SCHEMA)


def _is_apart(delete: FileEntry, positions: _Numbers) -> bool:
    """Return True if a delete file is known to have none of some ascending positions."""
    bounds = delete.bounds_of_positions
    return bounds is not None and bool(
        np.searchsorted(positions, bounds[0]) == np.searchsorted(positions, bounds[1], "right")
    )


def _written(result: WriteResult) -> Iterator[str]:
    """Yield the paths of the files that replace rows."""
    return (file.path for replaced in result.committables for file in (*replaced.added, *replaced.deletes))
