"""The initial load: one snapshot, read by several tasks as ranges of pages, as texts of rows over ADBC."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import adbc_driver_postgresql.dbapi as adbc
import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
from adbc_driver_manager import Error as AdbcError
from psycopg2.extensions import connection as Connection

from volley.connectors.postgres.connection import OPTIONS, connect, encoding_hint, lsn_number, query, server_errors
from volley.connectors.postgres.loads import Fence
from volley.connectors.postgres.settings import ServerAddress
from volley.connectors.postgres.tables import Table
from volley.connectors.postgres.types import TableColumn, from_text
from volley.errors import SourceError
from volley.secrets import redact, redacted

__all__ = ["MOST_PAGES", "ExportedSnapshot", "PageRange", "SnapshotReader", "page_ranges"]

MOST_PAGES = 16_384
"""The most pages of 8 KiB that a task reads: 128 MiB."""

_NO_PRIVILEGE = "42501"
_FLUSH_SECONDS = 0.05
_BATCH_BYTES = 4 << 20
_BATCH_SIZE = "adbc.postgresql.batch_size_hint_bytes"
# PostgreSQL 17 and newer may end a transaction after some time; the older don't know the setting.
_NO_TIMEOUT = "select set_config(name, '0', false) from pg_settings where name = 'transaction_timeout'"
_PAGED = """
    select c.oid::bigint, format('%%I.%%I', n.nspname, c.relname),
        pg_relation_size(c.oid) / current_setting('block_size')::bigint
    from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.oid = any(%s::bigint[]::oid[]) order by c.oid
"""


@dataclass(frozen=True)
class PageRange:
    """Pages of a table, or of one of its partitions, as a snapshot sees them."""

    snapshot: str  # the snapshot's name in the server
    relation: str  # the table or partition, as SQL has it
    first: int
    end: int | None  # the page after the last one; None = there is no end
    size: int

    @property
    def condition(self) -> str:
        """The condition for its rows."""
        lower = f"ctid >= '({self.first},0)'::tid"
        return lower if self.end is None else f"{lower} and ctid < '({self.end},0)'::tid"


class ExportedSnapshot:
    """A snapshot that other sessions can read, until it is closed."""

    def __init__(self, server: ServerAddress) -> None:
        with server_errors(server, "exporting a snapshot"):
            self._connection: Connection = connect(server)
            query(self._connection, "begin isolation level repeatable read, read only")
            ((self.name, seen),) = query(self._connection, "select pg_export_snapshot(), pg_current_snapshot()::text")
            # Read after the snapshot was taken: the commits of all that it sees are before it.
            ((position,),) = query(self._connection, "select pg_current_wal_insert_lsn()::text")
            self._wait_until_flushed(position)
        self.fence = Fence.of(seen, lsn_number(position))

    @property
    def connection(self) -> Connection:
        """The connection that sees the snapshot."""
        return self._connection

    def close(self) -> None:
        """Let go of the snapshot."""
        self._connection.close()

    def _wait_until_flushed(self, position: str) -> None:
        """Wait until a crash of the server takes back nothing that the snapshot sees, nor gives its ids to others.

        With ``synchronous_commit = off`` transactions are visible before the log that has them is on disk.
        """
        sql = "select pg_current_wal_flush_lsn() >= %s::pg_lsn"
        while query(self._connection, sql, position) == [(False,)]:
            # The server's log writer then writes all up to this message, in some tenths of a second.
            query(self._connection, "select pg_logical_emit_message(false, 'volley', '')")
            time.sleep(_FLUSH_SECONDS)


def page_ranges(snapshot: ExportedSnapshot, tables: Iterable[Table], parallelism: int) -> dict[int, list[PageRange]]:
    """Return by the oids of tables the ranges of their pages: at least as many as tasks run at once, if there are."""
    files = {file.oid: table.oid for table in tables for file in table.files if file.number}
    relations = query(snapshot.connection, _PAGED, [*files])
    total = sum(pages for *_, pages in relations)
    size = max(1, min(MOST_PAGES, -(-total // parallelism)))
    ranges = defaultdict[int, list[PageRange]](list)
    for oid, relation, pages in relations:
        starts = [*range(0, max(pages, 1), size)]
        # Rows that came after the pages were counted are not in the snapshot, but the last range has no end to be sure.
        for first, end in zip(starts, [*starts[1:], None], strict=True):
            ranges[files[oid]].append(PageRange(snapshot.name, relation, first, end, min(size, pages - first)))
    return ranges


class SnapshotReader:
    """Reads pages of tables, all as one snapshot sees them, by one connection."""

    def __init__(self, server: ServerAddress, nulls: bool) -> None:
        self._server = server
        self._nulls = nulls
        self._open = ExitStack()
        self._cursor: Any = None

    def close(self) -> None:
        """End the connection, if there is one."""
        self._open.close()

    def rows(self, table: Table, pages: PageRange) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a range of pages, in the table's schema.

        Raises:
            SourceError: If the server can't be read, or a value has no counterpart.
        """
        sql = f"select {_row_text(table.columns)} from only {pages.relation} where {pages.condition}"
        with _errors(self._server, table):
            self._cursor = self._cursor or self._connected(pages.snapshot)
            self._cursor.execute(sql)
            for batch in self._cursor.fetch_record_batch():
                yield from _rows(batch.column(0), table, self._nulls)

    def _connected(self, snapshot: str) -> Any:
        connection = self._open.enter_context(closing(adbc.connect(_uri(self._server), autocommit=True)))
        cursor = self._open.enter_context(closing(connection.cursor()))
        cursor.adbc_statement.set_options(**{_BATCH_SIZE: str(_BATCH_BYTES)})
        cursor.execute(_NO_TIMEOUT)
        cursor.execute("begin isolation level repeatable read, read only")
        cursor.execute(f"set transaction snapshot '{snapshot}'")
        return cursor


def _rows(rows: pa.StringArray, table: Table, nulls: bool) -> Iterator[pa.RecordBatch]:
    for texts in _columns_of(rows, len(table.columns)):
        try:
            values = [from_text(column, text, nulls) for column, text in zip(table.columns, texts, strict=True)]
        except SourceError as error:
            raise error.within(f"table {table.name}") from error
        yield pa.RecordBatch.from_arrays(values, schema=table.schema)


class _errors:
    """Translates ADBC's errors, also while rows are yielded."""

    def __init__(self, server: ServerAddress, table: Table) -> None:
        self._server = server
        self._table = table

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, AdbcError | pa.ArrowInvalid | OSError):
            text = redact(str(error), self._server.secrets)
            raise SourceError(
                f"{self._server}: loading table {self._table.name} failed: {text}", hint=_hint(error)
            ) from redacted(error, self._server.secrets)


def _hint(error: BaseException) -> str:
    if "row-level security" in str(error):
        return "alter role … bypassrls, for the role that the job connects as; then start the job again"
    if isinstance(error, AdbcError) and error.sqlstate == _NO_PRIVILEGE:
        return "grant select on the table and its partitions to the role that the job connects as; then start it again"
    return encoding_hint(error) or "start the job again: it takes a new snapshot"


def _uri(server: ServerAddress) -> str:
    return f"{server.uri}&options={quote(OPTIONS)}"


def _row_text(columns: Sequence[TableColumn]) -> str:
    """Return the SQL of a row's text: a line as PostgreSQL prints a composite value, each field as the stream has it.

    The first and the last field are empty: they take the parentheses.

    Example:
        >>> print(_row_text([TableColumn("id", 1, 20, -1, 0, False)]))
        row(null, "id", null)::text || e'\\n'
    """
    fields = ", ".join(["null", *(column.quoted for column in columns), "null"])
    return rf"row({fields})::text || e'\n'"


def _columns_of(rows: pa.StringArray, count: int) -> Iterator[list[pa.StringArray]]:
    r"""Yield the texts of the columns, of some of the rows at a time.

    Nothing between two commas is a null; an empty text is quoted. In quotes, ``""`` is a quote, ``\\`` a backslash.
    """
    names = [str(number) for number in range(count + 2)]
    lines = _joined(rows)
    reader = csv.open_csv(
        pa.BufferReader(lines),
        # A row may be as long as all lines.
        csv.ReadOptions(use_threads=False, block_size=max(lines.size, 1), column_names=names),
        csv.ParseOptions(escape_char="\\", newlines_in_values=True),
        csv.ConvertOptions(
            # The server has checked them.
            check_utf8=False,
            column_types=dict.fromkeys(names, pa.string()),
            include_columns=names[1:-1],
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    for batch in reader:
        yield batch.columns


def _joined(rows: pa.StringArray) -> pa.Buffer:
    """Return the bytes of all texts, without a copy."""
    offsets = np.frombuffer(rows.buffers()[1], np.int32)[rows.offset : rows.offset + len(rows) + 1]
    return rows.buffers()[2].slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
