"""Extends pyiceberg's snapshots: exact partition values, delete files, removed files, other manifests of the same."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    DataFile,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriter,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Transaction
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update.snapshot import (
    _FastAppendFiles,
    _OverwriteFiles,
    _SnapshotProducer,
)

from volley.iceberg.pyiceberg_private.entries import file_attributes, live_entries, without_bounds
from volley.iceberg.pyiceberg_private.lists import written_here
from volley.iceberg.pyiceberg_private.manifests import manifest_writer
from volley.iceberg.pyiceberg_private.producer import Producer, added_entry, merges
from volley.iceberg.schema.types import PATH_ID

__all__ = ["NewManifest", "add_empty_snapshot", "add_snapshot", "replace_manifests", "targets_of_vectors"]


def _any(io: FileIO, manifest: ManifestFile) -> bool:
    return True


def add_snapshot(
    transaction: Transaction,
    *,
    added: Sequence[DataFile],
    deletes: Sequence[DataFile],
    removed: Sequence[DataFile],
    snapshot_id: int,
    summary: dict[str, str],
    branch: str,
    concerned: Callable[[FileIO, ManifestFile], bool] = _any,
    rewritten_at: int | None = None,
    removed_deletes: Collection[str] = (),
    origin: str | None = MAIN_BRANCH,
    forgets_bounds: bool = False,
) -> None:
    """Write the manifests of one snapshot and add it to the transaction; it is visible once that is committed.

    Args:
        branch: The branch; a new one starts at the last snapshot of `origin`.
        concerned: Returns False for manifests with neither a removed file nor a delete file of just one: those stay
            as they are, and are not read.
        rewritten_at: Given, the new files have the rows of the removed ones without those that were deleted up to
            this sequence number: the snapshot replaces files, and later equality deletes apply to the new ones.
        origin: A branch; None = a new branch starts empty.
        forgets_bounds: True leaves out the bounds of removed files, which are values of their rows.
    """
    options: dict[str, Any] = {
        **{"transaction": transaction, "io": transaction._table.io},
        **{"snapshot_properties": summary, "branch": branch},
    }
    producer: _SnapshotProducer[Any]
    is_new = branch not in transaction.table_metadata.refs
    if is_new and origin is None:
        producer = _FirstApart(Operation.APPEND, **options)
    elif rewritten_at is not None:
        producer = _FileRewrite(rewritten_at, deletes, concerned, removed_deletes, Operation.REPLACE, **options)
    elif removed or deletes:
        producer = _RowChanges(deletes, concerned, removed_deletes, Operation.OVERWRITE, **options)
    else:
        producer = (_MergedAppends if merges(transaction) else _Appends)(Operation.APPEND, **options)
    producer._snapshot_id = snapshot_id
    if isinstance(producer, _RowChanges):
        producer._forgets_bounds = forgets_bounds
    if is_new:
        # pyiceberg would start the branch with an empty table, and has no way to make the branch first.
        metadata = transaction._table.metadata if origin is None else transaction.table_metadata
        start = metadata.snapshot_by_name(origin or MAIN_BRANCH)
        producer._parent_snapshot_id = start.snapshot_id if start else None
        if isinstance(producer, _RowChanges):
            producer._origin = origin or MAIN_BRANCH
    for file in added:
        producer.append_data_file(file)
    for file in removed:
        producer.delete_data_file(file)
    producer.commit()


def add_empty_snapshot(transaction: Transaction, branch: str = MAIN_BRANCH, **summary: str) -> None:
    """Add a snapshot without changes to a transaction; pyiceberg's own append writes no format version 3."""
    add_snapshot(
        transaction,
        added=(),
        deletes=(),
        removed=(),
        snapshot_id=transaction.table_metadata.new_snapshot_id(),
        summary=summary,
        branch=branch,
    )


def targets_of_vectors(deletes: Iterable[DataFile]) -> set[str]:
    """Return the data files of deletion vectors: each takes the place of all deletes of its file alone."""
    vectors = (attributes for attributes in map(file_attributes, deletes) if attributes["blob_offset"] is not None)
    return {str(attributes["referenced_file"]) for attributes in vectors}


def _only_target(deletes: DataFile) -> str | None:
    """Return the only data file that a delete file refers to; None if it may refer to several."""
    if referenced := file_attributes(deletes)["referenced_file"]:
        return str(referenced)
    low, high = (bounds.get(PATH_ID) for bounds in (deletes.lower_bounds or {}, deletes.upper_bounds or {}))
    return low.decode() if low is not None and low == high else None


class _Appends(Producer, _FastAppendFiles):
    """A snapshot that adds data files in a new manifest."""

    def _existing_manifests(self) -> list[ManifestFile]:
        metadata, parent_id = self._transaction.table_metadata, self._parent_snapshot_id
        parent = metadata.snapshot_by_id(parent_id) if parent_id is not None else None
        known = written_here(parent.manifest_list) if parent else None
        if known is None:
            return super()._existing_manifests()
        return [manifest for manifest in known if manifest.has_added_files() or manifest.has_existing_files()]


class _FirstApart(_Appends):
    """The first snapshot of a branch that has none of the rows of its parent."""

    def _existing_manifests(self) -> list[ManifestFile]:
        return []

    def _summary(self, snapshot_properties: dict[str, str] | None = None) -> Summary:
        parent, self._parent_snapshot_id = self._parent_snapshot_id, None
        try:
            return super()._summary(snapshot_properties)
        finally:
            self._parent_snapshot_id = parent


class _MergedAppends(_Appends):
    """A snapshot that adds data files and merges small manifests."""

    def _process_manifests(self, manifests: list[ManifestFile]) -> list[ManifestFile]:
        processed = super()._process_manifests(manifests)
        data = self._merged([manifest for manifest in processed if manifest.content == ManifestContent.DATA])
        return [*data, *(manifest for manifest in processed if manifest.content != ManifestContent.DATA)]


class _RowChanges(Producer, _OverwriteFiles):
    """A snapshot that adds data files and delete files and removes data files; merges manifests like appends."""

    _origin = MAIN_BRANCH
    _forgets_bounds = False

    def __init__(
        self,
        deletes: Sequence[DataFile],
        concerned: Callable[[FileIO, ManifestFile], bool],
        removed_deletes: Collection[str],
        *arguments: Any,
        **options: Any,
    ) -> None:
        super().__init__(*arguments, **options)
        self._delete_files = deletes
        self._concerned = concerned
        self._removed_deletes = removed_deletes
        self._dangling = []
        self._of_deletes = False

    def new_manifest_writer(self, spec: PartitionSpec) -> ManifestWriter:
        return manifest_writer(self._format_version, *self._manifest_arguments(spec), of_deletes=self._of_deletes)

    def _existing_manifests(self) -> list[ManifestFile]:
        branch = self._target_branch
        if branch not in self._transaction.table_metadata.refs:
            self._target_branch = self._origin
        try:
            return super()._existing_manifests()
        finally:
            self._target_branch = branch

    def _build_delete_files_partition_predicate(self) -> None:
        """Do nothing: pyiceberg's nested expression over all partitions hits the recursion limit at a thousand."""

    def _build_manifest_evaluator(self, spec_id: int) -> Callable[[ManifestFile], bool]:
        return lambda manifest: bool(self._deleted_data_files) and self._concerned(self._io, manifest)

    def _deleted_entries(self) -> list[ManifestEntry]:
        return [self._removed(entry) for entry in super()._deleted_entries()]

    def _removed(self, entry: ManifestEntry) -> ManifestEntry:
        return without_bounds(entry) if self._forgets_bounds else entry

    def _process_manifests(self, manifests: list[ManifestFile]) -> list[ManifestFile]:
        used = [manifest for manifest in (*self._new_manifests, *manifests) if self._is_needed(manifest)]
        data = self._merged([manifest for manifest in used if manifest.content == ManifestContent.DATA])
        self._of_deletes = True
        deletes = [self._without_dangling(manifest) for manifest in used if manifest.content != ManifestContent.DATA]
        return [*data, *self._merged([*self._new_delete_manifests(), *deletes])]

    def _without_dangling(self, manifest: ManifestFile) -> ManifestFile:
        """Return the manifest without removed delete files, and those of data files alone that are removed or have a
        new deletion vector."""
        removed = {file.file_path for file in self._deleted_data_files}.union(self._removed_deletes)
        without = removed.union(targets_of_vectors(self._delete_files))
        entries = live_entries(self._io, manifest) if without and self._concerned(self._io, manifest) else []
        # By number: the vectors of a Puffin file have one path, by which pyiceberg compares files.
        dangling = {
            number
            for number, file in enumerate(entry.data_file for entry in entries)
            if file.file_path in removed or _only_target(file) in without
        }
        if not dangling:
            return manifest
        self._dangling = [*self._dangling, *(entries[number].data_file for number in sorted(dangling))]
        with self.new_manifest_writer(self.spec(manifest.partition_spec_id)) as writer:
            for number, entry in enumerate(entries):
                entry = self._removed(entry) if number in dangling else entry
                writer.add_entry(
                    ManifestEntry.from_args(
                        status=ManifestEntryStatus.DELETED if number in dangling else ManifestEntryStatus.EXISTING,
                        snapshot_id=self._snapshot_id if number in dangling else entry.snapshot_id,
                        sequence_number=entry.sequence_number,
                        file_sequence_number=entry.file_sequence_number,
                        data_file=entry.data_file,
                    )
                )
        return writer.to_manifest_file()

    def _is_needed(self, manifest: ManifestFile) -> bool:
        own = manifest.added_snapshot_id == self._snapshot_id
        return own or manifest.has_added_files() or manifest.has_existing_files()

    def _new_delete_manifests(self) -> Iterator[ManifestFile]:
        for spec_id in sorted({file.spec_id for file in self._delete_files}):
            with self.new_manifest_writer(self.spec(spec_id)) as writer:
                for file in self._delete_files:
                    if file.spec_id == spec_id:
                        writer.add(added_entry(file, self._snapshot_id))
            yield writer.to_manifest_file()


class _FileRewrite(_RowChanges):
    """A snapshot with the same rows in other files."""

    def __init__(self, sequence_number: int, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._sequence_number = sequence_number

    def new_manifest_writer(self, spec: PartitionSpec) -> ManifestWriter:
        if self._of_deletes:
            return super().new_manifest_writer(spec)
        arguments = self._manifest_arguments(spec)
        return manifest_writer(self._format_version, *arguments, rewritten_at=self._sequence_number)


class NewManifest(NamedTuple):
    """A manifest to write.

    Args:
        schema: A schema with all sources of the spec.
        entries: Its entries, of `live_entries`.
    """

    content: ManifestContent
    schema: Schema
    spec: PartitionSpec
    entries: Sequence[ManifestEntry]


def replace_manifests(
    transaction: Transaction,
    *,
    kept: Sequence[ManifestFile],
    rewritten: Iterable[NewManifest],
    snapshot_id: int,
    summary: dict[str, str],
    branch: str,
) -> list[ManifestFile]:
    """Add a snapshot to the transaction that has the same files in other manifests; return the new manifests.

    Args:
        rewritten: The new manifests; their entries keep their snapshot ids and sequence numbers.
        summary: Texts for the snapshot's summary; totals are carried over.
    """
    producer = _Replaced(
        kept,
        rewritten,
        Operation.REPLACE,
        transaction=transaction,
        io=transaction._table.io,
        snapshot_properties=summary,
        branch=branch,
    )
    producer._snapshot_id = snapshot_id
    producer.commit()
    return producer.written


class _Replaced(Producer):
    """A snapshot with the same files as its parent, in other manifests."""

    def __init__(
        self,
        kept: Sequence[ManifestFile],
        rewritten: Iterable[NewManifest],
        *args: Any,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._kept = kept
        self._rewritten = rewritten
        self.written: list[ManifestFile] = []

    def _manifests(self) -> list[ManifestFile]:
        for manifest in self._rewritten:
            with self._writer(manifest) as writer:
                for entry in manifest.entries:
                    writer.existing(entry)
            self.written.append(writer.to_manifest_file())
        return [*self.written, *self._kept]

    def _writer(self, manifest: NewManifest) -> ManifestWriter:
        output = self.new_manifest_output()
        arguments = manifest.spec, manifest.schema, output, self._snapshot_id, self._compression
        return manifest_writer(self._format_version, *arguments, of_deletes=manifest.content == ManifestContent.DELETES)

    def _existing_manifests(self) -> list[ManifestFile]:
        return list(self._kept)

    def _deleted_entries(self) -> list[ManifestEntry]:
        return []

    def _summary(self, snapshot_properties: dict[str, str] | None = None) -> Summary:
        """Return the summary; pyiceberg carries no totals over to a snapshot that replaces another."""
        assert self._parent_snapshot_id is not None
        parent = self._transaction.table_metadata.snapshot_by_id(self._parent_snapshot_id)
        values = parent.summary.additional_properties if parent and parent.summary else {}
        totals = {name: value for name, value in values.items() if name.startswith("total-")}
        return Summary(Operation.REPLACE, **totals, **(snapshot_properties or {}))
