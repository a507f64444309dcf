"""Checks that a server and tables can be captured, before anything is kept of them."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from volley.capture.rows import CHANGE, OPERATION, POSITION, SEQUENCE, UNCHANGED
from volley.capture.selection import TableName
from volley.connectors.mariadb.capture import Capture
from volley.connectors.mariadb.connection import Connection, one, query
from volley.connectors.mariadb.settings import ANEW, Dialect, LogEnd
from volley.connectors.mariadb.tables import Table, described, in_selection
from volley.errors import SourceError, SourceNotFoundError

__all__ = ["check_server", "check_table", "end_of_log", "selected_tables"]

_log = logging.getLogger(__name__)
_VARIABLES = """
    select @@global.log_bin, @@global.binlog_format, @@global.binlog_row_metadata
"""
_ENGINES = """
    select t.engine, t.table_type, e.transactions from information_schema.tables t
    left join information_schema.engines e on e.engine = t.engine where t.table_schema = %s and t.table_name = %s
"""
_CASCADES = """
    select constraint_name from information_schema.referential_constraints
    where constraint_schema = %s and table_name = %s
    and (delete_rule in ('CASCADE', 'SET NULL') or update_rule in ('CASCADE', 'SET NULL'))
"""


def check_server(connection: Connection, dialect: Dialect) -> None:
    """Check the server's version, and that its log has rows with the names of their columns."""
    dialect.check(connection)
    is_logged, form, metadata = one(connection, _VARIABLES)
    if not is_logged:
        raise SourceError("the server writes no binary log", hint="start it with log_bin, and a server_id")
    if form != "ROW":
        raise SourceError(
            f"the server's binlog_format is {form}: its log has statements, and not rows",
            hint="set global binlog_format = ROW, also in its configuration; then let sessions connect anew",
        )
    if metadata != "FULL":
        raise SourceError(
            f"the server's binlog_row_metadata is {metadata}: its log does not tell the columns of rows",
            hint="set global binlog_row_metadata = FULL, also in its configuration",
        )


def end_of_log(connection: Connection, dialect: Dialect) -> LogEnd:
    """Return where the log ends.

    Raises:
        SourceError: If there is no log.
    """
    rows = query(connection, dialect.status)
    if not rows:
        raise SourceError("the server writes no binary log", hint="start it with log_bin, and a server_id")
    file, offset, only, ignored, *gtids = rows[0]
    return LogEnd(str(file), int(offset), str(only or ""), str(ignored or ""), str(gtids[0]) if gtids else "")


def selected_tables(connection: Connection, capture: Capture) -> list[Table]:
    """Return the tables that are selected and there, checked.

    Raises:
        SourceNotFoundError: If a table that is named is not there.
        SourceError: If one can't be captured.
    """
    names = in_selection(connection, capture.selection)
    for name in capture.selection.named:
        if name not in names:
            raise SourceNotFoundError(
                f"table {name} does not exist, or the user may not see it", hint=f"grant select on {name} to the user"
            )
    end = end_of_log(connection, capture.server.dialect)
    tables = []
    for name in names:
        if (end.only and name.schema not in end.only.split(",")) or name.schema in end.ignored.split(","):
            raise SourceError(
                f"the server's log leaves out database {name.schema!r} (binlog_do_db, binlog_ignore_db)",
                hint=f"log it, or leave its tables out: exclude='{name.schema}.*'",
            )
        table = described(connection, name)
        if table is not None:
            check_table(connection, capture, table)
            tables.append(table)
    return tables


def check_table(connection: Connection, capture: Capture, table: Table) -> None:
    """Check that the log has all changes of a table, and that rows of the source can tell them."""
    name = table.name
    rows = query(connection, _ENGINES, name.schema, name.table)
    engine, kind, transactions = rows[0] if rows else ("InnoDB", "BASE TABLE", "YES")
    if kind == "SYSTEM VERSIONED":
        raise SourceError(
            f"table {name} is system-versioned: its log has the rows of its history among the others",
            hint=f"leave it out: exclude={name.setting!r}",
        )
    if transactions != "YES":
        raise SourceError(
            f"table {name} is of engine {engine}, which has no transactions: no load of it fits the log",
            hint=f"alter table {name} engine = InnoDB, or leave it out: exclude={name.setting!r}",
        )
    cascades = query(connection, _CASCADES, name.schema, name.table)
    for (constraint,) in () if capture.server.dialect.logs_cascades(connection) else cascades:
        _log.warning(
            "table %s: the log has no change that the cascade of foreign key %s makes: such rows stay as they are",
            *(name, constraint),
        )
    if not table.keys:
        _log.warning("table %s has no primary key: its changes can only be appended", name)
    if capture.is_keyed:
        _check_names(table, (POSITION, CHANGE) if capture.sequence else (SEQUENCE,))


def _check_names(table: Table, order: Sequence[str]) -> None:
    for name in (OPERATION, UNCHANGED, *order):
        if name in table.names:
            raise SourceError(
                f"table {table.name} has a column {name!r}, as the source has one of its own",
                hint=f"rename the column, or leave the table out: exclude={table.name.setting!r}; with changelog=True "
                "the table's columns stand apart",
            )


def purged(file: str, name: TableName | None = None) -> SourceError:
    """Return the error for a log that is gone."""
    return SourceError(
        f"the binary log {file} is gone: the server has purged changes that were not read",
        hint=f"{ANEW}; and raise binlog_expire_logs_seconds above the longest time that the job stands still",
    )
