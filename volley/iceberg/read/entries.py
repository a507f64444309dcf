"""The entries of manifests: which snapshot added or removed a file, and what planning and reading need of the file."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from threading import Lock
from typing import Any, Generic, NamedTuple, TypeVar

import pyarrow as pa
from pyiceberg.expressions import BooleanExpression
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, ManifestContent, ManifestFile
from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import Snapshot

from volley.errors import StorageError
from volley.iceberg.pyiceberg_private.entries import data_file, read_entries
from volley.iceberg.pyiceberg_private.lists import first_row_id
from volley.iceberg.pyiceberg_private.server_plans import check_planned_here
from volley.iceberg.read.avro import JoinedBlocks
from volley.iceberg.read.decoder import UnknownSchemaError, decode_function
from volley.iceberg.schema.types import POSITION_ID
from volley.iceberg.storage.errors import storage_errors
from volley.secrets import redact_uri, redacted

__all__ = [
    "Cache",
    "Content",
    "EntryStatus",
    "FileEntry",
    "PlannedFile",
    "Residual",
    "added_rows_in",
    "deleted_rows_in",
    "entries_of",
    "forget_manifests",
    "is_data",
    "manifests_of",
    "own_manifests",
    "read_manifest",
    "rows_in",
    "to_data_file",
]

T = TypeVar("T")

_NONE: Mapping[int, Any] = {}
# Without statistics and the path's characters; one field's statistics.
_ENTRY_BYTES, _STATISTIC_BYTES = 600, 500
_POSITION_BYTES = 8
# The name of a field that manifests have from format version 3 on.
_ROW_IDS = "first_row_id"


class Cache(Generic[T]):
    """Keeps the values that were used last, up to a number of bytes."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._used = 0
        self._lock = Lock()
        self._values: OrderedDict[Hashable, tuple[T, int]] = OrderedDict()

    def get(self, key: Hashable) -> T | None:
        """Return a key's value; None if there is none, or no longer."""
        with self._lock:
            if key not in self._values:
                return None
            self._values.move_to_end(key)
            return self._values[key][0]

    def put(self, key: Hashable, value: T, size: int) -> None:
        """Set a key's value, and drop those that were not used for the longest time; a too large one is not kept.

        Args:
            size: Its size in bytes.
        """
        with self._lock:
            _, old = self._values.pop(key, (None, 0))
            self._used -= old
            if size > self._size:
                return
            self._values[key] = value, size
            self._used += size
            while self._used > self._size:
                _, (_, dropped) = self._values.popitem(last=False)
                self._used -= dropped

    def clear(self) -> None:
        """Drop all values."""
        with self._lock:
            self._values.clear()
            self._used = 0


class EntryStatus(IntEnum):
    """What the snapshot of an entry's manifest did with the file."""

    EXISTING = 0
    ADDED = 1
    DELETED = 2


class Content(IntEnum):
    """What a file contains."""

    DATA = 0
    POSITION_DELETES = 1
    EQUALITY_DELETES = 2


class FileEntry(NamedTuple):
    """An entry of a manifest; what the manifest list determines (ids, sequence numbers) is filled in.

    A tuple, as there may be a million: a dataclass takes six times as long to make.

    Args:
        snapshot_id: The snapshot that added the file; for a deleted entry, the one that removed it.
        sequence_number: The data sequence number: delete files apply to data files by it.
        format: ``"PARQUET"``, ``"AVRO"``, ``"ORC"`` or ``"PUFFIN"``.
        partition: The values of the spec's fields, as manifests store them: dates and timestamps as integers.
        size: Its size in bytes.
        lower: Lower bounds by field id, serialized.
        upper: Upper bounds by field id, serialized.
        values: Number of values by field id, including nulls and NaN.
        nulls: Number of nulls by field id.
        nans: Number of NaN by field id.
        split_offsets: Where its row groups start, in bytes.
        first_row_id: The id of its first row, of format version 3; the others count on from it.
        referenced_file: The only data file that a position-delete file applies to, if known.
        blob_offset: Where a deletion vector starts in its Puffin file, in bytes.
        blob_size: A deletion vector's size in bytes.
    """

    status: int
    snapshot_id: int
    sequence_number: int
    file_sequence_number: int
    content: int
    path: str
    format: str
    spec_id: int
    partition: tuple[Any, ...]
    rows: int
    size: int
    lower: Mapping[int, bytes] = _NONE
    upper: Mapping[int, bytes] = _NONE
    values: Mapping[int, int] = _NONE
    nulls: Mapping[int, int] = _NONE
    nans: Mapping[int, int] = _NONE
    equality_ids: tuple[int, ...] = ()
    split_offsets: tuple[int, ...] = ()
    first_row_id: int | None = None
    referenced_file: str | None = None
    blob_offset: int | None = None
    blob_size: int | None = None

    @property
    def is_live(self) -> bool:
        """True unless the manifest's snapshot removed the file."""
        return self.status != EntryStatus.DELETED

    def without_statistics(self) -> FileEntry:
        """Return the entry without the statistics, which only planning needs."""
        if not (self.lower or self.upper or self.values or self.nulls or self.nans):
            return self
        return self._replace(lower=_NONE, upper=_NONE, values=_NONE, nulls=_NONE, nans=_NONE)

    def naming_only(self, path: str) -> FileEntry:
        """Return the position-delete file as one that is known to name no other data file.

        Of its statistics it keeps the bounds of the positions.
        """
        lower, upper = _of_positions(self.lower), _of_positions(self.upper)
        return self._replace(referenced_file=path).without_statistics()._replace(lower=lower, upper=upper)

    @property
    def bounds_of_positions(self) -> tuple[int, int] | None:
        """The lowest and the highest position in a position-delete file of one data file; None if unknown."""
        low, high = self.lower.get(POSITION_ID), self.upper.get(POSITION_ID)
        if self.referenced_file is None or low is None or high is None or not len(low) == len(high) == _POSITION_BYTES:
            return None
        return int.from_bytes(low, "little", signed=True), int.from_bytes(high, "little", signed=True)


def _of_positions(bounds: Mapping[int, bytes]) -> Mapping[int, bytes]:
    return {POSITION_ID: bounds[POSITION_ID]} if POSITION_ID in bounds else _NONE


@dataclass(frozen=True, slots=True)
class Residual:
    """The filter that a catalog, which has planned a scan, wants the rows of a file to match.

    Args:
        schema: The columns that it compares.
        expression: The filter, bound.
    """

    schema: Schema
    expression: BooleanExpression

    def kept(self, rows: pa.RecordBatch, schema: Schema) -> pa.RecordBatch:
        """Return the rows that match, of a batch with the columns of a schema."""
        # It costs 0.2 s to import.
        from pyiceberg.io.pyarrow import expression_to_pyarrow

        matching = pa.Table.from_batches([rows]).filter(expression_to_pyarrow(self.expression, schema))
        return matching.combine_chunks().to_batches()[0] if matching.num_rows else rows.slice(0, 0)


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """A data file of a snapshot, and the delete files of the snapshot that apply to it.

    Args:
        io: Opens them, where the catalog's plan has credentials of its own; None = the table's does.
    """

    file: FileEntry
    deletes: tuple[FileEntry, ...] = ()
    residual: Residual | None = None
    io: FileIO | None = field(default=None, compare=False)


_NAMES = tuple(FileEntry.__annotations__)

_cache: Cache[tuple[list[FileEntry], frozenset[int]]] = Cache(128 << 20)


def to_data_file(file: FileEntry) -> DataFile:
    """Return a data file as pyiceberg describes it, without statistics: enough to remove it from a table."""
    return data_file(file.path, file.format, file.spec_id, file.partition, file.rows, file.size)


def read_manifest(io: FileIO, manifest: ManifestFile) -> list[FileEntry]:
    """Return all entries of a manifest, deleted ones too, with all statistics."""
    return _read(io, manifest, None)


def entries_of(io: FileIO, manifest: ManifestFile, statistics: Collection[int] = ()) -> list[FileEntry]:
    """Return all entries of a manifest, deleted ones too; manifests never change, so the result may be a cached one.

    Args:
        manifest: The manifest, as its snapshot lists it.
        statistics: The fields whose bounds and counts are needed; entries may have those of others too.

    Raises:
        StorageError: If the manifest can't be read, or is damaged.
    """
    values = manifest.added_snapshot_id, manifest.sequence_number, manifest.partition_spec_id, first_row_id(manifest)
    key = (manifest.manifest_path, *values)
    cached = _cache.get(key)
    fields = frozenset(statistics)
    if cached is not None and fields <= cached[1]:
        return cached[0]
    if cached is not None:
        fields |= cached[1]
    entries = _read(io, manifest, fields)
    size = sum(len(entry.path) for entry in entries) + len(entries) * (_ENTRY_BYTES + len(fields) * _STATISTIC_BYTES)
    _cache.put(key, (entries, fields), size)
    return entries


def forget_manifests() -> None:
    """Drop all cached manifests: the next plan reads them again."""
    _cache.clear()


def manifests_of(io: FileIO, snapshot: Snapshot) -> list[ManifestFile]:
    """Return the manifests of a snapshot.

    Raises:
        ConfigError: If the table's catalog has to plan its scans.
        StorageError: If they can't be read.
    """
    check_planned_here(io, f"manifest list {redact_uri(snapshot.manifest_list)}")
    with storage_errors(snapshot.manifest_list, "reading"):
        try:
            return snapshot.manifests(io)
        except OSError:
            raise
        except Exception as error:
            raise _damaged("manifest list", snapshot.manifest_list, error) from redacted(error)


def _read(io: FileIO, manifest: ManifestFile, fields: frozenset[int] | None) -> list[FileEntry]:
    """Return the entries with the statistics of some fields; None = all."""
    path = manifest.manifest_path
    with storage_errors(path, "reading"):
        with io.new_input(path).open() as stream:
            content = stream.read()
        try:
            return _decode(content, manifest, fields)
        except UnknownSchemaError:
            pass
        except Exception as error:
            raise _damaged("manifest", path, error) from redacted(error)
        try:
            return [FileEntry(**entry) for entry in read_entries(io, manifest)]
        except OSError:
            raise
        except Exception as error:
            raise _damaged("manifest", path, error) from redacted(error)


def _decode(content: bytes, manifest: ManifestFile, fields: frozenset[int] | None) -> list[FileEntry]:
    if len(content) < manifest.manifest_length:
        raise ValueError(f"{len(content)} bytes instead of {manifest.manifest_length}")
    file = JoinedBlocks(content)
    decode = decode_function(file.schema, _NAMES, fields)
    entries: list[FileEntry] = []
    inherited = manifest.added_snapshot_id, manifest.sequence_number or 0, manifest.partition_spec_id
    for decoder, size, count in file.items():
        entries += decode(decoder, size, count, FileEntry, *inherited)
    first_id = first_row_id(manifest)
    return entries if first_id is None and _ROW_IDS not in file.schema else list(_with_row_ids(entries, first_id))


def _with_row_ids(entries: Iterable[FileEntry], next_id: int | None) -> Iterator[FileEntry]:
    """Yield entries; data files without an id of their first row get the next ones, in their order.

    Files of a manifest without ids have none.
    """
    for entry in entries:
        if next_id is None:
            yield entry._replace(first_row_id=None)
        elif entry.first_row_id is not None or not entry.is_live:
            yield entry
        else:
            yield entry._replace(first_row_id=next_id)
            next_id += entry.rows


def _damaged(what: str, path: str, error: Exception) -> StorageError:
    reason = str(error).partition("\n")[0] or type(error).__name__
    return StorageError(
        f"{what} {redact_uri(path)} can't be read: {reason}",
        hint="it is damaged, or not an Avro file of Iceberg: restore it, or roll the table back to an older snapshot",
    )


def is_data(manifest: ManifestFile) -> bool:
    """Return True if a manifest has data files, and not delete files."""
    return bool(manifest.content == ManifestContent.DATA)


def own_manifests(io: FileIO, snapshot: Snapshot) -> list[ManifestFile]:
    """Return the manifests that a snapshot wrote."""
    return [manifest for manifest in manifests_of(io, snapshot) if manifest.added_snapshot_id == snapshot.snapshot_id]


def rows_in(io: FileIO, snapshot: Snapshot | None) -> int:
    """Return the number of rows in a snapshot's data files, also of those that deletes have deleted."""
    manifests = manifests_of(io, snapshot) if snapshot is not None else []
    return sum(_rows(io, manifest) for manifest in manifests if is_data(manifest))


def deleted_rows_in(io: FileIO, snapshot: Snapshot | None) -> int:
    """Return about how many rows a snapshot's position deletes delete.

    A manifest does not tell position deletes from equality deletes, and a total may be too high: the lesser one counts.
    """
    manifests = manifests_of(io, snapshot) if snapshot is not None else []
    most = sum(_rows(io, manifest) for manifest in manifests if not is_data(manifest))
    said = _number(snapshot, "total-position-deletes")
    return most if said is None else min(said, most)


def added_rows_in(io: FileIO, snapshot: Snapshot) -> int:
    """Return the number of rows in the data files that a snapshot has added.

    Unlike totals, a writer's count of them needs no other writer's: no file is read where it is given.
    """
    said = _number(snapshot, "added-records")
    if said is not None:
        return said
    return sum(_added(io, manifest, snapshot) for manifest in own_manifests(io, snapshot) if is_data(manifest))


def _number(snapshot: Snapshot | None, name: str) -> int | None:
    text = snapshot.summary.get(name) if snapshot and snapshot.summary else None
    return int(text) if text and text.isdecimal() else None


# Format version 1 may leave out the counts of a manifest: its entries are read then.


def _rows(io: FileIO, manifest: ManifestFile) -> int:
    added, existing = manifest.added_rows_count, manifest.existing_rows_count
    if added is not None and existing is not None:
        return added + existing
    return sum(entry.rows for entry in entries_of(io, manifest) if entry.is_live)


def _added(io: FileIO, manifest: ManifestFile, snapshot: Snapshot) -> int:
    if manifest.added_rows_count is not None:
        return manifest.added_rows_count
    own = (entry for entry in entries_of(io, manifest) if entry.snapshot_id == snapshot.snapshot_id)
    return sum(entry.rows for entry in own if entry.is_live)
