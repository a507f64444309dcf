"""What catalogs of every kind check, and those without a server cache: snapshots, times that never go back, references.

Iceberg's Java library can't read a table whose log or last update goes back in time by more than a minute, so a commit
by a clock that is behind the table's takes the table's time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from operator import is_
from typing import Any, Self
from uuid import NAMESPACE_OID, UUID, uuid5

from pydantic import BaseModel
from pyiceberg.catalog import Catalog, MetastoreCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io import FileIO, InputFile, OutputFile
from pyiceberg.table import CommitTableResponse, StagedTable, Table, Transaction
from pyiceberg.table.metadata import TableMetadata, TableMetadataV1, TableMetadataV2, TableMetadataV3
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
    update_table_metadata,
)
from pyiceberg.typedef import Identifier

from volley.errors import CatalogError, CommitStateUnknownError, ConfigError
from volley.iceberg.pyiceberg_private.foreign import REFUSED, check_unencrypted, read_foreign
from volley.iceberg.pyiceberg_private.lineage import check_fresh

__all__ = [
    "CachedMetadata",
    "GuardedCatalog",
    "check_known",
    "check_refs",
    "check_snapshots",
    "share_metadata",
    "shared",
]


TableChanges = tuple[Table, Sequence[TableRequirement], Sequence[TableUpdate]]
"""A table, what its catalog checks, and the updates of the table's metadata."""


class GuardedCatalog(Catalog):
    """A catalog whose commits to a reference fail unless the table then has that reference.

    Nessie 0.99, for one, answers 200 to a commit to another branch than main, and commits it to main.
    """

    endpoints: Collection[str] | None = None
    """The requests that a REST catalog announces, such as "POST /v1/{prefix}/namespaces"; None = it announces none."""

    takes_reports = False
    """True if the catalog takes reports of metrics."""

    @cached_property
    def foreign(self) -> dict[str | None, str]:
        """Why tables can be read only, by the location of their metadata."""
        return {}

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """Commit updates, dated not before the table's last one.

        Raises:
            ConfigError: If pyiceberg does not know a part of the table's metadata, which would be lost.
            CommitStateUnknownError: If the table lacks a reference that was set: what else has landed is not known.
        """
        check_known(table)
        dated = not_before(table.metadata, updates)
        response = super().commit_table(table, requirements, dated)  # type: ignore[safe-super]
        check_refs(".".join(table.name()), response.metadata, updates)
        return response

    def commits_tables(self) -> bool:
        """Return True if the catalog takes changes of several tables in one commit; may ask it."""
        return False

    def commit_tables(self, changes: Sequence[TableChanges]) -> None:
        """Commit changes of several tables, each once: all of them or none. Only if `commits_tables`.

        Raises:
            CommitFailedException: If a requirement of one table does not hold; no table is changed then.
        """
        raise NotImplementedError

    def scan_tasks(self, table: Table, request: Mapping[str, Any]) -> tuple[list[dict[str, Any]], FileIO | None]:
        """Return the parts of the catalog's plan of a scan, as `server_plans.scan_tasks`, and what opens its files.

        That is None where the plan has no credentials of its own.
        """
        raise NotImplementedError

    def report(self, identifier: Identifier, make: Callable[[], Mapping[str, Any]], scan: Hashable = None) -> None:
        """Let a catalog that takes reports have one, sometime; whether it arrives does not matter.

        Args:
            make: Makes the report; called in the thread that sends it, for which many may wait.
            scan: What is the same when a scan is planned again; it is reported once. None = no scan.
        """

    @staticmethod
    def _delete_old_metadata(io: FileIO, base: TableMetadata, metadata: TableMetadata) -> None:
        """Delete the metadata files that a commit has dropped from the log; some servers have done it already."""
        Catalog._delete_old_metadata(_Deleting(io), base, metadata)


def check_known(table: Table) -> None:
    """Raise ConfigError if pyiceberg does not know a part of a table's metadata, which a change would lose."""
    catalog = table.catalog
    reason = catalog.foreign.get(table.metadata_location) if isinstance(catalog, GuardedCatalog) else None
    if reason is not None:
        raise ConfigError(
            f"table {'.'.join(table.name())} can be read, but not changed from here: {reason}",
            hint="change it by the engine that made it, or copy its rows to another table",
        )


class _Deleting(FileIO):
    """Deletes files like another FileIO, without an error for those that are gone."""

    def __init__(self, io: FileIO) -> None:
        super().__init__(io.properties)
        self._io = io

    def new_input(self, location: str) -> InputFile:
        return self._io.new_input(location)

    def new_output(self, location: str) -> OutputFile:
        return self._io.new_output(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        with suppress(FileNotFoundError):
            self._io.delete(location)


def check_snapshots(name: str, metadata: TableMetadata) -> None:
    """Raise CatalogError if the metadata lacks the snapshot of a reference: the table would seem to have no rows.

    Also if the table is encrypted, whose manifests can't be read.
    """
    check_unencrypted(name, metadata)
    ids = {snapshot.snapshot_id for snapshot in metadata.snapshots}
    current, main = metadata.current_snapshot_id, metadata.refs.get(MAIN_BRANCH)
    heads = {f"{ref.snapshot_ref_type} {name!r}": ref.snapshot_id for name, ref in metadata.refs.items()}
    heads |= {} if current is None else {"current-snapshot-id": current}
    for head, snapshot_id in heads.items():
        if snapshot_id not in ids:
            raise _damaged(name, f"{head} is snapshot {snapshot_id}, which is not among its {len(ids)} snapshots")
    if main is not None and main.snapshot_id != current:
        raise _damaged(name, f"branch 'main' is at snapshot {main.snapshot_id}, current-snapshot-id is {current}")


def _damaged(name: str, fault: str) -> CatalogError:
    return CatalogError(
        f"the metadata of table {name} is damaged: {fault}",
        hint="register an older metadata file of the table in the catalog, or restore this one from a backup",
    )


def not_before(metadata: TableMetadata, updates: Sequence[TableUpdate]) -> tuple[TableUpdate, ...]:
    """Return the updates with snapshots that are not older than what the metadata has."""
    least = _last_time(metadata) if any(isinstance(update, AddSnapshotUpdate) for update in updates) else 0
    return tuple(_dated(update, least) if isinstance(update, AddSnapshotUpdate) else update for update in updates)


def _dated(update: AddSnapshotUpdate, least: int) -> AddSnapshotUpdate:
    snapshot = update.snapshot
    if snapshot.timestamp_ms >= least:
        return update
    return update.model_copy(update={"snapshot": snapshot.model_copy(update={"timestamp_ms": least})})


def _last_time(metadata: TableMetadata) -> int:
    logged = [entry.timestamp_ms for entry in metadata.snapshot_log[-1:]]
    logged += [entry.timestamp_ms for entry in metadata.metadata_log[-1:]]
    return max(metadata.last_updated_ms, *logged, *(snapshot.timestamp_ms for snapshot in metadata.snapshots), 0)


def in_order(metadata: TableMetadata, before: TableMetadata) -> TableMetadata:
    """Return new metadata whose logs and last update are not before those of the metadata that it replaces."""
    if metadata.metadata_log[-1:] == before.metadata_log[-1:]:
        return metadata  # nothing is changed
    least = _last_time(before)
    last = max(metadata.last_updated_ms, least)
    *log, replaced = metadata.metadata_log
    replaced_at = max(replaced.timestamp_ms, *(entry.timestamp_ms for entry in log[-1:]), 0)
    changed = {
        "last_updated_ms": last,
        "metadata_log": [*log, replaced.model_copy(update={"timestamp_ms": replaced_at})],
        "snapshot_log": metadata.snapshot_log,
    }
    if metadata.snapshot_log and metadata.snapshot_log[-1].timestamp_ms < least:
        known = iter(before.snapshot_log)
        # The new log has what is left of the old one, then new entries.
        changed["snapshot_log"] = [
            entry if entry in known else entry.model_copy(update={"timestamp_ms": max(entry.timestamp_ms, least)})
            for entry in metadata.snapshot_log
        ]
    return metadata.model_copy(update=changed)


def check_refs(name: str, metadata: TableMetadata, updates: Sequence[TableUpdate]) -> None:
    """Raise CommitStateUnknownError if a table lacks a reference that a commit has set, as its catalog said."""
    # Of several updates of a reference the last one counts.
    updated = {update.ref_name: update for update in updates if isinstance(update, SetSnapshotRefUpdate)}
    for ref, update in updated.items():
        head = metadata.refs.get(ref)
        if head is not None and _has(metadata, head.snapshot_id, update):
            continue
        place = "has none of this name" if head is None else f"has it at snapshot {head.snapshot_id}"
        raise CommitStateUnknownError(
            f"the catalog reported a commit of snapshot {update.snapshot_id} to {update.type} {ref!r} of table {name} "
            f"as done, but the table {place}",
            hint="the catalog may not know branches and tags of tables, and have put the rows on main: look at the "
            "table before anything is written to it again; with Nessie, write to NessieCatalog(branch=…) instead",
        )


def _has(metadata: TableMetadata, head: int | None, update: SetSnapshotRefUpdate) -> bool:
    """Return True if a reference is at the snapshot, or a branch has gone on from it: the answer may be younger."""
    if update.type != SnapshotRefType.BRANCH or head == update.snapshot_id:
        return head == update.snapshot_id
    parents = {snapshot.snapshot_id: snapshot.parent_snapshot_id for snapshot in metadata.snapshots}
    while head is not None and head != update.snapshot_id:
        head = parents.get(head)
    return head is not None


class _ShallowMetadata(BaseModel):
    """Table metadata with shallow copies: no part is changed in place, so deep copies are not needed.

    pyiceberg deep-copies all snapshots some fifteen times per commit; with a thousand of them that is most of the work.
    """

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        return super().model_copy(update=update)

    def snapshot_by_id(self, snapshot_id: int) -> Snapshot | None:
        # A commit needs the last one: search from the end.
        snapshots: list[Snapshot] = self.snapshots  # type: ignore[attr-defined]
        return next((snapshot for snapshot in reversed(snapshots) if snapshot.snapshot_id == snapshot_id), None)


class _ShallowMetadataV1(_ShallowMetadata, TableMetadataV1):
    pass


class _ShallowMetadataV2(_ShallowMetadata, TableMetadataV2):
    pass


class _ShallowMetadataV3(_ShallowMetadata, TableMetadataV3):
    pass


def _with_updates(self: Transaction) -> TableMetadata:
    """Return the metadata with a transaction's updates, which pyiceberg works out anew some twenty times a commit."""
    base, updates = self._table.metadata, self._updates
    if not isinstance(base, _ShallowMetadata):
        # Whoever gets it may change it in place.
        return update_table_metadata(base, updates)
    known = vars(self).get(_KNOWN)
    if known is None or known[0] is not base or known[1] is not updates:
        known = vars(self)[_KNOWN] = base, updates, update_table_metadata(base, updates)
    metadata: TableMetadata = known[2]
    return metadata


_KNOWN = "_volley_metadata"
Transaction.table_metadata = property(_with_updates)  # type: ignore[method-assign,assignment]

_SHALLOW: dict[type, Any] = {
    TableMetadataV1: _ShallowMetadataV1,
    TableMetadataV2: _ShallowMetadataV2,
    TableMetadataV3: _ShallowMetadataV3,
}


def share_metadata(table: Table) -> Table:
    """Return the same table, with metadata that is copied shallowly."""
    table.metadata = shared(table.metadata)
    return table


def shared(metadata: TableMetadata) -> TableMetadata:
    """Return the same metadata, which is copied shallowly."""
    shallow = _SHALLOW.get(type(metadata))
    if shallow is None:
        return metadata
    copy: TableMetadata = shallow.model_construct(metadata.model_fields_set, **dict(metadata))
    return copy


def _identified(table: Table) -> Table:
    """Return the same table; one of format version 1 without an identifier has the same one whenever it is loaded.

    pyiceberg makes up another one each time, so that a stream would take it for a table that was made anew.
    """
    metadata = table.metadata
    if "table_uuid" not in metadata.model_fields_set:
        table.metadata = metadata.model_copy(update={"table_uuid": uuid5(NAMESPACE_OID, metadata.location)})
    return table


class CachedMetadata(GuardedCatalog, MetastoreCatalog):
    """Caches each table's latest metadata by its location: a metadata file never changes.

    Also caches the snapshots' JSON: every new metadata file has those of the one before, and mostly one more.
    """

    def __init__(self, name: str, **properties: Any) -> None:
        super().__init__(name, **properties)
        self._cache: dict[Identifier, tuple[str, TableMetadata]] = {}
        self._written: dict[UUID, tuple[list[Snapshot], bytes]] = {}

    def _cached_table(self, identifier: Identifier, location: str | None, read: Callable[[], Table]) -> Table:
        """Return the table with the metadata at `location`; `read` parses it if it is not cached."""
        if location is not None and (cached := self._cached(identifier, location)) is not None:
            return cached
        table = share_metadata(_identified(self._read(identifier, location, read)))
        check_snapshots(".".join(identifier), table.metadata)
        self._cache[identifier] = table.metadata_location, table.metadata
        return table

    def _cached(self, identifier: Identifier, location: str) -> Table | None:
        """Return the table with the metadata at `location`; None if that is not cached."""
        cached, metadata = self._cache.get(identifier, (None, None))
        if cached != location or metadata is None:
            return None
        return Table(identifier, metadata, location, self._load_file_io(metadata.properties, location), self)

    def _read(self, identifier: Identifier, location: str | None, read: Callable[[], Table]) -> Table:
        try:
            return read()
        except REFUSED as refusal:
            if location is None:
                raise
            file_io = self._load_file_io(self.properties, location)
            metadata, reason = read_foreign(".".join(identifier), file_io, location, refusal)
            self.foreign[location] = reason
            return Table(identifier, metadata, location, self._load_file_io(metadata.properties, location), self)

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        try:
            response = super().commit_table(table, requirements, updates)
        except ValueError as error:
            # pyiceberg raises this before it writes anything, if a commit to another branch was faster.
            if "older than last sequence number" not in str(error):
                raise
            raise CommitFailedException(str(error)) from error
        self._cache[table.name()] = response.metadata_location, response.metadata
        return response

    def _update_and_stage_table(
        self,
        current_table: Table | None,
        table_identifier: Identifier,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> StagedTable:
        if current_table is None:
            return super()._update_and_stage_table(None, table_identifier, requirements, updates)
        before = current_table.metadata
        check_fresh(before, updates)
        dated = not_before(before, updates)
        staged = super()._update_and_stage_table(current_table, table_identifier, requirements, dated)
        staged.metadata = in_order(staged.metadata, before)
        return staged

    def _write_metadata(  # type: ignore[override]
        self, metadata: TableMetadata, io: FileIO, metadata_path: str
    ) -> None:
        if metadata_path.endswith(".gz.metadata.json"):
            super()._write_metadata(metadata, io, metadata_path)
            return
        with io.new_output(metadata_path).create() as file:
            file.write(self._json(metadata))

    def _json(self, metadata: TableMetadata) -> bytes:
        rest = metadata.model_copy(update={"snapshots": []}).model_dump_json().encode()
        # The key occurs only once: inside a JSON string its quotes would be escaped.
        before, _, after = rest.partition(b'"snapshots":[]')
        return b"".join((before, b'"snapshots":[', self._snapshots_json(metadata), b"]", after))

    def _snapshots_json(self, metadata: TableMetadata) -> bytes:
        """Return the snapshots' JSON; those that were written last, and are still the first, are not made anew."""
        snapshots = metadata.snapshots
        known, text = self._written.get(metadata.table_uuid, ([], b""))
        if len(known) > len(snapshots) or not all(map(is_, known, snapshots)):
            known, text = [], b""
        added = (snapshot.model_dump_json().encode() for snapshot in snapshots[len(known) :])
        text = b",".join(filter(None, (text, *added)))
        self._written[metadata.table_uuid] = snapshots, text
        return text
