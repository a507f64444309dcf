"""The producer of all snapshots: pyiceberg's, with exact partition values and counts of delete files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any

from pyiceberg.manifest import (
    DataFile,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriter,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import TableProperties, Transaction
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary, update_snapshot_summaries
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    SetSnapshotRefUpdate,
    UpdatesAndRequirements,
)
from pyiceberg.table.update.snapshot import (
    _ManifestMergeManager,
    _new_manifest_list_file_name,
    _SnapshotProducer,
)

from volley.errors import ConfigError
from volley.iceberg.layout.partitions import partition_order
from volley.iceberg.layout.specs import fault_of, schema_with_sources
from volley.iceberg.pyiceberg_private.access import partition_values
from volley.iceberg.pyiceberg_private.lineage import ROW_IDS_SINCE, next_row_id
from volley.iceberg.pyiceberg_private.lists import write_list
from volley.iceberg.pyiceberg_private.manifests import (
    SummaryCollector,
    manifest_writer,
)
from volley.iceberg.schema.mapping import number_in

__all__ = ["MANIFEST_ENTRIES", "Producer", "added_entry", "merges"]

_REF_SETTINGS = ("min_snapshots_to_keep", "max_snapshot_age_ms", "max_ref_age_ms")
MANIFEST_ENTRIES = 512
"""The number of entries that a manifest has, about, where entries are divided by partition."""


def added_entry(file: DataFile, snapshot_id: int) -> ManifestEntry:
    """Return the entry of a file that a snapshot adds."""
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
        producer = self._snapshot_producer
        if fault_of(producer._transaction.table_metadata, producer.spec(spec_id)) is not None:
            return manifests
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


def merges(transaction: Transaction) -> bool:
    """Return True if the table's manifests are merged while they are small."""
    return transaction.table_metadata.properties.get(TableProperties.MANIFEST_MERGE_ENABLED, "false") == "true"


def _number(properties: Mapping[str, str], name: str, default: int) -> int:
    number = number_in(properties, name, 0)
    return default if number is None else number


def _with_numbers(summary: Summary) -> Summary:
    """Return a summary without totals that are no numbers, which pyiceberg would raise an error for."""
    values = summary.additional_properties.items()
    kept = {name: text for name, text in values if text.isdecimal() or not name.startswith("total-")}
    return Summary(summary.operation, **kept)


class Producer(_SnapshotProducer[Any]):
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
                writer.add(added_entry(file, self._snapshot_id))
        return writer.to_manifest_file()

    def new_manifest_writer(self, spec: PartitionSpec) -> ManifestWriter:
        return manifest_writer(self._format_version, *self._manifest_arguments(spec))

    def _manifest_arguments(self, spec: PartitionSpec) -> tuple[Any, ...]:
        return spec, self._schema_of(spec), self.new_manifest_output(), self._snapshot_id, self._compression

    def _schema_of(self, spec: PartitionSpec) -> Schema:
        """Return a schema with the types of a spec's columns: without them, partition values would become null."""
        if spec.spec_id in self._schemas:
            return self._schemas[spec.spec_id]
        metadata = self._transaction.table_metadata
        schema, fault = schema_with_sources(metadata, spec), fault_of(metadata, spec)
        if schema is None or fault is not None:
            raise ConfigError(
                f"files of partition spec {spec.spec_id} can't be changed: {fault}",
                hint="rewrite those files with the engine that wrote them",
            )
        return self._schemas.setdefault(spec.spec_id, schema)

    @cached_property
    def _schemas(self) -> dict[int, Schema]:
        return {}

    def _merged(self, manifests: list[ManifestFile]) -> list[ManifestFile]:
        properties = self._transaction.table_metadata.properties
        size, count = TableProperties.MANIFEST_TARGET_SIZE_BYTES, TableProperties.MANIFEST_MIN_MERGE_COUNT
        return _Merges(
            _number(properties, size, TableProperties.MANIFEST_TARGET_SIZE_BYTES_DEFAULT),
            _number(properties, count, TableProperties.MANIFEST_MIN_MERGE_COUNT_DEFAULT),
            merges(self._transaction),
            self,
        ).merge_manifests(manifests)

    def _commit(self) -> UpdatesAndRequirements:
        """Return the updates.

        pyiceberg's own would drop the branch's settings for the expiry of snapshots, and writes no format version 3.
        """
        manifests, snapshot = self._manifests(), self._snapshot()
        with_ids = write_list(
            self._io.new_output(snapshot.manifest_list), self._format_version, snapshot, manifests, self._compression
        )
        if self._format_version >= ROW_IDS_SINCE:
            snapshot = snapshot.model_copy(update={"added_rows": with_ids})
        branch = str(self._target_branch)
        ref = self._transaction.table_metadata.refs.get(branch)
        head: dict[str, Any] = {
            "snapshot_id": snapshot.snapshot_id,
            "parent_snapshot_id": snapshot.parent_snapshot_id,
            "ref_name": branch,
            "type": SnapshotRefType.BRANCH,
            **{name: getattr(ref, name) for name in _REF_SETTINGS if ref},
        }
        before: dict[str, Any] = {"ref": branch, "snapshot_id": ref.snapshot_id if ref else None}
        return (AddSnapshotUpdate(snapshot=snapshot), SetSnapshotRefUpdate(**head)), (AssertRefSnapshotId(**before),)

    def _snapshot(self) -> Snapshot:
        metadata = self._transaction.table_metadata
        name = _new_manifest_list_file_name(snapshot_id=self._snapshot_id, attempt=0, commit_uuid=self.commit_uuid)
        location = self._transaction._table.location_provider().new_metadata_location(name)
        self._written_manifest_lists.append(location)
        values: dict[str, Any] = {
            "snapshot_id": self._snapshot_id,
            "parent_snapshot_id": self._parent_snapshot_id,
            "manifest_list": location,
            "sequence_number": metadata.next_sequence_number(),
            "summary": self._summary(self.snapshot_properties),
            "schema_id": metadata.current_schema_id,
            "first_row_id": next_row_id(metadata),
        }
        return Snapshot(**values)

    @property
    def _format_version(self) -> int:
        return int(self._transaction.table_metadata.format_version)

    def _summary(self, snapshot_properties: dict[str, str] | None = None) -> Summary:
        """Return the summary; pyiceberg's own counts neither delete files nor files of other partition specs."""
        metadata = self._transaction.table_metadata
        limit = TableProperties.WRITE_PARTITION_SUMMARY_LIMIT
        collector = SummaryCollector(
            _number(metadata.properties, limit, TableProperties.WRITE_PARTITION_SUMMARY_LIMIT_DEFAULT)
        )
        for file in (*self._added_data_files, *self._delete_files):
            collector.add_file(file, self._schema_of(spec := self.spec(file.spec_id)), spec)
        for file in (*self._deleted_data_files, *self._dangling):
            collector.remove_file(file, self._schema_of(spec := self.spec(file.spec_id)), spec)
        parent = metadata.snapshot_by_id(self._parent_snapshot_id) if self._parent_snapshot_id is not None else None
        # pyiceberg counts no totals for a snapshot that replaces files.
        counted = Operation.OVERWRITE if self._operation == Operation.REPLACE else self._operation
        summary = update_snapshot_summaries(
            Summary(counted, **collector.build(), **(snapshot_properties or {})),
            _with_numbers(parent.summary) if parent and parent.summary else None,
        )
        return Summary(self._operation, **summary.additional_properties)
