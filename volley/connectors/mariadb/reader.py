"""Runs a MariaDbSource: the driver loads tables and receives the log, the executors decode what was staged."""

from __future__ import annotations

from volley.capture.reader import CaptureReader, StagedReader
from volley.capture.rows import ManyTables, OneTable, form_of
from volley.connectors.mariadb.capture import Capture
from volley.connectors.mariadb.connection import connected
from volley.connectors.mariadb.known import KnownTable, KnownTables
from volley.connectors.mariadb.loads import Loads
from volley.connectors.mariadb.origin import ensure_origin
from volley.connectors.mariadb.positions import position_of
from volley.connectors.mariadb.receiver import LogReceiver
from volley.connectors.mariadb.requirements import check_server, end_of_log, selected_tables
from volley.connectors.mariadb.splits import ChangeReader, LoadedRows, MariaDbSplit
from volley.connectors.mariadb.watch import Watch
from volley.contracts.source import Offset

__all__ = ["MariaDbReader", "inspect"]


def inspect(capture: Capture) -> ChangeReader:
    """Check the server and the tables without changing anything, and return what reads their rows."""
    with connected(capture.server, f"reading the catalog for {capture.selection}") as connection:
        check_server(connection, capture.server.dialect)
        tables = selected_tables(connection, capture)
    if capture.packed:
        return ChangeReader(capture, ManyTables(capture.nulls, capture.changelog, capture.sequence))
    (table,) = tables
    known = KnownTables(capture.state)
    known.read()
    now = (known.named(table.name) or KnownTable(table)).with_table(table)
    form = form_of(now.table, capture.nulls, capture.changelog, capture.sequence)
    return ChangeReader(capture, OneTable(form, now.dropped))


class MariaDbReader(CaptureReader[Capture]):
    """Plans loads and segments; the driver's own also receives the log."""

    _loads: Loads

    def __init__(self, rows: StagedReader[Capture], parallelism: int, limit: int | None) -> None:
        super().__init__(rows, Loads(rows.capture.state), parallelism, limit)

    def committed(self, offset: Offset) -> None:
        self._loads.delete_to(offset["loads"])
        super().committed(offset)

    def start(self) -> None:
        capture = self.capture
        watch = Watch(capture)
        with connected(capture.server, "starting to read the binary log") as connection:
            origin = ensure_origin(connection, capture.server.dialect, capture.state)
            watch.begin(selected_tables(connection, capture))
            end = end_of_log(connection, capture.server.dialect)
        self._failure.clear()
        self._receive(LogReceiver(capture, origin, watch, self._failure), position_of(end.file, end.offset))

    def _load_splits(self, start: Offset, end: Offset) -> list[MariaDbSplit]:
        return [
            LoadedRows(load.number, load.table, file, start["next"], load.position)
            for load in self._loads.listed()[start["loads"] : end["loads"]]
            for file in [*([None] if load.anew and not self.capture.sequence else []), *range(load.files)]
        ]
