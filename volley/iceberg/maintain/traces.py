"""Tells where a table keeps rows, or values of them: data files, delete files, manifests, summaries of snapshots."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote_plus

import numpy as np
import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.serializers import FromInputFile
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.name_mapping import MappedField, create_mapping_from_schema
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.transforms import IdentityTransform

from volley.contracts.epoch import WriteResult
from volley.errors import SourceError, StorageError
from volley.iceberg.maintain.options import Runner
from volley.iceberg.maintain.sought import SoughtRows
from volley.iceberg.maintain.unneeded import METADATA
from volley.iceberg.read.avro import JoinedBlocks
from volley.iceberg.read.data_files import READABLE, open_data_file, open_stored
from volley.iceberg.read.delete_files import Mask
from volley.iceberg.read.entries import Content, FileEntry, PlannedFile, entries_of, manifests_of, read_manifest
from volley.iceberg.read.rows import FileTask, RowReader, file_task
from volley.iceberg.read.skipping import Positions
from volley.iceberg.schema.mapping import mapped_fields
from volley.iceberg.storage.errors import storage_errors
from volley.iceberg.storage.files import is_there, name_of
from volley.iceberg.upsert.changes import are_changes, read_all_changes
from volley.iceberg.upsert.tombstones import concerns_all

__all__ = ["Traces", "read_metadata"]

_THREADS = 8
# Files that one task reads.
_FILES_OF_A_TASK = 64
# The column of position-delete files that has the deleted rows themselves.
_ROW = "row"
_PARTITIONS = "partitions."
_FORMATS = {"parquet": "PARQUET", "orc": "ORC", "avro": "AVRO"}


class Traces:
    """Looks for rows in the files of a table: also for those that are deleted, and for what older snapshots have.

    Args:
        exact: True: read all files, also those whose bounds say that they have no such row.
        run: Reads many files as tasks; None = in this process.
    """

    def __init__(
        self, metadata: TableMetadata, io: FileIO, sought: SoughtRows, exact: bool = False, run: Runner | None = None
    ) -> None:
        self.sought = sought
        self._metadata = metadata
        self._io = io
        self._exact = exact
        self._run = run
        self._ids = {field.field_id for field in sought.schema.fields}
        self._reader = RowReader.of(metadata, sought.schema)
        # The results by path: a file never changes.
        self.files: dict[str, bool] = {}
        self._manifests: dict[str, bool] = {}
        self._gone: set[str] = set()

    def in_file(self, file: FileEntry) -> bool:
        """Return True if a data file or delete file has such rows, deleted ones too; False if it is gone.

        Raises:
            SourceError: If it can't be read.
            StorageError: If the storage fails.
        """
        if file.path not in self.files:
            try:
                self.files[file.path] = self._is_in(file)
            except SourceError:
                if is_there(self._io, file.path):
                    raise
                self._gone.add(file.path)
                self.files[file.path] = False
        return self.files[file.path]

    def _is_in(self, file: FileEntry) -> bool:
        if file.blob_offset is not None or concerns_all(PlannedFile(file)):
            return False
        if file.content == Content.DATA:
            return bool(len(self.positions(PlannedFile(file))))
        if file.content == Content.POSITION_DELETES:
            with open_stored(self._io, file) as stored:
                return _ROW in stored.schema.names
        return self._in_columns(file, mapped_fields(self._metadata), others=True)

    def _in_columns(self, file: FileEntry, names: Sequence[MappedField], others: bool) -> bool:
        """Return True if a file that may have some columns only has such rows.

        Args:
            others: The answer for a file that has no column which tells.
        """
        with open_data_file(self._io, file, names, {}) as opened:
            ids = {field.field_id for field in opened.fields if field.field_id is not None}
        sought = self.sought.of_columns(ids)
        if sought is None:
            return others
        reader = RowReader(RowReader.of(self._metadata, sought.schema).schema, tuple(names))
        return bool(len(reader.find(self._io, FileTask(file), sought.matches, self._may_have)))

    def note_gone(self, paths: Iterable[str]) -> None:
        """Note that files are deleted."""
        self._gone |= {*paths}
        self._manifests.clear()

    def positions(self, planned: PlannedFile) -> Positions:
        """Return the positions of such rows in a data file, deleted ones too."""
        if not self._exact and not self.sought.may_have(planned.file):
            return np.empty(0, np.int64)
        task = file_task(PlannedFile(planned.file), self._metadata)
        with storage_errors(planned.file.path, "reading"):
            return self._reader.find(self._io, task, self.sought.matches, self._may_have)

    def deleted(self, planned: PlannedFile) -> Mask:
        """Return which rows of a data file are deleted."""
        with storage_errors(planned.file.path, "reading"):
            return self._reader.deleted(self._io, file_task(planned, self._metadata))

    def _may_have(self, file: FileEntry) -> bool:
        return self._exact or self.sought.may_have(file)

    def in_manifests(self, manifests: Iterable[ManifestFile]) -> dict[str, bool]:
        """Return by its path whether each manifest names a file with such rows, or has values of them."""
        paths = {manifest.manifest_path: manifest for manifest in manifests}
        new = {
            path: entries_of(self._io, manifest, self._ids)
            for path, manifest in paths.items()
            if path not in self._manifests
        }
        live = {entry.path: entry for entries in new.values() for entry in entries if entry.is_live}
        self._read([entry for path, entry in live.items() if path not in self.files])
        for path, entries in new.items():
            found = any(self.in_file(entry) for entry in entries if entry.is_live)
            self._manifests[path] = found or any(map(self.in_entry, entries))
        return {path: self._manifests[path] for path in paths}

    def _read(self, files: Sequence[FileEntry]) -> None:
        """Look through files, several at a time."""
        if self._run is None or len(files) <= _THREADS:
            with ThreadPoolExecutor(_THREADS) as pool:
                list(pool.map(self.in_file, files))
            return
        # Tasks need none of the table's snapshots.
        metadata = self._metadata.model_copy(
            update={"snapshots": [], "snapshot_log": [], "metadata_log": [], "refs": {}, "statistics": []}
        )
        bare = Traces(metadata, self._io, self.sought, self._exact)
        starts = range(0, len(files), _FILES_OF_A_TASK)
        tasks = [_LookThrough(bare, tuple(files[start : start + _FILES_OF_A_TASK])) for start in starts]
        for result in self._run(tasks):
            for path, has_rows, is_gone in result.committables:
                self.files[path] = has_rows
                self._gone |= {path} if is_gone else set()

    def looked_through(self, files: Iterable[FileEntry]) -> list[tuple[str, bool, bool]]:
        """Return the path of each file, whether it has such rows, and whether it is gone."""
        return [(file.path, self.in_file(file), file.path in self._gone) for file in files]

    def in_entry(self, entry: FileEntry) -> bool:
        """Return True if an entry of a file that is gone, or has such rows, has values of them."""
        if not self.sought.is_named(entry, self._partition(entry)):
            return False
        return self.in_file(entry) or entry.path in self._gone or entry.format not in READABLE

    def _partition(self, entry: FileEntry) -> Mapping[int, Any]:
        """Return the values of the columns that the entry's partition has as they are."""
        spec = self._metadata.specs().get(entry.spec_id)
        fields = spec.fields if spec and len(spec.fields) == len(entry.partition) else ()
        return {
            field.source_id: value
            for field, value in zip(fields, entry.partition, strict=False)
            if isinstance(field.transform, IdentityTransform) and value is not None
        }

    def in_snapshot(self, snapshot: Snapshot) -> bool:
        """Return True if a snapshot has such rows, deleted ones too, or values of them."""
        summary = snapshot.summary.additional_properties if snapshot.summary else {}
        # All are looked through: what can't be read is an error before anything is changed.
        found = self.in_manifests(manifests_of(self._io, snapshot))
        return any(found.values()) or self.in_summary(summary)

    def in_summary(self, summary: Mapping[str, str]) -> bool:
        """Return True if the summary of a snapshot names a partition with the values of such a row."""
        paths = (name.removeprefix(_PARTITIONS) for name in summary if name.startswith(_PARTITIONS))
        values = ([unquote_plus(part.partition("=")[2]) for part in path.split("/")] for path in paths)
        return any(map(self.sought.are_texts, values))

    def dirty_manifests(self, snapshot: Snapshot) -> list[ManifestFile]:
        """Return the manifests of a snapshot that have values of such rows in entries of removed files."""
        return [
            manifest
            for manifest in manifests_of(self._io, snapshot)
            if any(not entry.is_live and self.in_entry(entry) for entry in entries_of(self._io, manifest, self._ids))
        ]

    def in_orphan(self, path: str, size: int) -> bool:
        """Return True if a file that belongs to no snapshot has such rows or values of them, or can't be read.

        The footer of a file may be missing, whose pages have rows.
        """
        format = _FORMATS.get(name_of(path).rpartition(".")[2])
        try:
            if path.endswith(METADATA):
                return self.in_metadata(path)
            if are_changes(path):
                return any(map(self._in_changes, read_all_changes(self._io, path)))
            if format is None:
                return False
            if format == "AVRO" and (content := self._avro_kind(path)):
                return content == "manifest" and self._in_orphan_manifest(path, size)
            names = mapped_fields(self._metadata) or tuple(create_mapping_from_schema(self._metadata.schema()).root)
            return self._in_columns(_entry(path, size, format), names, others=False)
        except (SourceError, StorageError):
            return is_there(self._io, path)

    def in_metadata(self, path: str) -> bool:
        """Return True if a summary in a file of metadata has values of such rows.

        Raises:
            StorageError: If it can't be read.
        """
        snapshots = read_metadata(self._io, path).snapshots
        summaries = (snapshot.summary for snapshot in snapshots if snapshot.summary)
        return any(self.in_summary(summary.additional_properties) for summary in summaries)

    def _in_changes(self, changes: pa.RecordBatch) -> bool:
        names = changes.schema.names
        sought = self.sought.of_columns([each.field_id for each in self.sought.schema.fields if each.name in names])
        return sought is not None and len(sought.matches(pa.Table.from_batches([changes]))) > 0

    def _avro_kind(self, path: str) -> str | None:
        """Return what an Avro file of the table's metadata is: a manifest, or a list of them; None = rows."""
        with storage_errors(path, "reading"), self._io.new_input(path).open() as stream:
            content = stream.read()
        try:
            schema = JoinedBlocks(content).schema
        except (ValueError, EOFError) as error:
            raise StorageError(f"{path} can't be read: {error}") from error
        return "list" if '"manifest_path"' in schema else "manifest" if '"data_file"' in schema else None

    def _in_orphan_manifest(self, path: str, size: int) -> bool:
        manifest = ManifestFile.from_args(
            manifest_path=path,
            manifest_length=size,
            partition_spec_id=-1,
            content=ManifestContent.DATA,
            sequence_number=0,
            min_sequence_number=0,
            added_snapshot_id=0,
        )
        entries = read_manifest(self._io, manifest)
        # Its list would tell which spec it has.
        specs = self._metadata.specs()
        return any(
            self.sought.is_named(entry, self._partition(entry._replace(spec_id=spec)))
            for entry in entries
            for spec in specs
        )


def read_metadata(io: FileIO, path: str) -> TableMetadata:
    """Return what a file of metadata has.

    Raises:
        StorageError: If it can't be read.
    """
    with storage_errors(path, "reading"):
        try:
            return FromInputFile.table_metadata(io.new_input(path))
        except ValueError as error:
            raise StorageError(f"{path} can't be read: {error}") from error


@dataclass(frozen=True)
class _LookThrough:
    """Executor work: tells which of some files have such rows."""

    traces: Traces
    files: tuple[FileEntry, ...]

    def __call__(self) -> WriteResult:
        """Return what `Traces.looked_through` does as the committables."""
        return WriteResult(committables=tuple(self.traces.looked_through(self.files)))


def _entry(path: str, size: int, format: str) -> FileEntry:
    """Return the entry of a data file that no manifest has."""
    return FileEntry(1, 0, 0, 0, Content.DATA, path, format, 0, (), 0, size)
