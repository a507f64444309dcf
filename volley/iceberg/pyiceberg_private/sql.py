"""pyiceberg's SQL catalog with metadata that is parsed once, safe to create from several processes."""

from __future__ import annotations

import logging
import sqlite3
from pathlib import Path

from pyiceberg.catalog import sql
from pyiceberg.exceptions import NamespaceAlreadyExistsError
from pyiceberg.table import Table
from pyiceberg.typedef import EMPTY_DICT, Identifier, Properties
from sqlalchemy.exc import IntegrityError, OperationalError, ProgrammingError

from volley.iceberg.pyiceberg_private.cached import Thrifty
from volley.iceberg.storage.errors import storage_errors

__all__ = ["ThriftySqlCatalog", "prepare_sqlite"]

_log = logging.getLogger(__name__)


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


def prepare_sqlite(file: str, seconds: float) -> None:
    """Make the file and its folder; write-ahead logging lets readers and a writer work side by side.

    SQLite does not wait to switch it on. If the file is locked, another process is switching it on now, or the next
    start will.

    Args:
        file: The file's path.
        seconds: The longest to wait for its lock.
    """
    with storage_errors(file, "opening the catalog"):
        Path(file).parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(file, timeout=seconds)
        try:
            connection.execute("pragma journal_mode=wal")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
                raise
        finally:
            connection.close()
