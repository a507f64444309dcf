"""Caches table metadata in pyiceberg's catalogs, and makes it cheap to copy and to write."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import is_
from typing import Any, Self
from uuid import NAMESPACE_OID, UUID, uuid5

from pydantic import BaseModel
from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io import FileIO
from pyiceberg.table import CommitTableResponse, StagedTable, Table
from pyiceberg.table.metadata import TableMetadata, TableMetadataV1, TableMetadataV2, TableMetadataV3
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.typedef import Identifier

from volley.iceberg.pyiceberg_private.foreign import REFUSED, read_foreign
from volley.iceberg.pyiceberg_private.guarded import GuardedCatalog, check_snapshots, in_order, not_before

__all__ = ["CachedMetadata", "share_metadata"]


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


_SHALLOW: dict[type, Any] = {
    TableMetadataV1: _ShallowMetadataV1,
    TableMetadataV2: _ShallowMetadataV2,
    TableMetadataV3: _ShallowMetadataV3,
}


def share_metadata(table: Table) -> Table:
    """Return the same table, with metadata that is copied shallowly."""
    metadata_type = _SHALLOW.get(type(table.metadata))
    if metadata_type is not None:
        table.metadata = metadata_type.model_construct(table.metadata.model_fields_set, **dict(table.metadata))
    return table


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
        cached, metadata = self._cache.get(identifier, (None, None))
        if location is None or cached != location or metadata is None:
            table = share_metadata(_identified(self._read(identifier, location, read)))
            check_snapshots(".".join(identifier), table.metadata)
            self._cache[identifier] = table.metadata_location, table.metadata
            return table
        return Table(identifier, metadata, location, self._load_file_io(metadata.properties, location), self)

    def _read(self, identifier: Identifier, location: str | None, read: Callable[[], Table]) -> Table:
        try:
            return read()
        except REFUSED as refusal:
            if location is None:
                raise
            metadata, reason = read_foreign(self._load_file_io(self.properties, location), location, refusal)
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
