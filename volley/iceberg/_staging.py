"""What one epoch's snapshot changes in a table, by commit mode, and the manifests that say so."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyiceberg.expressions import AlwaysTrue
from pyiceberg.manifest import (
    DataFile,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriter,
)
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import Table, TableProperties, Transaction
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation, Snapshot, Summary, update_snapshot_summaries
from pyiceberg.table.update.snapshot import (
    _FastAppendFiles,
    _ManifestMergeManager,
    _MergeAppendFiles,
    _OverwriteFiles,
    _SnapshotProducer,
)
from pyiceberg.transforms import IdentityTransform
from pyiceberg.utils.properties import property_as_int

from volley.errors import CommitError, ConfigError
from volley.iceberg._manifests import DeleteManifestWriter, SummaryCollector, manifest_writer
from volley.iceberg._partitions import exact, partition_value, path_of
from volley.iceberg.modes import Overwrite
from volley.iceberg.writer import WrittenFile

__all__ = ["Changes", "check_named", "head_of", "overwrite", "stage"]


_PATH_ID = 2147483546
"""The field id of ``file_path`` in position deletes."""


@dataclass(frozen=True)
class Changes:
    """What a snapshot adds and removes.

    Args:
        added: New data files.
        deletes: New files with positions of rows that are no more.
        removed: Data files of the table that are no more.
    """

    added: Sequence[WrittenFile] = ()
    deletes: Sequence[WrittenFile] = ()
    removed: Sequence[DataFile] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.deletes or self.removed)

    @property
    def written(self) -> tuple[WrittenFile, ...]:
        """The new files of both kinds."""
        return (*self.added, *self.deletes)


def stage(transaction: Transaction, changes: Changes, snapshot_id: int, summary: dict[str, str], branch: str) -> None:
    """Write the manifests of one snapshot and add it to the transaction; nothing is visible yet."""
    producer = _producer(transaction, changes, summary, branch)
    producer._snapshot_id = snapshot_id
    if branch not in transaction.table_metadata.refs:
        # A new branch begins where main is; pyiceberg would begin an empty one.
        producer._parent_snapshot_id = transaction.table_metadata.current_snapshot_id
    for added in changes.added:
        producer.append_data_file(added.data_file)
    for removed in changes.removed:
        producer.delete_data_file(removed)
    producer.commit()


def overwrite(mode: Overwrite, files: Sequence[WrittenFile], branch: str, table: Table) -> Changes:
    """The files in place of those that the mode says, of all that the table has now.

    Args:
        mode: Which to replace.
        files: The epoch's data files.
        branch: The branch that is written.
        table: The table as it was just loaded.

    Raises:
        CommitError: If a row belongs to no named partition, or an older file to no partition of today's spec.
    """
    if not mode.by_partition:
        return Changes(files, removed=list(_live(table, branch)))
    if mode.named:
        wanted = _Partitions(table, [_named(table, dict(each)) for each in mode.named])
        _check_inside(table, mode, wanted, files)
    else:
        whole = [field.field_id for field in table.spec().fields]
        wanted = _Partitions(table, [_values(table, file.data_file, whole) for file in files])
    return Changes(files, removed=[file for file in _live(table, branch) if wanted.have(file)])


def check_named(mode: Overwrite, table: Table) -> None:
    """Find out, before a row is written, that the partitions which a mode names can exist.

    Raises:
        ConfigError: If the table is not partitioned so.
    """
    if mode.by_partition and table.spec().is_unpartitioned():
        raise ConfigError(
            f"{mode!r} needs partitions; table {_name(table)} has none", hint="Overwrite(), or partition it"
        )
    for each in mode.named:
        _named(table, dict(each))


def head_of(table: Table, branch: str) -> Snapshot | None:
    """The snapshot that the next one of a branch is made from: a new branch begins where main is."""
    if branch in table.metadata.refs:
        return table.metadata.snapshot_by_name(branch)
    return table.current_snapshot()


_Partition = dict[int, Any]
"""Values of a partition by field id, as `exact` compares them; a field that is not there may have any value."""


class _Partitions:
    """Some partitions of a table.

    Args:
        table: The table.
        partitions: Their values.
    """

    def __init__(self, table: Table, partitions: Iterable[_Partition]) -> None:
        self._table = table
        self._known: dict[tuple[int, ...], set[tuple[Any, ...]]] = {}
        for each in partitions:
            self._known.setdefault(tuple(each), set()).add(tuple(each.values()))

    def have(self, file: DataFile) -> bool:
        """Whether a file belongs to one of them."""
        return any(
            tuple(_values(self._table, file, fields).values()) in values for fields, values in self._known.items()
        )


def _live(table: Table, branch: str) -> Iterator[DataFile]:
    head = head_of(table, branch)
    for manifest in head.manifests(table.io) if head else ():
        if manifest.content == ManifestContent.DATA:
            for entry in manifest.fetch_manifest_entry(table.io):
                yield entry.data_file


def _named(table: Table, named: dict[str, object]) -> _Partition:
    return dict(_field_value(table, name, value) for name, value in named.items())


def _field_value(table: Table, name: str, value: object) -> tuple[int, Any]:
    spec, schema = table.spec(), table.schema()
    for field in spec.fields:
        column = schema.find_column_name(field.source_id)
        if name == field.name or (name == column and isinstance(field.transform, IdentityTransform)):
            return field.field_id, exact(_converted(table, field, value))
    known = ", ".join(field.name for field in spec.fields) or "none"
    raise ConfigError(f"table {_name(table)} is not partitioned by {name!r}", hint=f"its partition fields: {known}")


def _converted(table: Table, field: PartitionField, value: Any) -> Any:
    if value is None:
        return None
    kind = field.transform.result_type(table.schema().find_type(field.source_id))
    try:
        return partition_value(kind, value)
    except (ArithmeticError, TypeError, ValueError, struct.error) as error:
        raise ConfigError(f"{value!r} is no value of the partition field {field.name!r}", hint=f"a {kind}") from error


def _values(table: Table, file: DataFile, wanted: Sequence[int]) -> _Partition:
    """What a file's partition has in these fields; field ids tell source and transform across specs."""
    spec = table.specs()[file.spec_id]
    positions = {field.field_id: position for position, field in enumerate(spec.fields)}
    if missing := [each for each in wanted if each not in positions]:
        raise CommitError(
            f"data file {file.file_path} was written under partition spec {file.spec_id} "
            f"({_fields(spec)}), which does not tell the fields {missing} of today's "
            f"({_fields(table.spec())})",
            hint="rewrite the table's older files under its present spec, or use Overwrite() for the whole table",
        )
    return {each: exact(file.partition[positions[each]]) for each in wanted}


def _check_inside(table: Table, mode: Overwrite, wanted: _Partitions, files: Sequence[WrittenFile]) -> None:
    for file in files:
        if not wanted.have(file.data_file):
            path = path_of(table.spec(), table.schema(), file.data_file.partition)
            raise CommitError(
                f"the epoch has rows of partition {path} of table {_name(table)}, which {mode!r} does not name",
                hint="filter those rows out, or name their partition too; nothing was committed",
            )


def _fields(spec: PartitionSpec) -> str:
    return ", ".join(field.name for field in spec.fields) or "none"


def _name(table: Table) -> str:
    return ".".join(table.name())


def _producer(
    transaction: Transaction, changes: Changes, summary: dict[str, str], branch: str
) -> _SnapshotProducer[Any]:
    rest: dict[str, Any] = {
        **{"transaction": transaction, "io": transaction._table.io},
        **{"snapshot_properties": summary, "branch": branch},
    }
    if changes.removed or changes.deletes:
        return _RowChanges(changes.deletes, Operation.OVERWRITE, **rest)
    return (_MergedAppends if _merges(transaction) else _Appends)(Operation.APPEND, **rest)


def _only_target(deletes: DataFile) -> str | None:
    """The one data file whose positions a delete file has, by its bounds; None if it may have those of several."""
    low, high = (bounds.get(_PATH_ID) for bounds in (deletes.lower_bounds or {}, deletes.upper_bounds or {}))
    return low.decode() if low is not None and low == high else None


def _merges(transaction: Transaction) -> bool:
    return transaction.table_metadata.properties.get(TableProperties.MANIFEST_MERGE_ENABLED, "false") == "true"


class _Snapshot(_SnapshotProducer[Any]):
    """A snapshot whose manifests keep partition values as they are."""

    _delete_files: Sequence[DataFile] = ()
    _dangling: Sequence[DataFile] = ()

    def new_manifest_writer(self, spec: PartitionSpec) -> ManifestWriter:
        return manifest_writer(self._transaction.table_metadata.format_version, *self._manifest_arguments(spec))

    def _manifest_arguments(self, spec: PartitionSpec) -> tuple[Any, ...]:
        return spec, self.schema(), self.new_manifest_output(), self._snapshot_id, self._compression

    def _summary(self, snapshot_properties: dict[str, str] | None = None) -> Summary:
        """pyiceberg's own knows neither delete files nor more than one partition spec."""
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
        return update_snapshot_summaries(
            Summary(self._operation, **collector.build(), **(snapshot_properties or {})),
            parent.summary if parent else None,
        )


class _Appends(_Snapshot, _FastAppendFiles):
    """One snapshot that adds data files, in a manifest of its own."""


class _MergedAppends(_Snapshot, _MergeAppendFiles):
    """One snapshot that adds data files and merges small manifests."""


class _RowChanges(_Snapshot, _OverwriteFiles):
    """One snapshot that adds data files and delete files and removes data files; manifests are merged as in appends."""

    def __init__(self, deletes: Sequence[WrittenFile], *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._delete_files = [file.data_file for file in deletes]
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
        # pyiceberg's own is one deep expression over all partitions, and recursion ends at a thousand of them.
        for spec_id in {file.spec_id for file in self._deleted_data_files}:
            self.partition_filters[spec_id] = AlwaysTrue()

    def _process_manifests(self, manifests: list[ManifestFile]) -> list[ManifestFile]:
        used = [each for each in manifests if self._is_needed(each)]
        data = self._merged([each for each in used if each.content == ManifestContent.DATA])
        self._of_deletes = True
        older = [self._without_dangling(each) for each in used if each.content != ManifestContent.DATA]
        return [*data, *self._merged([*self._new_delete_manifests(), *older])]

    def _without_dangling(self, manifest: ManifestFile) -> ManifestFile:
        """The manifest, in which the position deletes of data files that this snapshot removes are removed too."""
        removed = {file.file_path for file in self._deleted_data_files}
        entries = manifest.fetch_manifest_entry(self._io, discard_deleted=True) if removed else []
        dangling = {entry.data_file for entry in entries if _only_target(entry.data_file) in removed}
        if not dangling:
            return manifest
        self._dangling = [*self._dangling, *dangling]
        with self.new_manifest_writer(self.spec(manifest.partition_spec_id)) as writer:
            for entry in entries:
                gone = entry.data_file in dangling
                writer.add_entry(
                    ManifestEntry.from_args(
                        status=ManifestEntryStatus.DELETED if gone else ManifestEntryStatus.EXISTING,
                        snapshot_id=self._snapshot_id if gone else entry.snapshot_id,
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
                        writer.add(
                            ManifestEntry.from_args(
                                status=ManifestEntryStatus.ADDED, snapshot_id=self._snapshot_id, data_file=file
                            )
                        )
            yield writer.to_manifest_file()

    def _merged(self, manifests: list[ManifestFile]) -> list[ManifestFile]:
        properties = self._transaction.table_metadata.properties
        size, count = TableProperties.MANIFEST_TARGET_SIZE_BYTES, TableProperties.MANIFEST_MIN_MERGE_COUNT
        return _ManifestMergeManager(
            property_as_int(properties, size, TableProperties.MANIFEST_TARGET_SIZE_BYTES_DEFAULT) or 0,
            property_as_int(properties, count, TableProperties.MANIFEST_MIN_MERGE_COUNT_DEFAULT) or 0,
            _merges(self._transaction),
            self,
        ).merge_manifests(manifests)
