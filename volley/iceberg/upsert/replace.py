"""Second step of an upsert on executors: merges parked rows, and replaces their rows in each data file."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata

from volley.columns.batches import conform
from volley.columns.keys.equality import rows_among
from volley.columns.keys.normal import normal_rows
from volley.columns.keys.order import ascending_order, ranks
from volley.contracts.epoch import WriteResult
from volley.errors import SourceError
from volley.iceberg.read.entries import FileEntry, PlannedFile, to_data_file
from volley.iceberg.read.rows import Mask, RowReader, file_task
from volley.iceberg.storage.errors import storage_errors
from volley.iceberg.upsert.parked import DELETED, ORDER, UNCHANGED, ParkedFile, UpsertWriter, lacks
from volley.iceberg.write.position_deletes import write_position_deletes
from volley.iceberg.write.writer import IcebergWriter
from volley.iceberg.write.written import WrittenFile

__all__ = ["Fill", "Merge", "Replace", "Replaced", "ascending", "rows_after", "without_source"]

# From this part of a file on, rewriting it costs no more than reading it with its deletes one to three times, depending
# on the reader (python -m benchmarks upsert_strategy); below it, some readers hardly notice the deletes.
_REWRITTEN_PART = 0.2
_AT, _WINNER = "at", "winner"


@dataclass(frozen=True)
class Replaced:
    """The replacement of one data file.

    Args:
        file: The data file.
        removed: True if it is removed from the table.
        added: The data files with its remaining rows.
        deletes: The position-delete file of its replaced rows.
    """

    file: FileEntry
    removed: bool = False
    added: tuple[WrittenFile, ...] = ()
    deletes: tuple[WrittenFile, ...] = ()


@dataclass(frozen=True)
class Merge:
    """Executor work: writes the last parked row of each key of some buckets to the table's data files.

    Args:
        writer: The keys, and the writer of the data files.
        number: A unique number for the names of its files.
        parked: All parked files, in order of arrival.
        buckets: The buckets to merge.
        truncated: The order of the epoch's last truncation; None = there is none.
    """

    writer: UpsertWriter
    number: int
    parked: tuple[ParkedFile, ...]
    buckets: range
    truncated: int | None = None

    def __call__(self) -> WriteResult:
        rows = self.writer.bucket_rows(self.parked, self.buckets)
        rows = _last_of_each(rows_after(rows, self.truncated), self.writer)
        rows = rows.select(self.writer.rows.rows_schema.names)
        return _write(self.writer.rows, self.number, rows.to_batches(max_chunksize=100_000))


def _write(writer: IcebergWriter, number: int, batches: Iterable[pa.RecordBatch]) -> WriteResult:
    files = writer.open(number)
    try:
        for batch in batches:
            if batch.num_rows:
                files.write(batch)
        return files.close()
    except BaseException:
        files.abort()
        raise


def rows_after(rows: pa.Table, truncated: int | None) -> pa.Table:
    """Return the parked rows that come after a truncation."""
    return rows if truncated is None else rows.filter(pc.greater(rows[ORDER], truncated))


def _last_of_each(rows: pa.Table, writer: UpsertWriter) -> pa.Table:
    """Return the winning row of each key, in order of arrival, without deletions."""
    keys = normal_rows(rows.select(writer.keys).rename_columns(writer.key_schema.names))
    order = ascending(rows, writer)
    winners = np.sort(_last(keys, order)[_AT].to_numpy())
    winners = winners[~rows[DELETED].to_numpy()[winners]]
    last = rows.take(pa.array(winners))
    if UNCHANGED not in rows.column_names:
        return last
    unchanged = rows[UNCHANGED].combine_chunks()
    for column in pc.unique(pc.list_flatten(last[UNCHANGED].combine_chunks())).to_pylist():
        sources = _sources(rows, keys, order, winners, lacks(unchanged, column), column)
        last = last.set_column(last.column_names.index(column), column, rows[column].take(pa.array(sources)))
    return last


def ascending(rows: pa.Table, writer: UpsertWriter) -> np.ndarray[Any, Any]:
    """Return the rows' numbers in the order in which later ones replace earlier ones."""
    arrival = pa.array(np.arange(rows.num_rows))
    if writer.order_by is None:
        return np.asarray(arrival)
    return np.asarray(ascending_order([*ranks(rows[writer.order_by].combine_chunks()), arrival]))


def _last(keys: pa.Table, order: np.ndarray[Any, Any]) -> pa.Table:
    """Return the keys of some rows, each once, with the number of its last row.

    Args:
        keys: The keys of all rows.
        order: The numbers of the rows, ascending.
    """
    ranked = keys.take(pa.array(order)).append_column(_AT, pa.array(np.arange(len(order))))
    last = ranked.group_by(keys.column_names, use_threads=False).aggregate([(_AT, "max")])
    return last.select(keys.column_names).append_column(_AT, pa.array(order[last[f"{_AT}_max"].to_numpy()]))


def _sources(
    rows: pa.Table,
    keys: pa.Table,
    order: np.ndarray[Any, Any],
    winners: np.ndarray[Any, Any],
    missing: np.ndarray[Any, Any],
    column: str,
) -> np.ndarray[Any, Any]:
    """Return for each winning row the number of the row that has its value of a column: the last one of its key.

    Raises:
        SourceError: If no row has it: neither the epoch nor the table.
    """
    has_value = ~missing & ~rows[DELETED].to_numpy()
    sources = winners.copy()
    lacking = np.flatnonzero(missing[winners])
    searched = keys.take(pa.array(winners[lacking])).append_column(_WINNER, pa.array(lacking))
    matches = searched.join(
        _last(keys, order[has_value[order]]), keys.column_names, join_type="inner", use_threads=False
    )
    if matches.num_rows < len(lacking):
        raise without_source(len(lacking) - matches.num_rows, column)
    sources[matches[_WINNER].to_numpy()] = matches[_AT].to_numpy()
    return sources


def without_source(rows: int, column: str) -> SourceError:
    """Return the error for rows that leave out a value that neither the epoch nor the table has."""
    return SourceError(
        f"{rows} rows have no value of column {column!r}, as it has not changed, and the table does not have the rows "
        "that they replace",
        hint='load all rows first (load="snapshot"), or make the source send whole rows',
    )


@dataclass(frozen=True)
class _FileTask:
    """Executor work on the rows of one data file.

    Args:
        writer: The keys, and the writer of the data files.
        number: A unique number for the names of its files.
        parked: All parked files.
        metadata: The table's metadata, without its history.
        planned: The data file with its delete files.
    """

    writer: UpsertWriter
    number: int
    parked: tuple[ParkedFile, ...]
    metadata: TableMetadata
    planned: PlannedFile

    def _matching(self, keys: pa.Table) -> np.ndarray[Any, Any]:
        """Return the positions of the rows with one of these keys."""
        schema = self.writer.key_schema
        columns = (batch.select(self.writer.keys) for batch in self._read(self.writer.keys))
        batches = [conform(batch.rename_columns(schema.names), schema) for batch in columns]
        rows = pa.Table.from_batches(batches, schema)
        return rows_among(rows, keys.cast(schema))

    def _kept(self) -> Mask:
        """Return which rows of the file are not deleted yet."""
        if not self.planned.deletes:
            return np.ones(self.planned.file.rows, np.bool_)
        task = file_task(self.planned, self.metadata)
        return ~RowReader.of(self.metadata).deleted(self.writer.rows.io, task)

    def _read(self, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield all rows of the file in order, deleted ones too, in the table's schema."""
        schema = self.metadata.schema()
        if columns is not None:
            schema = Schema(*(schema.find_field(column) for column in columns))
        task = file_task(PlannedFile(self.planned.file), self.metadata)
        return RowReader.of(self.metadata, schema).read(self.writer.rows.io, task)


class Replace(_FileTask):
    """Replaces the rows of one data file that have a parked row's key."""

    def __call__(self) -> WriteResult:
        file = self.planned.file
        with storage_errors(file.path, "reading"):
            kept = self._kept()
            matching = self._matching(self.writer.all_keys(self.parked))
            new = matching[kept[matching]]
        kept[new] = False
        remaining = int(kept.sum())
        if len(new) == 0:
            return WriteResult(committables=(Replaced(file),))
        if remaining == 0:
            return WriteResult(committables=(Replaced(file, removed=True),))
        if self._should_rewrite(len(new) / (remaining + len(new))):
            return self._rewrite(kept)
        return self._write_deletes(new)

    def _should_rewrite(self, part: float) -> bool:
        # Format version 1 has no delete files.
        strategy = self.writer.mode.strategy if self.metadata.format_version > 1 else "copy_on_write"
        return strategy == "copy_on_write" or (strategy == "auto" and part >= _REWRITTEN_PART)

    def _rewrite(self, kept: Mask) -> WriteResult:
        result = _write(self.writer.rows, self.number, _filter(self._read(), kept))
        return replace(result, committables=(Replaced(self.planned.file, True, added=result.committables),))

    def _write_deletes(self, positions: np.ndarray[Any, Any]) -> WriteResult:
        name = f"{self.writer.rows.file_prefix}{self.number:05}-{uuid.uuid4()}-deletes.parquet"
        file = self.planned.file
        deletes = write_position_deletes(self.writer.rows, self.writer.location(name), to_data_file(file), positions)
        return WriteResult(
            files=1, bytes=deletes.data_file.file_size_in_bytes, committables=(Replaced(file, deletes=(deletes,)),)
        )


class Fill(_FileTask):
    """Parks the values that rows of the epoch leave out, from the rows of one data file that they replace."""

    def __call__(self) -> WriteResult:
        columns = sorted({*self.writer.keys, *chain.from_iterable(file.unchanged for file in self.parked)})
        parking = self.writer.open(self.number)
        try:
            with storage_errors(self.planned.file.path, "reading"):
                kept = self._kept()
                kept[np.setdiff1d(np.arange(len(kept)), self._matching(self.writer.partial_keys(self.parked)))] = False
                for batch in _filter(self._read(columns), kept):
                    if batch.num_rows:
                        parking.park(self.writer.earlier(batch))
            return parking.close()
        except BaseException:
            parking.abort()
            raise


def _filter(batches: Iterator[pa.RecordBatch], kept: Mask) -> Iterator[pa.RecordBatch]:
    start = 0
    for batch in batches:
        yield batch.filter(pa.array(kept[start : start + batch.num_rows]))
        start += batch.num_rows
