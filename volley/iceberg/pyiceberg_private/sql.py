"""pyiceberg's SQL catalog with cached metadata; several processes can create it at the same time."""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Hashable
from functools import cached_property
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from pyiceberg.catalog import sql
from pyiceberg.exceptions import NamespaceAlreadyExistsError
from pyiceberg.table import Table
from pyiceberg.typedef import EMPTY_DICT, Identifier, Properties
from sqlalchemy import Select, bindparam, select
from sqlalchemy.engine import Engine
from sqlalchemy.exc import IntegrityError, OperationalError, ProgrammingError

from volley.iceberg.pyiceberg_private.guarded import CachedMetadata
from volley.iceberg.storage.errors import storage_errors

__all__ = ["CachedSqlCatalog", "prepare_sqlite"]

_log = logging.getLogger(__name__)

# An engine compiles each statement once: catalogs of the same database use the same one, as long as any of them lives.
_engines: WeakValueDictionary[Hashable, Engine] = WeakValueDictionary()


class CachedSqlCatalog(CachedMetadata, sql.SqlCatalog):
    """A SQL catalog with cached metadata that several processes can create at the same time."""

    def _init_catalog(self) -> None:
        database = _database(self.engine)
        if database is not None:
            settings = os.getpid(), self.properties.get("echo"), self.properties.get("pool_pre_ping")
            self.engine = _engines.setdefault((*settings, database), self.engine)
        super()._init_catalog()

    def create_tables(self) -> None:
        # SQLAlchemy checks and creates in two steps. A failure means that another process has created a table.
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

    def load_table(self, identifier: str | Identifier) -> Table:
        namespace, name = self.identifier_to_tuple(identifier)[:-1], self.table_name_from(identifier)
        # In a tenth of the time of pyiceberg's own query, which makes an object of the row.
        with self.engine.connect() as connection:
            values = {"catalog": self.name, "namespace": self.namespace_to_string(namespace), "name": name}
            location: str | None = connection.execute(self._location_of, values).scalar()
        cached = None if location is None else self._cached((*namespace, name), location)
        return super().load_table(identifier) if cached is None else cached

    @cached_property
    def _location_of(self) -> Select[Any]:
        """The query for the location of a table's metadata."""
        tables, of_tables = sql.IcebergTables, self._iceberg_type_filter()
        query = select(tables.metadata_location).where(
            tables.catalog_name == bindparam("catalog"),
            tables.table_namespace == bindparam("namespace"),
            tables.table_name == bindparam("name"),
        )
        return query if of_tables is None else query.where(of_tables)

    def _convert_orm_to_iceberg(self, orm_table: sql.IcebergTables) -> Table:
        identifier = (*orm_table.table_namespace.split("."), orm_table.table_name)
        read = super()._convert_orm_to_iceberg
        return self._cached_table(identifier, orm_table.metadata_location, lambda: read(orm_table))


def _database(engine: Engine) -> Hashable:
    """Return what two engines have in common if they connect to the same database; None = nothing, it is in memory.

    A SQLite file that is made anew is another database.
    """
    if engine.dialect.name != "sqlite":
        return engine.url
    try:
        file = os.stat(engine.url.database or ":memory:")
    except OSError:
        return None
    return engine.url, file.st_dev, file.st_ino


def prepare_sqlite(file: str, seconds: float) -> None:
    """Create the file and its folder with write-ahead logging, so that readers don't block the writer.

    SQLite fails at once if the file is locked while write-ahead logging is enabled. Then another process is enabling
    it, or the next start will.
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
