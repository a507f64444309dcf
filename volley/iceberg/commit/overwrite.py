"""Computes the files that an overwriting epoch replaces."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from pyiceberg.manifest import DataFile, ManifestContent
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.transforms import IdentityTransform

from volley.contracts.epoch import Epoch
from volley.errors import CommitError, ConfigError
from volley.iceberg.commit.marks import snapshot_id_of, snapshots_of_run
from volley.iceberg.layout.partitions import exact, partition_value, path_of
from volley.iceberg.modes import Overwrite
from volley.iceberg.read.history import added_files, head_of
from volley.iceberg.write.written import SnapshotFiles, WrittenFile

__all__ = ["Overwriting", "check_named", "overwrite"]


class Overwriting:
    """Computes the changes of a job's overwriting epochs.

    A run over bounded sources replaces what stands in the table when its first rows come, or in a partition when its
    first rows for that one come; its later epochs add to that. An epoch of an endless source replaces what is there.
    """

    def __init__(self, mode: Overwrite, branch: str) -> None:
        self._mode = mode
        self._branch = branch
        self._partitions: dict[int, list[_Partition]] = {}

    def changes(self, epoch: Epoch, files: Sequence[WrittenFile], table: Table) -> SnapshotFiles:
        """Return the changes of an epoch with these data files to the freshly loaded table; raises like `overwrite`."""
        earlier = snapshots_of_run(table, epoch)
        if not earlier:
            return overwrite(self._mode, files, self._branch, table)
        if self._mode.named:
            _check_inside(table, self._mode, _named_partitions(table, self._mode), files)
        if self._mode.named or not self._mode.by_partition:
            return SnapshotFiles(files)
        written = _Partitions(table, self._written_before(epoch, table, earlier))
        first = [file for file in files if not written.have(file.data_file)]
        if not first:
            return SnapshotFiles(files)
        return replace(overwrite(self._mode, first, self._branch, table), added=files)

    def _written_before(self, epoch: Epoch, table: Table, earlier: int) -> Iterator[_Partition]:
        """Yield the partitions of the files that earlier epochs of the run have added."""
        assert epoch.run is not None
        metadata = table.metadata
        ids = (snapshot_id_of(metadata.table_uuid, replace(epoch, number=n)) for n in range(epoch.run, epoch.number))
        snapshots = [snapshot for id in ids if (snapshot := metadata.snapshot_by_id(id)) is not None]
        if len(snapshots) != earlier:
            raise CommitError(
                f"{earlier - len(snapshots)} of {earlier} snapshots that this run has committed to table "
                f"{_name(table)} have expired: it can't be told which partitions it has replaced already",
                hint="keep snapshots longer than a run takes, then start over with fresh=True",
            )
        for snapshot in snapshots:
            if snapshot.snapshot_id not in self._partitions:
                self._partitions[snapshot.snapshot_id] = list(_added_partitions(snapshot, table))
            yield from self._partitions[snapshot.snapshot_id]


def overwrite(mode: Overwrite, files: Sequence[WrittenFile], branch: str, table: Table) -> SnapshotFiles:
    """Return the changes that replace the table's current files, or those of some partitions, by the epoch's files.

    Raises:
        CommitError: If a row belongs to no named partition, or a file was written under a spec without its fields.
    """
    if not mode.by_partition:
        return SnapshotFiles(files, removed=list(_live(table, branch)))
    if mode.named:
        partitions = _named_partitions(table, mode)
        _check_inside(table, mode, partitions, files)
    else:
        partitions = _Partitions(table, (_whole(table, file.data_file) for file in files))
    return SnapshotFiles(files, removed=[file for file in _live(table, branch) if partitions.have(file)])


def check_named(mode: Overwrite, table: Table) -> None:
    """Check, before a row is written, that the partitions of a mode can exist in the table.

    Raises:
        ConfigError: If the table is not partitioned by their fields.
    """
    if mode.by_partition and table.spec().is_unpartitioned():
        raise ConfigError(
            f"{mode!r} needs partitions; table {_name(table)} has none", hint="Overwrite(), or partition it"
        )
    for named in mode.named:
        _named(table, dict(named))


_Partition = dict[int, Any]
"""Values of a partition by field id, in the form of `exact`; a missing field may have any value."""


class _Partitions:
    """A set of partitions of a table."""

    def __init__(self, table: Table, partitions: Iterable[_Partition]) -> None:
        self._table = table
        self._known: dict[tuple[int, ...], set[tuple[Any, ...]]] = {}
        for partition in partitions:
            self._known.setdefault(tuple(partition), set()).add(tuple(partition.values()))

    def have(self, file: DataFile) -> bool:
        """Return True if a file belongs to one of them."""
        return any(
            tuple(_values(self._table, file, fields).values()) in values for fields, values in self._known.items()
        )


def _named_partitions(table: Table, mode: Overwrite) -> _Partitions:
    return _Partitions(table, [_named(table, dict(named)) for named in mode.named])


def _whole(table: Table, file: DataFile) -> _Partition:
    return _values(table, file, [field.field_id for field in table.spec().fields])


def _added_partitions(snapshot: Snapshot, table: Table) -> Iterator[_Partition]:
    for file in added_files(snapshot, table.io):
        yield _whole(table, file)


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
    data_type = field.transform.result_type(table.schema().find_type(field.source_id))
    try:
        return partition_value(data_type, value)
    except (ArithmeticError, TypeError, ValueError, struct.error) as error:
        raise ConfigError(
            f"{value!r} is no value of the partition field {field.name!r}", hint=f"a {data_type}"
        ) from error


def _values(table: Table, file: DataFile, field_ids: Sequence[int]) -> _Partition:
    """Return the values of a file's partition in these fields; a field id means the same in every spec."""
    spec = table.specs()[file.spec_id]
    positions = {field.field_id: position for position, field in enumerate(spec.fields)}
    if missing := [field_id for field_id in field_ids if field_id not in positions]:
        raise CommitError(
            f"data file {file.file_path} was written under partition spec {file.spec_id} "
            f"({_fields(spec)}), which does not tell the fields {missing} of today's "
            f"({_fields(table.spec())})",
            hint="rewrite the table's older files under its present spec, or use Overwrite() for the whole table",
        )
    return {field_id: exact(file.partition[positions[field_id]]) for field_id in field_ids}


def _check_inside(table: Table, mode: Overwrite, partitions: _Partitions, files: Sequence[WrittenFile]) -> None:
    for file in files:
        if not partitions.have(file.data_file):
            path = path_of(table.spec(), table.schema(), file.data_file.partition)
            raise CommitError(
                f"the epoch has rows of partition {path} of table {_name(table)}, which {mode!r} does not name",
                hint="filter those rows out, or name their partition too; nothing was committed",
            )


def _fields(spec: PartitionSpec) -> str:
    return ", ".join(field.name for field in spec.fields) or "none"


def _name(table: Table) -> str:
    return ".".join(table.name())
