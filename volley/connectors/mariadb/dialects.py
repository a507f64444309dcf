"""The products whose binary log can be read: MariaDB, and MySQL."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from contextlib import closing
from typing import Any

from volley.capture.selection import TableName
from volley.connectors.mariadb.connection import connect, one, query
from volley.connectors.mariadb.gtids import DomainGtids, SetGtids
from volley.connectors.mariadb.positions import position_of
from volley.connectors.mariadb.settings import Dialect, Gtids, LogEnd, ServerAddress
from volley.connectors.mariadb.types import quoted
from volley.errors import SourceError

__all__ = ["MariaDb", "MySql"]

_log = logging.getLogger(__name__)
_SNAPSHOT = "start transaction with consistent snapshot"
_PROVEN = ((8, 4), (9, 7))
"""The series of MySQL that the tests run."""
_CASCADES_SINCE = (9, 6)


class MariaDb(Dialect):
    """MariaDB 10.5 or newer."""

    product = "MariaDB"
    grants = "select, replication slave, binlog monitor"
    status = "show master status"

    def check(self, connection: Any) -> None:
        text, number = _version(connection)
        if "mariadb" not in text.lower():
            raise SourceError(f"the server is MySQL {text}", hint="read it by MySqlSource (connector: mysql)")
        if number < (10, 5):
            raise SourceError(f"the server is MariaDB {text}", hint="10.5 or newer is needed")

    def begin_snapshot(self, connection: Any, server: ServerAddress, tables: Sequence[TableName]) -> int:
        query(connection, _SNAPSHOT)
        status = dict(query(connection, "show status like 'binlog_snapshot_%'"))
        return position_of(status["Binlog_snapshot_file"], int(status["Binlog_snapshot_position"]))

    def register(self, connection: Any) -> None:
        # What an older replica does not know would be replaced: global ids.
        query(connection, "set @mariadb_slave_capability = 4")

    def server_of(self, connection: Any) -> str:
        return ""

    def gtids_before(self, connection: Any, end: LogEnd) -> str:
        return self._at(connection, end.file, end.offset) or ""

    def has_gtids(self, connection: Any, file: str, offset: int, gtids: str) -> bool:
        now = self._at(connection, file, offset)
        return now is not None and self.gtids_of(now).text == self.gtids_of(gtids).text

    def _at(self, connection: Any, file: str, offset: int) -> str | None:
        (text,) = one(connection, "select binlog_gtid_pos(%s, %s)", file, offset)
        return None if text is None else str(text)

    def gtids_of(self, text: str) -> Gtids:
        return DomainGtids(text)

    def logs_cascades(self, connection: Any) -> bool:
        return False


class MySql(Dialect):
    """MySQL 8.4 or newer, with global transaction ids."""

    product = "MySQL"
    grants = "select, lock tables, replication slave, replication client"
    status = "show binary log status"

    def check(self, connection: Any) -> None:
        text, number = _version(connection)
        if "mariadb" in text.lower():
            raise SourceError(f"the server is MariaDB {text}", hint="read it by MariaDbSource (connector: mariadb)")
        if number < (8, 4):
            raise SourceError(f"the server is MySQL {text}", hint="8.4 or newer is needed")
        if number not in _PROVEN:
            _log.warning("the server is MySQL %s; this source was tested with MySQL 8.4 and 9.7 only", text)
        mode, options = one(connection, "select @@global.gtid_mode, @@global.binlog_row_value_options")
        if mode != "ON":
            raise SourceError(
                f"the server's gtid_mode is {mode}: its log does not tell one transaction from another",
                hint="set global enforce_gtid_consistency = ON, then gtid_mode step by step to ON_PERMISSIVE and ON",
            )
        if options:
            raise SourceError(
                f"the server's binlog_row_value_options are {options}: its log has parts of JSON values only",
                hint="set global binlog_row_value_options = '', also in its configuration",
            )

    def begin_snapshot(self, connection: Any, server: ServerAddress, tables: Sequence[TableName]) -> int:
        # The log's end moves on before a transaction can be seen: while the tables are locked, none is in between.
        with closing(connect(server)) as locking:
            query(locking, "set session lock_wait_timeout = %s", max(1, round(server.timeout)))
            names = ", ".join(f"{quoted(table.schema)}.{quoted(table.table)} read" for table in tables)
            if names:
                query(locking, f"lock tables {names}")
            query(connection, _SNAPSHOT)
            ((file, offset, *_),) = query(locking, self.status)
            query(locking, "unlock tables")
        return position_of(str(file), int(offset))

    def register(self, connection: Any) -> None:
        pass

    def server_of(self, connection: Any) -> str:
        return str(one(connection, "select @@global.server_uuid")[0])

    def gtids_before(self, connection: Any, end: LogEnd) -> str:
        # The server has read them before the place: there is none of a later transaction.
        return end.gtids

    def has_gtids(self, connection: Any, file: str, offset: int, gtids: str) -> bool:
        return bool(one(connection, "select gtid_subset(%s, @@global.gtid_executed)", gtids)[0])

    def gtids_of(self, text: str) -> Gtids:
        return SetGtids(text)

    def logs_cascades(self, connection: Any) -> bool:
        return _version(connection)[1] >= _CASCADES_SINCE


def _version(connection: Any) -> tuple[str, tuple[int, int]]:
    (text,) = one(connection, "select version()")
    match = re.match(r"(\d+)\.(\d+)", text)
    return str(text), (int(match[1]), int(match[2])) if match else (0, 0)
