"""Reads and writes manifest lists, those of format version 3 too: pyiceberg 0.12 loses the row ids of these."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from pyiceberg import manifest as theirs
from pyiceberg.avro.codecs import AVRO_CODEC_KEY
from pyiceberg.io import InputFile, OutputFile
from pyiceberg.manifest import (
    MANIFEST_LIST_FILE_SCHEMAS,
    UNASSIGNED_SEQ,
    ManifestContent,
    ManifestFile,
    PartitionFieldSummary,
)
from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import Snapshot

from volley.iceberg.pyiceberg_private.forms import Form, FormedFile
from volley.iceberg.pyiceberg_private.manifests import CheckedAvroFile

__all__ = ["first_row_id", "write_list", "written_here"]

# The version whose lists have all fields; those that counts manifests' files and rows, which version 1 may leave out.
_ALL_FIELDS = 3
_COUNTS = {504, 505, 506, 512, 513, 514}
_FIELDS = MANIFEST_LIST_FILE_SCHEMAS[_ALL_FIELDS].fields
_LIST = Schema(
    *(field.model_copy(update={"required": False}) if field.field_id in _COUNTS else field for field in _FIELDS)
)
_FIRST_ROW_ID = [field.field_id for field in _FIELDS].index(520)
# So many encoded records are kept, of some 200 bytes, and so many manifests of lists.
_MOST_RECORDS = 10_000


def first_row_id(manifest: ManifestFile) -> int | None:
    """Return the id of the first row of a manifest's files that have none of their own; None before version 3."""
    values = manifest._data
    return values[_FIRST_ROW_ID] if len(values) > _FIRST_ROW_ID else None


def _read_list(input_file: InputFile) -> Iterator[ManifestFile]:
    """Yield the manifests of a list with all fields of format version 3; version 1 may leave out their counts."""
    types: dict[int, Any] = {-1: ManifestFile, 508: PartitionFieldSummary}
    with CheckedAvroFile[ManifestFile](
        input_file, _LIST, read_types=types, read_enums={517: ManifestContent}
    ) as manifests:
        yield from manifests


class _Manifests(theirs._ManifestCache):
    """Keeps manifests by path, like pyiceberg's class; one gets its row ids by the first commit after an upgrade."""

    def get_or_cache(self, manifest_file: ManifestFile) -> ManifestFile:
        known = super().get_or_cache(manifest_file)
        return known if first_row_id(known) == first_row_id(manifest_file) else manifest_file


theirs.read_manifest_list = _read_list
theirs._manifest_cache = _Manifests()


def write_list(
    output: OutputFile, format_version: int, snapshot: Snapshot, manifests: Sequence[ManifestFile], codec: str
) -> int:
    """Write the list of a snapshot's manifests.

    Data manifests without row ids get the next ones: new manifests, and those from before an upgrade to version 3.

    Args:
        snapshot: Its ids, its sequence number and, from version 3 on, the next id of a row in the table.

    Returns:
        How many ids of rows are used.
    """
    next_id = snapshot.first_row_id or 0
    listed = []
    for manifest in manifests:
        numbered = _numbered(manifest, snapshot)
        if format_version >= _ALL_FIELDS and _lacks_ids(numbered):
            numbered._data[_FIRST_ROW_ID] = next_id
            next_id += (manifest.added_rows_count or 0) + (manifest.existing_rows_count or 0)
        listed.append(numbered)
    file = FormedFile[ManifestFile](output, _form(format_version), _meta(format_version, snapshot, codec))
    with file:
        file.write_encoded([_encoded(format_version, file, manifest) for manifest in listed])
    if format_version > 1:
        _keep(output.location, listed)
    return next_id - (snapshot.first_row_id or 0)


def written_here(location: str) -> Sequence[ManifestFile] | None:
    """Return the manifests of a list that this process has written of late; None = the storage has to be asked."""
    return _written.get(location)


def _keep(location: str, manifests: Sequence[ManifestFile]) -> None:
    """Keep what the list of the table's next commit repeats; the oldest lists give way."""
    with _lock:
        _written[location] = manifests
        count = sum(len(listed) + 1 for listed in _written.values())
        while count > _MOST_RECORDS:
            count -= len(_written.pop(next(iter(_written)))) + 1


_written: dict[str, Sequence[ManifestFile]] = {}
_lock = threading.Lock()


def _meta(format_version: int, snapshot: Snapshot, codec: str) -> dict[str, str]:
    parent = snapshot.parent_snapshot_id
    return {
        "snapshot-id": str(snapshot.snapshot_id),
        "parent-snapshot-id": "null" if parent is None else str(parent),
        **({"sequence-number": str(snapshot.sequence_number)} if format_version > 1 else {}),
        **({"first-row-id": str(snapshot.first_row_id)} if format_version >= _ALL_FIELDS else {}),
        "format-version": str(format_version),
        AVRO_CODEC_KEY: codec,
    }


def _lacks_ids(manifest: ManifestFile) -> bool:
    return manifest.content == ManifestContent.DATA and first_row_id(manifest) is None


def _numbered(manifest: ManifestFile, snapshot: Snapshot) -> ManifestFile:
    """Return a manifest with all fields; a new one has the sequence number of its snapshot."""
    values = manifest._data
    numbered = ManifestFile(*values, *[None] * (len(_FIELDS) - len(values)))
    if UNASSIGNED_SEQ in (manifest.sequence_number, manifest.min_sequence_number):
        if manifest.added_snapshot_id != snapshot.snapshot_id:
            raise ValueError(f"manifest {manifest.manifest_path} of another snapshot has no sequence number")
        number = snapshot.sequence_number or 0
        numbered.sequence_number = number if manifest.sequence_number == UNASSIGNED_SEQ else manifest.sequence_number
        if manifest.min_sequence_number == UNASSIGNED_SEQ:
            numbered.min_sequence_number = number
    return numbered


def _encoded(format_version: int, file: FormedFile[ManifestFile], manifest: ManifestFile) -> bytes:
    """Return a manifest as a record of a list; most are in the list before it, too."""
    known = _records.get((format_version, manifest.manifest_path))
    if known is None or known[0] != manifest._data:
        if len(_records) >= _MOST_RECORDS:
            _records.clear()
        known = _records[format_version, manifest.manifest_path] = manifest._data, file.encoded(manifest)
    return known[1]


_records: dict[tuple[int, str], tuple[list[Any], bytes]] = {}


@lru_cache
def _form(format_version: int) -> Form:
    schemas = MANIFEST_LIST_FILE_SCHEMAS
    return Form.of("manifest_file", schemas[format_version], schemas[_ALL_FIELDS])
