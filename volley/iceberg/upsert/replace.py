"""The executors' side of an upsert, second half: merges what was staged, finds what it replaces file by file."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata

from volley.arrow.batches import conform
from volley.arrow.uuids import comparable
from volley.epoch import WriteResult
from volley.iceberg.read.data_files import read_data_file
from volley.iceberg.storage.errors import storage_errors
from volley.iceberg.upsert.parked import DELETED, ParkedFile, UpsertWriter
from volley.iceberg.write.writer import IcebergWriter
from volley.iceberg.write.written import WrittenFile

__all__ = ["Merge", "Replace", "Replaced"]

# Where this part of a file is replaced, writing it anew costs no more than reading it with its deletes one to three
# times, by the reader (python -m benchmarks upsert_strategy); where less is, some readers hardly notice the deletes.
_REWRITTEN_PART = 0.2
_AT = "at"
_PATH_ID, _POSITION_ID = 2147483546, 2147483545
_POSITIONS = pa.schema(
    [
        pa.field("file_path", pa.string(), False, {"PARQUET:field_id": str(_PATH_ID)}),
        pa.field("pos", pa.int64(), False, {"PARQUET:field_id": str(_POSITION_ID)}),
    ]
)


@dataclass(frozen=True)
class Replaced:
    """What comes in the place of one data file.

    Args:
        file: The data file.
        removed: Whether it is no more.
        added: The data files with what is left of it.
        deletes: The file with the positions of the replaced rows.
    """

    file: DataFile
    removed: bool = False
    added: tuple[WrittenFile, ...] = ()
    deletes: tuple[WrittenFile, ...] = ()


@dataclass(frozen=True)
class Merge:
    """A chore: of the staged rows of some buckets, the last one of each key goes into the table's data files.

    Args:
        writer: Keys, and the writer of the data files.
        number: Tells this chore's files from those of others.
        parked: All staged files, in the order in which their rows arrived.
        buckets: The buckets to merge.
    """

    writer: UpsertWriter
    number: int
    parked: tuple[ParkedFile, ...]
    buckets: range

    def __call__(self) -> WriteResult:
        rows = _last_of_each(self.writer.bucket_rows(self.parked, self.buckets), self.writer)
        rows = rows.filter(pc.invert(rows[DELETED])).drop_columns([DELETED])
        return _written(self.writer.rows, self.number, rows.to_batches(max_chunksize=100_000))


def _written(writer: IcebergWriter, number: int, batches: Iterable[pa.RecordBatch]) -> WriteResult:
    files = writer.open(number)
    try:
        for batch in batches:
            if batch.num_rows:
                files.write(batch)
        return files.close()
    except BaseException:
        files.abort()
        raise


def _last_of_each(rows: pa.Table, writer: UpsertWriter) -> pa.Table:
    """The row of each key that wins, in the order of arrival."""
    arrival, mode = pa.array(np.arange(rows.num_rows)), writer.mode
    names = writer.key_schema.names
    keys = comparable(rows.select(writer.keys).rename_columns(names))
    if mode.order_by is None:
        last = keys.append_column(_AT, arrival).group_by(names, use_threads=False).aggregate([(_AT, "max")])
        return rows.take(last[f"{_AT}_max"].combine_chunks().sort())
    by = comparable(pa.table({"by": rows[mode.order_by], _AT: arrival}))
    if pa.types.is_floating(by["by"].type):
        # Arrow puts NaN beside nulls; it is greater than all other numbers.
        by = by.add_column(0, "nan", pc.is_nan(by["by"]))
    order = pc.sort_indices(by, [(name, "ascending", "at_start") for name in by.column_names])
    ranked = keys.take(order).append_column(_AT, arrival)
    last = ranked.group_by(names, use_threads=False).aggregate([(_AT, "max")])
    return rows.take(order.take(last[f"{_AT}_max"].combine_chunks()).sort())


@dataclass(frozen=True)
class Replace:
    """A chore: what comes in the place of one data file, whose rows the staged rows replace.

    Args:
        writer: Keys, and the writer of the data files.
        number: Tells this chore's files from those of others.
        parked: All staged files.
        metadata: The table's, without its history.
        file: The data file.
        deletes: The delete files that it is read with.
    """

    writer: UpsertWriter
    number: int
    parked: tuple[ParkedFile, ...]
    metadata: TableMetadata
    file: DataFile
    deletes: tuple[DataFile, ...]

    def __call__(self) -> WriteResult:
        with storage_errors(self.file.file_path, "reading"):
            gone = self._deleted()
            new = np.setdiff1d(self._matching(), gone)
        left = self.file.record_count - len(gone) - len(new)
        if len(new) == 0:
            return WriteResult(committables=(Replaced(self.file),))
        if left == 0:
            return WriteResult(committables=(Replaced(self.file, removed=True),))
        if self._is_rewritten(len(new) / (left + len(new))):
            return self._rewritten(np.union1d(gone, new))
        return self._marked(new)

    def _is_rewritten(self, part: float) -> bool:
        # Format version 1 knows no delete files.
        strategy = self.writer.mode.strategy if self.metadata.format_version > 1 else "copy_on_write"
        return strategy == "copy_on_write" or (strategy == "auto" and part >= _REWRITTEN_PART)

    def _matching(self) -> np.ndarray[Any, Any]:
        """The positions of the rows that have one of the staged keys."""
        schema = self.writer.key_schema
        columns = (batch.select(self.writer.keys) for batch in self._read(self.writer.keys))
        batches = [conform(batch.rename_columns(schema.names), schema) for batch in columns]
        found = pa.Table.from_batches(batches, schema)
        found = found.append_column(_AT, pa.array(np.arange(found.num_rows)))
        staged = self.writer.all_keys(self.parked).cast(schema)
        matched = found.join(staged, keys=schema.names, join_type="left semi", use_threads=False)
        return np.sort(matched[_AT].to_numpy())

    def _deleted(self) -> np.ndarray[Any, Any]:
        """The positions of the rows that are no more already."""
        found = [np.empty(0, np.int64)]
        for delete in self.deletes:
            with self.writer.rows.io.new_input(delete.file_path).open() as stream:
                path = [("file_path", "==", self.file.file_path)]
                found.append(pq.read_table(stream, columns=["pos"], filters=path)["pos"].to_numpy())
        return np.unique(np.concatenate(found))

    def _read(self, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
        """All rows of the file in order, deleted ones too, as rows of the table's schema."""
        schema = self.metadata.schema()
        if columns is not None:
            schema = Schema(*(schema.find_field(column) for column in columns))
        return read_data_file(self.writer.rows.io, self.file, self.metadata, schema)

    def _rewritten(self, gone: np.ndarray[Any, Any]) -> WriteResult:
        keep = np.ones(self.file.record_count, bool)
        keep[gone] = False
        result = _written(self.writer.rows, self.number, _kept(self._read(), keep))
        return replace(result, committables=(Replaced(self.file, True, added=result.committables),))

    def _marked(self, positions: np.ndarray[Any, Any]) -> WriteResult:
        name = f"{self.writer.rows.file_prefix}{self.number:05}-{uuid.uuid4()}-deletes.parquet"
        made = _write_positions(self.writer, self.writer.location(name), self.file, positions)
        return WriteResult(
            files=1, bytes=made.data_file.file_size_in_bytes, committables=(Replaced(self.file, deletes=(made,)),)
        )


def _kept(batches: Iterator[pa.RecordBatch], keep: np.ndarray[Any, Any]) -> Iterator[pa.RecordBatch]:
    at = 0
    for batch in batches:
        yield batch.filter(pa.array(keep[at : at + batch.num_rows]))
        at += batch.num_rows


def _write_positions(writer: UpsertWriter, path: str, file: DataFile, positions: np.ndarray[Any, Any]) -> WrittenFile:
    """A position-delete file for one data file: its bounds name that file exactly, so that readers need no other."""
    paths = pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(positions), np.int32)), [file.file_path])
    with storage_errors(path):
        stream: Any = writer.rows.io.new_output(path).create(overwrite=True)
        with stream, pq.ParquetWriter(stream, _POSITIONS, compression="zstd", store_schema=False) as parquet:
            parquet.write_table(pa.Table.from_arrays([paths.cast(pa.string()), pa.array(positions)], schema=_POSITIONS))
            parquet.close()
            size = int(stream.tell())
    named = file.file_path.encode()
    made = DataFile.from_args(
        content=DataFileContent.POSITION_DELETES,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=file.partition,
        record_count=len(positions),
        file_size_in_bytes=size,
        lower_bounds={_PATH_ID: named, _POSITION_ID: struct.pack("<q", positions[0])},
        upper_bounds={_PATH_ID: named, _POSITION_ID: struct.pack("<q", positions[-1])},
    )
    made.spec_id = file.spec_id
    return WrittenFile(made, writer.rows.layout.fingerprint)
