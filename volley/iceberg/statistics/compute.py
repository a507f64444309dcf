"""Computes statistics of a snapshot's columns as Theta sketches, and registers them with the table in a Puffin file."""

from __future__ import annotations

import struct
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

import mmh3
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.statistics import BlobMetadata, StatisticsFile
from pyiceberg.table.update import SetStatisticsUpdate
from pyiceberg.types import NestedField, PrimitiveType

from volley.columns.keys.murmur3 import first_halves, value_bytes
from volley.contracts.epoch import WriteResult
from volley.errors import CommitConflictError, ConfigError
from volley.iceberg.commit.loop import Stage, Staged, commit_to
from volley.iceberg.maintain.options import Runner, StatisticsOptions
from volley.iceberg.maintain.rewrites import run_tasks
from volley.iceberg.pyiceberg_private.access import stage
from volley.iceberg.read.entries import PlannedFile
from volley.iceberg.read.history import head_of
from volley.iceberg.read.planning import plan
from volley.iceberg.read.rows import FileTask, RowReader, file_task
from volley.iceberg.statistics.values import TableStatistics
from volley.iceberg.storage.errors import storage_errors
from volley.iceberg.storage.files import delete_new_files
from volley.iceberg.storage.puffin import puffin
from volley.iceberg.table import TableRef
from volley.task.failpoints import reach

__all__ = ["ThetaSketch", "compute_statistics"]

_SEED = 9001
_MOST = 4096
_ALL = 1 << 63
_SERIAL_VERSION, _COMPACT_FAMILY = 3, 3
_READ_ONLY, _EMPTY, _COMPACT, _ORDERED = 2, 4, 8, 16

_THETA = "apache-datasketches-theta-v1"
_NDV = "ndv"
# A task returns up to 32 KiB a column.
_MOST_TASKS = 64


@dataclass(frozen=True, eq=False)
class ThetaSketch:
    """The smallest hashes of a set of values.

    Args:
        hashes: Distinct hashes below `theta`, in ascending order.
        theta: The upper end of the hashes that are kept, of 2⁶³ that are possible.
    """

    hashes: npt.NDArray[np.uint64] = field(default_factory=lambda: np.empty(0, np.uint64))
    theta: int = _ALL

    @classmethod
    def of(cls, values: pa.Array) -> ThetaSketch:
        """Return the sketch of the values of an array that are neither null nor empty."""
        data, starts, lengths = value_bytes(values.drop_null())
        filled = lengths > 0
        hashes = first_halves(data, starts[filled], lengths[filled], _SEED) >> np.uint64(1)
        return _joined(cls(), hashes[hashes > 0])

    def union(self, other: ThetaSketch) -> ThetaSketch:
        """Return the sketch of the values of both."""
        smaller, larger = sorted((self, other), key=lambda sketch: sketch.theta)
        return _joined(smaller, larger.hashes)

    @property
    def estimate(self) -> int:
        """The number of distinct values; exact up to 4,096, then with a relative standard error of 1.6 %."""
        return int(len(self.hashes) / (self.theta / _ALL))

    def to_bytes(self) -> bytes:
        """Return the compact, ordered form."""
        flags = _READ_ONLY | _COMPACT | _ORDERED | (0 if len(self.hashes) else _EMPTY)
        # A single hash needs no count.
        longs = 3 if self.theta < _ALL else 2 if len(self.hashes) > 1 else 1
        head = struct.pack("<BBBBBBH", longs, _SERIAL_VERSION, _COMPACT_FAMILY, 0, 0, flags, _seed_hash())
        count = struct.pack("<Q", len(self.hashes)) if longs > 1 else b""
        theta = struct.pack("<Q", self.theta) if longs > 2 else b""
        return head + count + theta + self.hashes.astype("<u8").tobytes()


def _joined(sketch: ThetaSketch, hashes: npt.NDArray[np.uint64]) -> ThetaSketch:
    kept = np.union1d(sketch.hashes, hashes[hashes < sketch.theta])
    if len(kept) <= _MOST:
        return ThetaSketch(kept, sketch.theta)
    return ThetaSketch(kept[:_MOST], int(kept[_MOST]))


@cache
def _seed_hash() -> int:
    first, _ = mmh3.hash64(struct.pack("<q", _SEED), 0, signed=False)
    return int(first) & 0xFFFF


def compute_statistics(ref: TableRef, options: StatisticsOptions) -> TableStatistics:
    """Count the distinct values of columns in the branch's last snapshot, and register them as its statistics."""
    began = time.monotonic()
    table = ref.load()
    head = head_of(table, ref.branch)
    if head is None:
        return TableStatistics(ref.name, dry_run=options.dry_run, seconds=time.monotonic() - began)
    computation = _Computation(ref, table, head, options.run)
    result = computation.result(options.columns, options.dry_run)
    return replace(result, seconds=time.monotonic() - began, dry_run=options.dry_run)


@dataclass(frozen=True)
class _Sketches:
    """The sketch of each field, by its id."""

    of: Mapping[int, ThetaSketch]


@dataclass(frozen=True)
class _Sketch:
    """Executor work: sketches the columns of some data files."""

    io: FileIO
    reader: RowReader
    tasks: tuple[FileTask, ...]

    def __call__(self) -> WriteResult:
        fields = self.reader.schema.fields
        sketches = {field.field_id: ThetaSketch() for field in fields}
        for task in self.tasks:
            for batch in self.reader.read(self.io, task):
                for column, values in zip(fields, batch.columns, strict=True):
                    sketches[column.field_id] = sketches[column.field_id].union(ThetaSketch.of(values))
        return WriteResult(committables=(_Sketches(sketches),))


class _Computation:
    """Computes the statistics of one snapshot.

    Args:
        run: Runs the tasks; None = in this process.
    """

    def __init__(self, ref: TableRef, table: Table, head: Snapshot, run: Runner | None) -> None:
        self._ref = ref
        self._table = table
        self._head = head
        self._run = run

    def result(self, columns: Sequence[str] | None, dry_run: bool) -> TableStatistics:
        fields = _fields(self._table.schema(), columns)
        registered = _statistics_of(self._table, self._head.snapshot_id)
        statistics = TableStatistics(self._ref.name, self._head.snapshot_id)
        if not fields:
            return statistics
        known = {} if registered is None else _counts(registered)
        if registered is not None and {field.field_id for field in fields} <= known.keys():
            distinct = {field.name: known[field.field_id] for field in fields}
            return replace(statistics, distinct=distinct, path=registered.statistics_path)
        # A snapshot has one statistics file: the new one has the columns of the old one, too.
        fields = [field for field in _fields(self._table.schema(), None) if field in fields or field.field_id in known]
        files = plan(self._table.io, self._table.metadata, self._head, AlwaysTrue()).files
        statistics = replace(statistics, data_files=len(files), bytes=sum(planned.file.size for planned in files))
        if dry_run:
            return statistics
        sketches = self._sketches(fields, files)
        distinct = {field.name: sketches[field.field_id].estimate for field in fields}
        return replace(statistics, distinct=distinct, path=self._register(sketches))

    def _sketches(self, fields: Sequence[NestedField], files: Sequence[PlannedFile]) -> dict[int, ThetaSketch]:
        reader = RowReader.of(self._table.metadata, Schema(*fields))
        tasks = [
            _Sketch(self._table.io, reader, tuple(file_task(planned, self._table.metadata) for planned in part))
            for part in _parts(files)
        ]
        done: list[_Sketches] = []
        run_tasks(tasks, self._run, done, lambda: None)
        merged = {field.field_id: ThetaSketch() for field in fields}
        for sketches in done:
            merged = {field: sketch.union(sketches.of[field]) for field, sketch in merged.items()}
        return merged

    def _register(self, sketches: Mapping[int, ThetaSketch]) -> str:
        """Write the statistics file, commit it in place of an older one, and return its location."""
        file = self._write(sketches)
        landed = commit_to(self._ref, _Registration(self._ref.name, self._table.io, file)).staged
        assert landed is not None
        reach("after-statistics-commit", 0)
        delete_new_files(self._table.io, {landed.replaced or file.statistics_path} - {file.statistics_path})
        return file.statistics_path

    def _write(self, sketches: Mapping[int, ThetaSketch]) -> StatisticsFile:
        snapshot_id = self._head.snapshot_id
        blobs = [(self._described(field, sketch), sketch.to_bytes()) for field, sketch in sketches.items()]
        content, _, footer_size = puffin([(metadata.model_dump(), blob) for metadata, blob in blobs])
        name = f"{snapshot_id}-{uuid.uuid4()}.stats"
        path = self._table.location_provider().new_metadata_location(name)
        with storage_errors(path), self._table.io.new_output(path).create() as stream:
            stream.write(content)
        return StatisticsFile.model_validate(
            {
                **{"snapshot-id": snapshot_id, "statistics-path": path, "file-size-in-bytes": len(content)},
                **{"file-footer-size-in-bytes": footer_size, "blob-metadata": [metadata for metadata, _ in blobs]},
            }
        )

    def _described(self, field: int, sketch: ThetaSketch) -> BlobMetadata:
        origin = {"snapshot-id": self._head.snapshot_id, "sequence-number": self._head.sequence_number or 0}
        described = {"type": _THETA, "fields": [field], "properties": {_NDV: str(sketch.estimate)}}
        return BlobMetadata.model_validate(origin | described)


@dataclass(frozen=True)
class _StagedFile(Staged):
    """An attempt to register a statistics file, and the location of the one that it replaces."""

    replaced: str | None


@dataclass(frozen=True)
class _Registration(Stage[_StagedFile]):
    action = "registering statistics"

    name: str
    io: FileIO
    file: StatisticsFile

    def stage(self, table: Table) -> _StagedFile:
        snapshot_id = self.file.snapshot_id
        if table.metadata.snapshot_by_id(snapshot_id) is None:
            raise CommitConflictError(
                f"snapshot {snapshot_id} of table {self.name} expired while its statistics were computed",
                hint="compute them again: those of the current snapshot will be computed",
            )
        older = _statistics_of(table, snapshot_id)
        transaction = table.transaction()
        stage(transaction, SetStatisticsUpdate.model_validate({"statistics": self.file}))
        reach("before-statistics-commit", 0)
        return _StagedFile(transaction, older.statistics_path if older else None)

    def landed(self, table: Table, staged: _StagedFile) -> bool:
        registered = _statistics_of(table, self.file.snapshot_id)
        return registered is not None and registered.statistics_path == self.file.statistics_path

    def discard(self) -> None:
        delete_new_files(self.io, [self.file.statistics_path])


def _fields(schema: Schema, columns: Sequence[str] | None) -> list[NestedField]:
    """Return the fields of columns, in the schema's order."""
    flat = [field for field in schema.fields if isinstance(field.field_type, PrimitiveType)]
    if columns is None:
        return flat
    if not columns:
        raise ConfigError("columns is empty", hint="name some, or leave it out for all")
    names = {field.name for field in flat}
    for column in columns:
        if column not in names:
            raise ConfigError(
                f"column {column!r} has no statistics: the table has no such column, or it is nested",
                hint=f"one of {', '.join(sorted(names))}",
            )
    return [field for field in flat if field.name in columns]


def _statistics_of(table: Table, snapshot_id: int) -> StatisticsFile | None:
    return next((file for file in table.metadata.statistics if file.snapshot_id == snapshot_id), None)


def _counts(file: StatisticsFile) -> dict[int, int]:
    """Return the registered numbers of distinct values by field id."""
    return {
        blob.fields[0]: int(blob.properties[_NDV])
        for blob in file.blob_metadata
        if blob.type == _THETA and len(blob.fields) == 1 and blob.properties and _NDV in blob.properties
    }


def _parts(files: Sequence[PlannedFile]) -> Iterator[Sequence[PlannedFile]]:
    """Divide files into the parts of as many tasks, by number."""
    largest = sorted(files, key=lambda planned: planned.file.size, reverse=True)
    yield from (largest[start::_MOST_TASKS] for start in range(min(_MOST_TASKS, len(files))))
