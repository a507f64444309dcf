"""pyiceberg's catalogs with what a job that runs for months needs: requests that end, metadata that is parsed once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Self
from uuid import UUID

from pydantic import BaseModel
from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io import FileIO
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata, TableMetadataV1, TableMetadataV2, TableMetadataV3
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.typedef import Identifier

__all__ = ["Thrifty", "shared"]


class _Shared(BaseModel):
    """Table metadata whose copies share their parts: nobody changes a part in place, so no copy has to be deep.

    pyiceberg copies all snapshots some fifteen times for one commit; with a thousand of them that is all it does.
    """

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        return super().model_copy(update=update)

    def snapshot_by_id(self, snapshot_id: int) -> Snapshot | None:
        # What a commit asks for is the last one.
        snapshots: list[Snapshot] = self.snapshots  # type: ignore[attr-defined]
        return next((each for each in reversed(snapshots) if each.snapshot_id == snapshot_id), None)


class _SharedV1(_Shared, TableMetadataV1):
    pass


class _SharedV2(_Shared, TableMetadataV2):
    pass


class _SharedV3(_Shared, TableMetadataV3):
    pass


_SHARED: dict[type, Any] = {TableMetadataV1: _SharedV1, TableMetadataV2: _SharedV2, TableMetadataV3: _SharedV3}


def shared(table: Table) -> Table:
    """The same table, with metadata that costs nothing to copy."""
    kind = _SHARED.get(type(table.metadata))
    if kind is not None:
        table.metadata = kind.model_construct(table.metadata.model_fields_set, **dict(table.metadata))
    return table


class Thrifty(MetastoreCatalog):
    """Keeps each table's latest metadata, for a catalog that stores locations: the file behind one never changes.

    So does the text of each snapshot; all of them are in every new file.
    """

    def __init__(self, name: str, **properties: Any) -> None:
        super().__init__(name, **properties)
        self._kept: dict[Identifier, tuple[str, TableMetadata]] = {}
        self._texts: dict[UUID, dict[int, tuple[Snapshot, str]]] = {}

    def _known(self, identifier: Identifier, location: str | None, read: Callable[[], Table]) -> Table:
        """The table as it is at `location`; `read` parses the metadata there."""
        kept, metadata = self._kept.get(identifier, (None, None))
        if location is None or kept != location or metadata is None:
            table = shared(read())
            self._kept[identifier] = table.metadata_location, table.metadata
            return table
        return Table(identifier, metadata, location, self._load_file_io(metadata.properties, location), self)

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        try:
            response = super().commit_table(table, requirements, updates)  # type: ignore[safe-super]
        except ValueError as error:
            # pyiceberg's word for another branch that was faster; it raises it before it writes anything.
            if "older than last sequence number" not in str(error):
                raise
            raise CommitFailedException(str(error)) from error
        self._kept[table.name()] = response.metadata_location, response.metadata
        return response

    def _write_metadata(  # type: ignore[override]
        self, metadata: TableMetadata, io: FileIO, metadata_path: str
    ) -> None:
        if metadata_path.endswith(".gz.metadata.json"):
            super()._write_metadata(metadata, io, metadata_path)
            return
        with io.new_output(metadata_path).create() as file:
            file.write(self._text(metadata).encode())

    def _text(self, metadata: TableMetadata) -> str:
        """The metadata as JSON, with the texts of snapshots that were written before."""
        known = self._texts.get(metadata.table_uuid, {})
        texts = {}
        for snapshot in metadata.snapshots:
            old, text = known.get(snapshot.snapshot_id, (None, ""))
            texts[snapshot.snapshot_id] = snapshot, text if old is snapshot else snapshot.model_dump_json()
        self._texts[metadata.table_uuid] = texts
        rest = metadata.model_copy(update={"snapshots": []}).model_dump_json()
        # Within a JSON string the quotes would have backslashes: it is there once.
        return rest.replace('"snapshots":[]', f'"snapshots":[{",".join(text for _, text in texts.values())}]', 1)
