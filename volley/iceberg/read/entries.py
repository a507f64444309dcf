"""The entries of manifests: which snapshot added or removed a file, and what planning and reading need of the file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any

from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, ManifestEntry, ManifestFile

from volley.iceberg.pyiceberg_private.access import partition_values

__all__ = ["Content", "FileEntry", "PlannedFile", "Status", "entry_of", "read_manifest"]


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


@dataclass(frozen=True, slots=True)
class FileEntry:
    """An entry of a manifest; what the manifest list determines (ids, sequence numbers) is filled in.

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
    lower: Mapping[int, bytes] = field(default_factory=dict)
    upper: Mapping[int, bytes] = field(default_factory=dict)
    values: Mapping[int, int] = field(default_factory=dict)
    nulls: Mapping[int, int] = field(default_factory=dict)
    nans: Mapping[int, int] = field(default_factory=dict)
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
        return replace(self, lower={}, upper={}, values={}, nulls={}, nans={})


@dataclass(frozen=True)
class PlannedFile:
    """A data file of a snapshot, and the delete files of the snapshot that apply to it.

    Args:
        file: The data file.
        deletes: Its delete files.
    """

    file: FileEntry
    deletes: tuple[FileEntry, ...] = ()


def read_manifest(io: FileIO, manifest: ManifestFile) -> list[FileEntry]:
    """Return all entries of a manifest, deleted ones too."""
    return [_entry(entry, manifest) for entry in manifest.fetch_manifest_entry(io, discard_deleted=False)]


def entry_of(file: DataFile) -> FileEntry:
    """Return pyiceberg's description of a live file as an entry; its snapshot and sequence number are unknown: 0."""
    return FileEntry(
        status=Status.EXISTING,
        snapshot_id=0,
        sequence_number=0,
        file_sequence_number=0,
        content=int(file.content),
        path=file.file_path,
        format=file.file_format.value,
        spec_id=file.spec_id,
        partition=tuple(partition_values(file.partition)),
        rows=file.record_count,
        size=file.file_size_in_bytes,
        lower=file.lower_bounds or {},
        upper=file.upper_bounds or {},
        values=file.value_counts or {},
        nulls=file.null_value_counts or {},
        nans=file.nan_value_counts or {},
        equality_ids=tuple(file.equality_ids or ()),
        split_offsets=tuple(file.split_offsets or ()),
    )


def _entry(entry: ManifestEntry, manifest: ManifestFile) -> FileEntry:
    return replace(
        entry_of(entry.data_file),
        status=int(entry.status),
        snapshot_id=entry.snapshot_id or manifest.added_snapshot_id or 0,
        sequence_number=entry.sequence_number or 0,
        file_sequence_number=entry.file_sequence_number or 0,
        spec_id=manifest.partition_spec_id,
    )
