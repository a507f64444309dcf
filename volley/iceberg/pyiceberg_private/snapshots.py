"""Extends pyiceberg's snapshots: exact partition values, delete files, removed data files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
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
from pyiceberg.table import TableProperties, Transaction
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation, Summary, update_snapshot_summaries
from pyiceberg.table.update import SetSnapshotRefUpdate, UpdatesAndRequirements
from pyiceberg.table.update.snapshot import (
    _FastAppendFiles,
    _ManifestMergeManager,
    _OverwriteFiles,
    _SnapshotProducer,
)
from pyiceberg.utils.properties import property_as_int

from volley.iceberg.layout.partitions import partition_order
from volley.iceberg.pyiceberg_private.access import partition_values
from volley.iceberg.pyiceberg_private.entries import all_entries, file_attributes, live_entries
from volley.iceberg.pyiceberg_private.manifests import (
    DatedManifestWriter,
    DeleteManifestWriter,
    SummaryCollector,
    manifest_writer,
)
from volley.iceberg.schema.reserved import PATH_ID

__all__ = ["MANIFEST_ENTRIES", "NewManifest", "add_snapshot", "replace_manifests"]

_REF_SETTINGS = ("min_snapshots_to_keep", "max_snapshot_age_ms", "max_ref_age_ms")
MANIFEST_ENTRIES = 512
"""The number of entries that a manifest has, about, where entries are divided by partition."""


class NewManifest(NamedTuple):
    """A manifest to write.

    Args:
        content: What its files contain.
        schema: A schema with all sources of the spec.
        spec: The spec of its partitions.
        entries: Its entries, of `live_entries`.
    """

    content: ManifestContent
    schema: Schema
    spec: PartitionSpec
    entries: Sequence[ManifestEntry]


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
) -> None:
    """Write the manifests of one snapshot and add it to the transaction; it is visible once that is committed.

    Args:
        transaction: The transaction.
        added: New data files.
        deletes: New position-delete files.
        removed: Data files to remove from the table.
        snapshot_id: The snapshot's id.
        summary: Texts for the snapshot's summary.
        branch: The branch; a new one starts at main's last snapshot.
        concerned: Returns False for manifests with neither a removed file nor a delete file of just one: those stay
            as they are, and are not read.
        rewritten_at: Given, the new files have the rows of the removed ones without those that were deleted up to
            this sequence number: the snapshot replaces files, and later equality deletes apply to the new ones.
    """
    options: dict[str, Any] = {
        **{"transaction": transaction, "io": transaction._table.io},
        **{"snapshot_properties": summary, "branch": branch},
    }
    producer: _SnapshotProducer[Any]
    if rewritten_at is not None:
        producer = _Rewrite(rewritten_at, deletes, concerned, Operation.REPLACE, **options)
    elif removed or deletes:
        producer = _RowChanges(deletes, concerned, Operation.OVERWRITE, **options)
    else:
        producer = (_MergedAppends if _merges(transaction) else _Appends)(Operation.APPEND, **options)
    producer._snapshot_id = snapshot_id
    if branch not in transaction.table_metadata.refs:
        # pyiceberg would start the branch with an empty table.
        producer._parent_snapshot_id = transaction.table_metadata.current_snapshot_id
    for file in added:
        producer.append_data_file(file)
    for file in removed:
        producer.delete_data_file(file)
    producer.commit()


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
        transaction: The transaction.
        kept: The manifests that stay.
        rewritten: The new manifests; their entries keep their snapshot ids and sequence numbers.
        snapshot_id: The snapshot's id.
        summary: Texts for the snapshot's summary; totals are carried over.
        branch: The branch.
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


def _only_target(deletes: DataFile) -> str | None:
    """Return the only data file that a delete file refers to; None if it may refer to several."""
    if referenced := file_attributes(deletes)["referenced_file"]:
        return str(referenced)
    low, high = (bounds.get(PATH_ID) for bounds in (deletes.lower_bounds or {}, deletes.upper_bounds or {}))
    return low.decode() if low is not None and low == high else None


def _added(file: DataFile, snapshot_id: int) -> ManifestEntry:
    return ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, snapshot_id=snapshot_id, data_file=file)


def _clustered(files: Sequence[DataFile]) -> list[Sequence[DataFile]]:
    """Return the data files of each new manifest; very many are divided by partition, so that filters skip most."""
    manifests = round(len(files) / MANIFEST_ENTRIES)
    if manifests < 2 or not partition_values(files[0].partition):
        return [files] if files else []
    ordered = sorted(files, key=lambda file: partition_order(file.partition))
    borders = [len(files) * number // manifests for number in range(manifests + 1)]
    return [ordered[start:end] for start, end in pairwise(borders)]


class _Merges(_ManifestMergeManager[Any]):
    """Merges small manifests up to `MANIFEST_ENTRIES` entries.

    pyiceberg merges up to 8 MB. That may be 100,000 entries, all of which the removal of one file writes anew.
    """

    def _merge_group(
        self, first_manifest: ManifestFile, spec_id: int, manifests: list[ManifestFile]
    ) -> list[ManifestFile]:
        merged: list[ManifestFile] = []
        for group in _packed(manifests, self._target_size_bytes):
            is_growing = first_manifest in group and len(group) < self._min_count_to_merge
            merged += group if is_growing or len(group) == 1 else [self._create_manifest(spec_id, group)]
        return merged


def _packed(manifests: Sequence[ManifestFile], target_bytes: int) -> list[list[ManifestFile]]:
    """Return neighbours in groups of at most `MANIFEST_ENTRIES` entries and `target_bytes`; the newest may be small."""
    groups: list[list[ManifestFile]] = []
    entries = size = 0
    for manifest in reversed(manifests):
        count = (manifest.added_files_count or 0) + (manifest.existing_files_count or 0)
        entries, size = entries + count, size + manifest.manifest_length
        if not groups or entries > MANIFEST_ENTRIES or size > target_bytes:
            groups.append([])
            entries, size = count, manifest.manifest_length
        groups[-1].append(manifest)
    return [group[::-1] for group in reversed(groups)]


def _merges(transaction: Transaction) -> bool:
    return transaction.table_metadata.properties.get(TableProperties.MANIFEST_MERGE_ENABLED, "false") == "true"


class _Snapshot(_SnapshotProducer[Any]):
    """A snapshot whose manifests have exact partition values."""

    _delete_files: Sequence[DataFile] = ()
    _dangling: Sequence[DataFile] = ()
    _new_manifests: Sequence[ManifestFile] = ()

    def _manifests(self) -> list[ManifestFile]:
        """Return the manifests; pyiceberg itself writes one of all added files, in the order in which they come."""
        added, self._added_data_files = self._added_data_files, []
        try:
            self._new_manifests = [self._manifest_of(files) for files in _clustered(added)]
            return super()._manifests()
        finally:
            self._added_data_files = added

    def _process_manifests(self, manifests: list[ManifestFile]) -> list[ManifestFile]:
        return super()._process_manifests([*self._new_manifests, *manifests])

    def _manifest_of(self, added: Sequence[DataFile]) -> ManifestFile:
        with self.new_manifest_writer(self._transaction.table_metadata.spec()) as writer:
            for file in added:
                writer.add(_added(file, self._snapshot_id))
        return writer.to_manifest_file()

    def new_manifest_writer(self, spec: PartitionSpec) -> ManifestWriter:
        return manifest_writer(self._transaction.table_metadata.format_version, *self._manifest_arguments(spec))

    def _manifest_arguments(self, spec: PartitionSpec) -> tuple[Any, ...]:
        return spec, self.schema(), self.new_manifest_output(), self._snapshot_id, self._compression

    def _merged(self, manifests: list[ManifestFile]) -> list[ManifestFile]:
        properties = self._transaction.table_metadata.properties
        size, count = TableProperties.MANIFEST_TARGET_SIZE_BYTES, TableProperties.MANIFEST_MIN_MERGE_COUNT
        return _Merges(
            property_as_int(properties, size, TableProperties.MANIFEST_TARGET_SIZE_BYTES_DEFAULT) or 0,
            property_as_int(properties, count, TableProperties.MANIFEST_MIN_MERGE_COUNT_DEFAULT) or 0,
            _merges(self._transaction),
            self,
        ).merge_manifests(manifests)

    def _commit(self) -> UpdatesAndRequirements:
        """Return the updates; pyiceberg's own would drop the branch's settings for the expiry of snapshots."""
        updates, requirements = super()._commit()
        ref = self._transaction.table_metadata.refs.get(str(self._target_branch))
        settings = {name: getattr(ref, name) for name in _REF_SETTINGS} if ref else {}
        kept = (
            update.model_copy(update=settings) if isinstance(update, SetSnapshotRefUpdate) else update
            for update in updates
        )
        return tuple(kept), requirements

    def _summary(self, snapshot_properties: dict[str, str] | None = None) -> Summary:
        """Return the summary; pyiceberg's own counts neither delete files nor files of other partition specs."""
        metadata = self._transaction.table_metadata
        limit = TableProperties.WRITE_PARTITION_SUMMARY_LIMIT
        collector = SummaryCollector(
            int(metadata.properties.get(limit, TableProperties.WRITE_PARTITION_SUMMARY_LIMIT_DEFAULT))
        )
        for file in (*self._added_data_files, *self._delete_files):
            collector.add_file(file, self.schema(), self.spec(file.spec_id))
        for file in (*self._deleted_data_files, *self._dangling):
            collector.remove_file(file, self.schema(), self.spec(file.spec_id))
        parent = metadata.snapshot_by_id(self._parent_snapshot_id) if self._parent_snapshot_id is not None else None
        # pyiceberg counts no totals for a snapshot that replaces files.
        counted = Operation.OVERWRITE if self._operation == Operation.REPLACE else self._operation
        summary = update_snapshot_summaries(
            Summary(counted, **collector.build(), **(snapshot_properties or {})), parent.summary if parent else None
        )
        return Summary(self._operation, **summary.additional_properties)


class _Appends(_Snapshot, _FastAppendFiles):
    """A snapshot that adds data files in a new manifest."""


class _MergedAppends(_Snapshot, _FastAppendFiles):
    """A snapshot that adds data files and merges small manifests."""

    def _process_manifests(self, manifests: list[ManifestFile]) -> list[ManifestFile]:
        processed = super()._process_manifests(manifests)
        data = self._merged([manifest for manifest in processed if manifest.content == ManifestContent.DATA])
        return [*data, *(manifest for manifest in processed if manifest.content != ManifestContent.DATA)]


class _RowChanges(_Snapshot, _OverwriteFiles):
    """A snapshot that adds data files and delete files and removes data files; merges manifests like appends.

    Args:
        deletes: The new delete files.
        concerned: Returns False for manifests that the removed files don't concern.
        arguments: The arguments of pyiceberg's producer.
    """

    def __init__(
        self,
        deletes: Sequence[DataFile],
        concerned: Callable[[FileIO, ManifestFile], bool],
        *arguments: Any,
        **options: Any,
    ) -> None:
        super().__init__(*arguments, **options)
        self._delete_files = deletes
        self._concerned = concerned
        self._dangling = []
        self._of_deletes = False

    def new_manifest_writer(self, spec: PartitionSpec) -> ManifestWriter:
        if not self._of_deletes:
            return super().new_manifest_writer(spec)
        return DeleteManifestWriter(*self._manifest_arguments(spec))

    def _existing_manifests(self) -> list[ManifestFile]:
        branch = self._target_branch
        if branch not in self._transaction.table_metadata.refs:
            self._target_branch = MAIN_BRANCH
        try:
            return super()._existing_manifests()
        finally:
            self._target_branch = branch

    def _build_delete_files_partition_predicate(self) -> None:
        """Do nothing: pyiceberg's nested expression over all partitions hits the recursion limit at a thousand."""

    def _build_manifest_evaluator(self, spec_id: int) -> Callable[[ManifestFile], bool]:
        return lambda manifest: bool(self._deleted_data_files) and self._concerned(self._io, manifest)

    def _process_manifests(self, manifests: list[ManifestFile]) -> list[ManifestFile]:
        used = [manifest for manifest in (*self._new_manifests, *manifests) if self._is_needed(manifest)]
        data = self._merged([manifest for manifest in used if manifest.content == ManifestContent.DATA])
        self._of_deletes = True
        deletes = [self._without_dangling(manifest) for manifest in used if manifest.content != ManifestContent.DATA]
        return [*data, *self._merged([*self._new_delete_manifests(), *deletes])]

    def _without_dangling(self, manifest: ManifestFile) -> ManifestFile:
        """Return the manifest without position deletes of data files that this snapshot removes."""
        removed = {file.file_path for file in self._deleted_data_files}
        has_dangling = removed and self._concerned(self._io, manifest)
        entries = live_entries(self._io, manifest) if has_dangling else []
        dangling = {entry.data_file for entry in entries if _only_target(entry.data_file) in removed}
        if not dangling:
            return manifest
        self._dangling = [*self._dangling, *dangling]
        with self.new_manifest_writer(self.spec(manifest.partition_spec_id)) as writer:
            for entry in entries:
                is_dangling = entry.data_file in dangling
                writer.add_entry(
                    ManifestEntry.from_args(
                        status=ManifestEntryStatus.DELETED if is_dangling else ManifestEntryStatus.EXISTING,
                        snapshot_id=self._snapshot_id if is_dangling else entry.snapshot_id,
                        sequence_number=entry.sequence_number,
                        file_sequence_number=entry.file_sequence_number,
                        data_file=entry.data_file,
                    )
                )
        return writer.to_manifest_file()

    def fetch_manifest_entry(self, manifest: ManifestFile, discard_deleted: bool = True) -> list[ManifestEntry]:
        if manifest.content == ManifestContent.DATA:
            return super().fetch_manifest_entry(manifest, discard_deleted)
        # With the data file that each delete file refers to.
        return live_entries(self._io, manifest) if discard_deleted else all_entries(self._io, manifest)

    def _is_needed(self, manifest: ManifestFile) -> bool:
        own = manifest.added_snapshot_id == self._snapshot_id
        return own or manifest.has_added_files() or manifest.has_existing_files()

    def _new_delete_manifests(self) -> Iterator[ManifestFile]:
        for spec_id in sorted({file.spec_id for file in self._delete_files}):
            with self.new_manifest_writer(self.spec(spec_id)) as writer:
                for file in self._delete_files:
                    if file.spec_id == spec_id:
                        writer.add(_added(file, self._snapshot_id))
            yield writer.to_manifest_file()


class _Replaced(_Snapshot):
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
        if manifest.content == ManifestContent.DELETES:
            return DeleteManifestWriter(*arguments)
        return manifest_writer(self._transaction.table_metadata.format_version, *arguments)

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


class _Rewrite(_RowChanges):
    """A snapshot with the same rows in other files.

    Args:
        sequence_number: The data sequence number of the new files.
        arguments: The arguments of `_RowChanges`.
    """

    def __init__(self, sequence_number: int, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._sequence_number = sequence_number

    def new_manifest_writer(self, spec: PartitionSpec) -> ManifestWriter:
        if self._of_deletes or self._transaction.table_metadata.format_version == 1:
            return super().new_manifest_writer(spec)
        return DatedManifestWriter(self._sequence_number, *self._manifest_arguments(spec))
