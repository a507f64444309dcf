"""The loads of a source: the rows of tables in one snapshot, staged by the driver before they are read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pyarrow as pa
import pymysql
from pymysql.cursors import SSCursor

from volley.capture.selection import TableName
from volley.connectors.mariadb.connection import Connection, connect, query, server_errors
from volley.connectors.mariadb.fields import loaded
from volley.connectors.mariadb.settings import ANEW, ServerAddress
from volley.connectors.mariadb.tables import Table, described
from volley.connectors.mariadb.types import quoted
from volley.errors import SourceError
from volley.storage.state_formats import STAGED_LOAD, STAGED_ROWS
from volley.store.files import COMPRESSED, new_file, open_file
from volley.store.journal import Journal, NumberedFiles
from volley.task.failpoints import reach

__all__ = ["Loads", "StagedLoad"]

_BATCH_ROWS = 20_000
_FILE_ROWS = 500_000
_FILES_A_LOAD = 1_000_000
_CHANGED, _GONE = 1412, 1146
_ATTEMPTS = 5


@dataclass(frozen=True)
class StagedLoad:
    """A table that was read."""

    number: int  # the loads of a source are counted, from 1
    table: Table
    position: int  # the position in the log before which the snapshot has all changes, and after which none
    files: int
    anew: bool  # True if rows that sinks have of the table are deleted first


class Loads:
    """The loads in a source's state folder."""

    def __init__(self, state: str) -> None:
        self._journal = Journal(f"{state}/loads", STAGED_LOAD, _load)
        self._files = NumberedFiles(f"{state}/rows", "{:014}.arrow")

    def listed(self) -> list[StagedLoad]:
        """Return all loads, in order."""
        return list(self._journal.entries().values())

    def fences(self, count: int) -> dict[str, int]:
        """Return by the name of each table the position of the last one of the first `count` loads."""
        return {str(load.table.name): load.position for load in self.listed()[:count]}

    def stage(self, server: ServerAddress, names: Sequence[TableName], nulls: bool) -> list[Table]:
        """Read tables in one snapshot, and stage their rows durably; return the tables as they were read.

        Raises:
            SourceError: If the server can't be read, or a value has no counterpart.
        """
        with server_errors(server, "loading tables"):
            for _ in range(_ATTEMPTS - 1):
                try:
                    return self._stage(server, names, nulls)
                except pymysql.Error as error:
                    # A table was altered after the snapshot began, or dropped before.
                    if error.args[0] not in (_CHANGED, _GONE):
                        raise
            return self._stage(server, names, nulls)

    def _stage(self, server: ServerAddress, names: Sequence[TableName], nulls: bool) -> list[Table]:
        earlier = self.listed()
        before = {str(load.table.name) for load in earlier}
        with closing(connect(server)) as connection:
            query(connection, "set session transaction isolation level repeatable read")
            there = [name for name in names if described(connection, name) is not None]
            position = server.dialect.begin_snapshot(connection, server, there)
            tables = [table for table in (described(connection, name) for name in there) if table is not None]
            values: list[dict[str, object]] = []
            for number, table in enumerate(tables, len(earlier) + 1):
                files = self._write(connection, number, table, nulls)
                load = {"table": table.to_json(), "position": position, "files": files}
                values.append({**load, "anew": str(table.name) in before})
            reach("load-staged", 0)
            self.record(values)
            return tables

    def _write(self, connection: Connection, number: int, table: Table, nulls: bool) -> int:
        columns = ", ".join(column.selected for column in table.columns)
        name = f"{quoted(table.name.schema)}.{quoted(table.name.table)}"
        with closing(connection.cursor(SSCursor)) as cursor:
            cursor.execute(f"select {columns} from {name}")
            batches, files = _fetched(cursor), 0
            while self.write_file(table, number, files, batches, nulls):
                files += 1
        return files

    def write_file(
        self, table: Table, load: int, file: int, batches: Iterator[list[tuple[Any, ...]]], nulls: bool
    ) -> bool:
        """Write a file of rows of a load; return False, and write none, if there are no more rows."""
        if (first := next(batches, None)) is None:
            return False
        with new_file(self._url(load, file), STAGED_ROWS, options=COMPRESSED) as written:
            written.write_batch(_batch(table, first, nulls))
            for rows in islice(batches, _FILE_ROWS // _BATCH_ROWS - 1):
                written.write_batch(_batch(table, rows, nulls))
        return True

    def record(self, values: Sequence[Mapping[str, object]]) -> None:
        """Record loads durably, whose rows are staged."""
        self._journal.append(*values)

    def _url(self, load: int, file: int) -> str:
        return self._files.url_of(load * _FILES_A_LOAD + file)

    def rows(self, load: int, file: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file of a load.

        Raises:
            SourceError: If it is gone or damaged.
        """
        url = self._url(load, file)
        try:
            opened = open_file(url, STAGED_ROWS, _lost)
        except FileNotFoundError as error:
            raise _lost(url, "is gone") from error
        for number in range(len(opened)):
            yield opened.batch(number)

    def delete_to(self, load: int) -> None:
        """Delete the rows of the first loads, which have been read."""
        self._files.delete_before((load + 1) * _FILES_A_LOAD)


def _fetched(cursor: Any) -> Iterator[list[tuple[Any, ...]]]:
    while rows := cursor.fetchmany(_BATCH_ROWS):
        yield list(rows)


def _batch(table: Table, rows: Sequence[tuple[Any, ...]], nulls: bool) -> pa.RecordBatch:
    try:
        columns = [
            loaded(column, values, nulls) for column, values in zip(table.columns, zip(*rows, strict=True), strict=True)
        ]
    except SourceError as error:
        raise error.within(f"table {table.name}") from error
    return pa.RecordBatch.from_arrays(columns, schema=table.schema)


def _lost(path: str, fault: str) -> SourceError:
    return SourceError(f"staged rows {path} {fault}", hint=f"restore the file, or {ANEW}")


def _load(number: int, values: Mapping[str, Any]) -> StagedLoad:
    return StagedLoad(number, Table.from_json(values["table"]), values["position"], values["files"], values["anew"])
