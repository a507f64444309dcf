"""Reads manifests by pyiceberg's own reader, for those whose schema Volley's decoder does not support."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    DATA_FILE_TYPE,
    MANIFEST_ENTRY_SCHEMAS,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    _inherit_from_manifest,
)
from pyiceberg.typedef import Record

# Importing it mends pyiceberg's readers of doubles and UUIDs.
from volley.iceberg.pyiceberg_private import manifests
from volley.iceberg.pyiceberg_private.access import partition_values
from volley.iceberg.pyiceberg_private.lists import first_row_id
from volley.iceberg.pyiceberg_private.manifests import CheckedAvroFile

__all__ = ["data_file", "file_attributes", "live_entries", "read_entries", "without_bounds"]

assert manifests
# The version that has all fields, and where a file has the id of its first row.
_VERSION = 3
_FIELDS = [field.field_id for field in DATA_FILE_TYPE[_VERSION].fields]
_FIRST_ROW_ID = _FIELDS.index(142)
_BOUNDS = _FIELDS.index(125), _FIELDS.index(128)


def read_entries(io: FileIO, manifest: ManifestFile) -> Iterator[dict[str, Any]]:
    """Yield the attributes of each entry of a manifest, deleted ones too."""
    for entry in _entries(io, manifest):
        yield _attributes(entry)


def live_entries(io: FileIO, manifest: ManifestFile) -> list[ManifestEntry]:
    """Return the entries of a manifest's live files, with all fields of format version 3."""
    return _fetch(manifest, io)


def _fetch(self: ManifestFile, io: FileIO, discard_deleted: bool = True) -> list[ManifestEntry]:
    """Return the entries of a manifest, with all fields of format version 3.

    pyiceberg reads those of version 2, and so loses the ids of rows, and which data file a delete file refers to.
    """
    entries = _entries(io, self)
    return [entry for entry in entries if not discard_deleted or entry.status != ManifestEntryStatus.DELETED]


ManifestFile.fetch_manifest_entry = _fetch  # type: ignore[method-assign]


def _entries(io: FileIO, manifest: ManifestFile) -> Iterator[ManifestEntry]:
    with CheckedAvroFile[ManifestEntry](
        io.new_input(manifest.manifest_path),
        MANIFEST_ENTRY_SCHEMAS[_VERSION],
        read_types={-1: ManifestEntry, 2: DataFile},
        read_enums={0: ManifestEntryStatus, 101: FileFormat, 134: DataFileContent},
    ) as entries:
        next_id = first_row_id(manifest)
        for entry in entries:
            inherited = _inherit_from_manifest(entry, manifest)
            next_id = _inherit_row_id(inherited, next_id)
            yield inherited


def _inherit_row_id(entry: ManifestEntry, next_id: int | None) -> int | None:
    """Set the id of a data file's first row, unless it has one; return the next such id of its manifest.

    Files of a manifest without ids have none.
    """
    if next_id is None:
        entry.data_file[_FIRST_ROW_ID] = None
    elif entry.status != ManifestEntryStatus.DELETED and entry.data_file[_FIRST_ROW_ID] is None:
        entry.data_file[_FIRST_ROW_ID] = next_id
        return next_id + entry.data_file.record_count
    return next_id


def _attributes(entry: ManifestEntry) -> dict[str, Any]:
    return {
        "status": int(entry.status),
        "snapshot_id": entry.snapshot_id,
        "sequence_number": entry.sequence_number or 0,
        "file_sequence_number": entry.file_sequence_number or 0,
        **file_attributes(entry.data_file),
    }


def file_attributes(file: DataFile) -> dict[str, Any]:
    """Return the attributes of a data file or a delete file."""
    first_id, referenced_file, blob_offset, blob_size = (*file._data[_FIRST_ROW_ID:], *[None] * 4)[:4]
    return {
        "content": int(file.content),
        "path": file.file_path,
        "format": file.file_format.value,
        "spec_id": file.spec_id,
        "partition": tuple(partition_values(file.partition)),
        "rows": file.record_count,
        "size": file.file_size_in_bytes,
        "lower": file.lower_bounds or {},
        "upper": file.upper_bounds or {},
        "values": file.value_counts or {},
        "nulls": file.null_value_counts or {},
        "nans": file.nan_value_counts or {},
        "equality_ids": tuple(file.equality_ids or ()),
        "split_offsets": tuple(file.split_offsets or ()),
        "first_row_id": first_id,
        "referenced_file": referenced_file,
        "blob_offset": blob_offset,
        "blob_size": blob_size,
    }


def data_file(path: str, format: str, spec_id: int, partition: Sequence[Any], rows: int, size: int) -> DataFile:
    """Return pyiceberg's description of a live data file, without statistics: enough to remove it from a table."""
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat(format),
        partition=Record(*partition),
        record_count=rows,
        file_size_in_bytes=size,
    )
    file.spec_id = spec_id
    return file


def without_bounds(entry: ManifestEntry) -> ManifestEntry:
    """Take the lower and upper bounds out of an entry of `live_entries`, and return it."""
    for place in _BOUNDS:
        entry.data_file[place] = None
    return entry
