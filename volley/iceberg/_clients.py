"""pyiceberg's catalogs with what a job that runs for months needs: requests that end, metadata that is parsed once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Self
from uuid import UUID

from pydantic import BaseModel
from pyiceberg.catalog import MetastoreCatalog, rest, sql
from pyiceberg.exceptions import CommitFailedException, NamespaceAlreadyExistsError
from pyiceberg.io import FileIO
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata, TableMetadataV1, TableMetadataV2, TableMetadataV3
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.typedef import EMPTY_DICT, Identifier, Properties
from requests import Session
from requests.adapters import HTTPAdapter
from sqlalchemy.exc import IntegrityError, OperationalError, ProgrammingError

__all__ = ["Limited", "LimitedRestCatalog", "Thrifty", "ThriftySqlCatalog", "shared"]

_log = logging.getLogger(__name__)


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


class ThriftySqlCatalog(Thrifty, sql.SqlCatalog):
    """A SQL catalog that keeps each table's latest metadata, and that several processes can create at once."""

    def create_tables(self) -> None:
        # Databases check and create in two steps. Each failure means that another process created one of the tables.
        for _ in sql.SqlCatalogBaseTable.metadata.tables:
            try:
                return super().create_tables()
            except (IntegrityError, OperationalError, ProgrammingError) as error:
                _log.debug("creating the catalog's tables failed, trying again: %s", error)
        super().create_tables()

    def create_namespace(self, namespace: str | Identifier, properties: Properties = EMPTY_DICT) -> None:
        try:
            super().create_namespace(namespace, properties)
        except IntegrityError as error:
            raise NamespaceAlreadyExistsError(f"namespace {namespace} already exists") from error

    def _convert_orm_to_iceberg(self, orm_table: sql.IcebergTables) -> Table:
        identifier = (*orm_table.table_namespace.split("."), orm_table.table_name)
        read = super()._convert_orm_to_iceberg
        return self._known(identifier, orm_table.metadata_location, lambda: read(orm_table))


class Limited(HTTPAdapter):  # type: ignore[misc]
    """Requests that end in time: pyiceberg's own wait for ever on a server that hangs."""

    def __init__(self, limits: tuple[float, float]) -> None:
        super().__init__()
        self._limits = limits

    def send(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        return super().send(request, *args, **{**kwargs, "timeout": kwargs.get("timeout") or self._limits})


class LimitedRestCatalog(rest.RestCatalog):
    """A REST catalog whose requests end in time.

    Args:
        name: The catalog's name.
        limits: The longest to wait for a connection, and for an answer, in seconds.
        properties: pyiceberg's.
    """

    adapter: type[Limited] = Limited

    def __init__(self, name: str, limits: tuple[float, float], **properties: str) -> None:
        self._limits = limits
        super().__init__(name, **properties)

    def _limited(self, session: Session) -> Session:
        for scheme in ("http://", "https://"):
            session.mount(scheme, self.adapter(self._limits))
        return session

    def _create_session(self) -> Session:
        return self._limited(super()._create_session())

    def _create_legacy_oauth2_auth_manager(self, session: Session) -> Any:
        # It asks for a token at once, before the session is returned.
        return super()._create_legacy_oauth2_auth_manager(self._limited(session))
