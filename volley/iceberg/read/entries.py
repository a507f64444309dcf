"""The entries of manifests: which snapshot added or removed a file, and what planning and reading need of the file."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, ManifestFile
from pyiceberg.table.snapshots import Snapshot

from volley.errors import StorageError
from volley.iceberg.pyiceberg_private.entries import data_file, read_entries
from volley.iceberg.read.avro import AvroFile
from volley.iceberg.read.cache import Cache
from volley.iceberg.read.decoder import UnknownSchemaError, decode_function
from volley.iceberg.storage.errors import storage_errors
from volley.secrets import redact_uri, redacted

__all__ = [
    "Content",
    "FileEntry",
    "PlannedFile",
    "Status",
    "entries_of",
    "forget_manifests",
    "manifests_of",
    "read_manifest",
    "to_data_file",
]

_NONE: Mapping[int, Any] = {}


class Status(IntEnum):
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
        status: A `Status`.
        snapshot_id: The snapshot that added the file; for a deleted entry, the one that removed it.
        sequence_number: The data sequence number: delete files apply to data files by it.
        file_sequence_number: The sequence number of the snapshot that added the file.
        content: A `Content`.
        path: The file's location.
        format: ``"PARQUET"``, ``"AVRO"``, ``"ORC"`` or ``"PUFFIN"``.
        spec_id: The partition spec of `partition`.
        partition: The values of the spec's fields, as manifests store them: dates and timestamps as integers.
        rows: Its number of rows.
        size: Its size in bytes.
        lower: Lower bounds by field id, serialized.
        upper: Upper bounds by field id, serialized.
        values: Number of values by field id, including nulls and NaN.
        nulls: Number of nulls by field id.
        nans: Number of NaN by field id.
        equality_ids: The fields that an equality-delete file compares.
        split_offsets: Where its row groups start, in bytes.
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
    referenced_file: str | None = None
    blob_offset: int | None = None
    blob_size: int | None = None

    @property
    def is_live(self) -> bool:
        """True unless the manifest's snapshot removed the file."""
        return self.status != Status.DELETED

    def without_statistics(self) -> FileEntry:
        """Return the entry without the statistics, which only planning needs."""
        if not (self.lower or self.upper or self.values or self.nulls or self.nans):
            return self
        return self._replace(lower=_NONE, upper=_NONE, values=_NONE, nulls=_NONE, nans=_NONE)

    def naming_only(self, path: str) -> FileEntry:
        """Return the position-delete file as one that is known to name no other data file, without statistics."""
        return self._replace(referenced_file=path).without_statistics()


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """A data file of a snapshot, and the delete files of the snapshot that apply to it.

    Args:
        file: The data file.
        deletes: Its delete files.
    """

    file: FileEntry
    deletes: tuple[FileEntry, ...] = ()


_NAMES = tuple(FileEntry.__annotations__)
# Without statistics and the path's characters; one field's statistics.
_ENTRY_BYTES, _STATISTIC_BYTES = 600, 500

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
        io: Opens the manifest.
        manifest: The manifest, as its snapshot lists it.
        statistics: The fields whose bounds and counts are needed; entries may have those of others too.

    Raises:
        StorageError: If the manifest can't be read, or is damaged.
    """
    key = (manifest.manifest_path, manifest.added_snapshot_id, manifest.sequence_number, manifest.partition_spec_id)
    cached = _cache.get(key)
    wanted = frozenset(statistics)
    if cached is not None and wanted <= cached[1]:
        return cached[0]
    if cached is not None:
        wanted |= cached[1]
    entries = _read(io, manifest, wanted)
    size = sum(len(entry.path) for entry in entries) + len(entries) * (_ENTRY_BYTES + len(wanted) * _STATISTIC_BYTES)
    _cache.put(key, (entries, wanted), size)
    return entries


def forget_manifests() -> None:
    """Drop all cached manifests: the next plan reads them again."""
    _cache.clear()


def manifests_of(io: FileIO, snapshot: Snapshot) -> list[ManifestFile]:
    """Return the manifests of a snapshot.

    Raises:
        StorageError: If the manifest list can't be read, or is damaged.
    """
    with storage_errors(snapshot.manifest_list, "reading"):
        try:
            return snapshot.manifests(io)
        except OSError:
            raise
        except Exception as error:
            raise _damaged("manifest list", snapshot.manifest_list, error) from redacted(error)


def _read(io: FileIO, manifest: ManifestFile, wanted: frozenset[int] | None) -> list[FileEntry]:
    """Return the entries with the statistics of some fields; None = all."""
    path = manifest.manifest_path
    with storage_errors(path, "reading"):
        with io.new_input(path).open() as stream:
            content = stream.read()
        try:
            return _decode(content, manifest, wanted)
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


def _decode(content: bytes, manifest: ManifestFile, wanted: frozenset[int] | None) -> list[FileEntry]:
    if len(content) < manifest.manifest_length:
        raise ValueError(f"{len(content)} bytes instead of {manifest.manifest_length}")
    file = AvroFile(content)
    decode = decode_function(file.schema, _NAMES, wanted)
    entries: list[FileEntry] = []
    inherited = manifest.added_snapshot_id, manifest.sequence_number or 0, manifest.partition_spec_id
    for decoder, size, count in file.items():
        entries += decode(decoder, size, count, FileEntry, *inherited)
    return entries


def _damaged(what: str, path: str, error: Exception) -> StorageError:
    reason = str(error).partition("\n")[0] or type(error).__name__
    return StorageError(
        f"{what} {redact_uri(path)} can't be read: {reason}",
        hint="it is damaged, or not an Avro file of Iceberg: restore it, or roll the table back to an older snapshot",
    )
