"""One table of a routed sink, on the driver: makes it, lets it grow, commits to it, parks what it can't take."""

from __future__ import annotations

import logging
import pickle
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeGuard

import pyarrow as pa

from volley.contracts.epoch import Epoch, WriteResult
from volley.contracts.reports import MaintenanceReport
from volley.contracts.sink import ExecutorTask, SinkContext
from volley.errors import (
    CatalogAuthError,
    CommitConflictError,
    CommitError,
    CommitStateUnknownError,
    ConfigError,
    LayoutChangedError,
    PlanError,
    SchemaMismatchError,
    SourceError,
    StorageError,
    TableNotFoundError,
    VolleyError,
)
from volley.formats.packed_rows import key_fields_of
from volley.iceberg.commit.committer import IcebergCommitter
from volley.iceberg.commit.tables import open_table
from volley.iceberg.commit.together import Change
from volley.iceberg.config import IcebergSinkConfig
from volley.iceberg.maintain.committer import open_committer
from volley.iceberg.maintain.maintainer import MaintenanceThread
from volley.iceberg.route.known import EarlierRows, KnownTable
from volley.iceberg.route.lanes import Lane
from volley.iceberg.route.parking import Backlog, ParkedRows, Unpark, delete_parked
from volley.iceberg.route.routing import Routing
from volley.iceberg.upsert.columns import with_own_columns
from volley.task.failpoints import reach
from volley.types.arrow import read_schema

__all__ = ["Route", "RouteSettings"]

_log = logging.getLogger(__name__)
# Credentials that a catalog vends last 15 minutes at least.
_FRESH_SECONDS = 300.0
# The numbers of ExecutorTasks in the names of data files; above those of an epoch's tasks.
_UNPARKING = 50_000
_OF_THE_TABLE = (
    *(CatalogAuthError, CommitError, ConfigError, PlanError, SchemaMismatchError, SourceError, StorageError),
    TableNotFoundError,
)


@dataclass(frozen=True)
class RouteSettings:
    """What all tables of a sink have in common.

    Args:
        schema: The schema of the rows of every table; None = packed rows have their own.
        context: The sink's context, whose `run` gathers the tasks of several tables.
    """

    config: IcebergSinkConfig
    routing: Routing
    schema: pa.Schema | None
    context: SinkContext
    maintenance: MaintenanceThread = field(default_factory=partial(MaintenanceThread, "volley-maintenance"))


class Route:
    """One table. Its lane calls all methods that reach the catalog.

    An epoch begins with `begin`: the table is opened, and the epochs of its backlog are committed. Its rows are written
    by its `writer`, or parked if it has none: no row was written to the table yet, or it has a fault. `open_for` makes
    the table, or adds columns, for rows that are parked; `commit` has them written from there, and commits. If the
    table can't take them, and the sink parks rows, the epoch goes to the backlog instead.
    """

    def __init__(
        self, known: KnownTable, settings: RouteSettings, lane: Lane, backlog: Backlog, earlier_rows: EarlierRows
    ) -> None:
        self.known = known
        self.fault: VolleyError | None = None
        self.is_due = True
        self.writer: bytes | None = None
        self._settings = settings
        self._lane = lane
        self._backlog = backlog
        self._earlier_rows = earlier_rows
        self._schema = settings.schema if known.schema is None else read_schema(known.schema)
        self._committer: IcebergCommitter | None = None
        self._last: int | None = None
        self._loaded = 0.0

    @property
    def waiting(self) -> int:
        """The rows that are parked."""
        return self._backlog.rows

    @property
    def parked_urls(self) -> list[str]:
        """The files of the rows that are parked."""
        return [file.url for files in self._backlog.epochs.values() for file in files]

    def begin(self, epoch: Epoch) -> None:
        """Begin an epoch: open a table that has rows, commit what waits for it, make its `writer`.

        Raises:
            VolleyError: If that fails, and its rows are not to be parked.
        """
        self.is_due, self.writer = True, None if self.fault else self.writer
        if self.known.uuid is not None:
            self._attempt(lambda: self._begin(epoch))

    def _begin(self, epoch: Epoch) -> None:
        if self._committer is None or self.fault is not None:
            self._open(epoch.query_id)
        elif time.monotonic() - self._loaded > _FRESH_SECONDS:
            self._reload(epoch.query_id)
        self._catch_up()
        assert self._committer is not None
        self.is_due = self._committer.lacks(epoch, self._last)
        self.writer = self.writer or pickle.dumps((self._committer.writer(epoch), self._schema))

    def open_for(self, epoch: Epoch, files: Sequence[Any]) -> None:
        """Make or open the table for rows that are parked, before anything is committed.

        Raises:
            LayoutChangedError: If tasks have also written files without columns that the parked rows add.
            VolleyError: As for `begin`.
        """
        parked = _parked_in(files)
        if self.fault is not None or not parked:
            return
        before = self._committer
        self._attempt(lambda: self._open_for(epoch.query_id, parked))
        if self._committer is not before and len(parked) < len(files):
            raise LayoutChangedError(f"table {self.known.name} gets columns in the midst of epoch {epoch.number}")

    def commit(self, epoch: Epoch, files: Sequence[Any]) -> bool:
        """Commit the rows of an epoch in one snapshot, or park them; return True if they are in the table.

        Args:
            files: The files that its tasks wrote, in their order.

        Raises:
            LayoutChangedError: If the rows must be written again: for another layout, or to be parked.
            VolleyError: If the commit failed, and the rows are not to be parked.
        """
        if self._settings.routing.on_error == "park" and all(isinstance(file, ParkedRows) for file in files):
            has_to_wait = self.fault is not None or bool(self._backlog.epochs)
            if has_to_wait or not self._attempt(lambda: self._commit_epoch(epoch, files)):
                self._backlog.add(epoch, files)
            return not self._backlog.epochs
        try:
            self._commit_epoch(epoch, files)
        except VolleyError as error:
            if not self._begins_to_park(error):
                raise
            raise LayoutChangedError(f"rows for table {self.known.name} are to be parked", hint=None) from error
        return True

    def changes(self, epoch: Epoch, files: Sequence[Any]) -> Sequence[Change]:
        """Return what is to be committed for an epoch together with other tables; nothing if the table has it.

        Raises:
            VolleyError: As for `commit`.
        """
        parked = _parked_in(files)
        self._open_for(epoch.query_id, parked)
        committer = self._committer
        assert committer is not None
        if not committer.lacks(epoch, self._last):
            delete_parked(parked)
            return []
        results = [WriteResult(committables=tuple(self._data_files(epoch, files)))]
        return [
            replace(
                change,
                finish=partial(self._finish, epoch, parked, change.finish),
                submit=self._lane.submit,
                failed=partial(self._failed, epoch),
                discard=partial(committer.abort, epoch, results if parked else []),
            )
            for change in committer.changes(epoch, results)
        ]

    def _finish(self, epoch: Epoch, parked: Sequence[ParkedRows], finish: Callable[[Any], None], commit: Any) -> None:
        finish(commit)
        self._note(epoch)
        delete_parked(parked)

    def _failed(self, epoch: Epoch, error: Exception) -> Exception:
        """Return the error of a commit with other tables, with this one's name; a changed table is loaded again."""
        if isinstance(error, LayoutChangedError):
            self._reload(epoch.query_id)
        return self.named(error)

    def abort(self, epoch: Epoch, files: Sequence[Any]) -> None:
        """Delete the files of an epoch that has not landed; must not raise."""
        delete_parked(_parked_in(files))
        written = tuple(file for file in files if not isinstance(file, ParkedRows))
        if self._committer is not None and written:
            self._committer.abort(epoch, [WriteResult(committables=written)])

    def named(self, error: Exception) -> Exception:
        """Return an error of the table's own with its name, and with the way for the other tables to go on."""
        if not _is_own(error):
            return error
        name, hint = self.known.name, 'routed(…, on_error="park"): the other tables go on'
        message = error.message if name in error.message else f"table {name}: {error.message}"
        ways = [error.hint, hint if self._settings.routing.on_error == "fail" else None]
        named = type(error)(message, "; or ".join(filter(None, ways)) or None)
        named.__cause__ = error
        return named

    @property
    def maintenance(self) -> MaintenanceReport | None:
        """What the maintenance of the table has done; None without one, or if the table is not open."""
        return None if self._committer is None else self._committer.maintenance

    def stop(self) -> None:
        """Stop the maintenance of the table."""
        if self._committer is not None:
            self._committer.stop()

    def orphans(self, epoch: Epoch) -> Sequence[str]:
        """Return the data files of dead attempts of an epoch."""
        return () if self._committer is None else self._committer.orphans(epoch)

    def _attempt(self, work: Callable[[], None]) -> bool:
        """Do work on the table; return False if it failed and the table's rows are parked from now on."""
        try:
            work()
        except VolleyError as error:
            if not self._begins_to_park(error):
                raise
            return False
        self.fault = None
        return True

    def _begins_to_park(self, error: VolleyError) -> bool:
        """Return True, and note the fault, if an error is this table's own and its rows are to be parked."""
        if self._settings.routing.on_error != "park" or not _is_own(error):
            return False
        if self.fault is None or self.fault.message != error.message:
            _log.warning("rows for table %s are parked until it can take them: %s", self.known.name, error)
        self.fault, self.writer = error, None
        return True

    def _catch_up(self) -> None:
        """Commit the epochs that wait, the oldest first, each as its own."""
        for epoch, parked in list(self._backlog.epochs.items()):
            self._commit_epoch(epoch, parked)
            reach("after-catching-up", epoch.number)
            self._backlog.remove(epoch)
            _log.info("epoch %d, which was parked, is in table %s", epoch.number, self.known.name)

    def _commit_epoch(self, epoch: Epoch, files: Sequence[Any]) -> None:
        parked = _parked_in(files)
        self._open_for(epoch.query_id, parked)
        committer = self._committer
        assert committer is not None
        if committer.lacks(epoch, self._last):
            results = [WriteResult(committables=tuple(self._data_files(epoch, files)))]
            try:
                committer.commit(epoch, results)
            except VolleyError as error:
                self._undo(error, epoch, results if parked else [])
                raise
            self._note(epoch)
        delete_parked(parked)

    def _note(self, epoch: Epoch) -> None:
        """Note that the table has an epoch."""
        # An epoch that changes nothing, as all its rows were too late, leaves no mark.
        if self._committer is not None and self._committer.landed_offsets(epoch) is not None:
            self._last = self.known.epoch = epoch.number

    def _undo(self, error: VolleyError, epoch: Epoch, results: Sequence[WriteResult]) -> None:
        """Undo a failed commit: delete what was written from parked rows, unless it may be in the table."""
        if isinstance(error, LayoutChangedError):
            self._reload(epoch.query_id)
        if self._committer is not None and not isinstance(error, CommitStateUnknownError):
            self._committer.abort(epoch, results)

    def _data_files(self, epoch: Epoch, files: Sequence[Any]) -> list[Any]:
        """Return the same files, with data files in place of parked ones."""
        assert self._committer is not None
        parked = _parked_in(files)
        if not parked:
            return list(files)
        writer = pickle.dumps(self._committer.writer(epoch))
        tasks: list[ExecutorTask] = [Unpark(writer, file, _UNPARKING + number) for number, file in enumerate(parked)]
        results = iter(self._settings.context.run(tasks))
        written = ((next(results).committables if isinstance(file, ParkedRows) else (file,)) for file in files)
        return [file for group in written for file in group]

    def _open_for(self, query_id: str, parked: Sequence[ParkedRows]) -> None:
        """Open the table with the columns and keys of these rows too, unless it is open with all of them."""
        packed = [file.arrow_schema for file in parked]
        before = self._schema, self.known.key_fields
        for schema in packed:
            self.known.key_fields = key_fields_of(schema) or self.known.key_fields
        if self._settings.schema is None and packed:
            self._schema = _joined([*([] if self._schema is None else [self._schema]), *packed])
        if self._committer is None or self.fault or before != (self._schema, self.known.key_fields):
            self._open(query_id)
            if self._settings.schema is None and self._schema is not None:
                self.known.schema = self._schema.serialize().to_pybytes()

    def _open(self, query_id: str) -> None:
        """Open the table, and make it if it has no uuid yet."""
        known = self.known
        assert self._schema is not None
        config = with_own_columns(self._config, self._schema)
        catalog, table = open_table(config, self._schema, create=known.uuid is None, catalog=self._lane.catalog)
        context = replace(self._settings.context, schema=self._schema)
        committer = open_committer(catalog, table, config, context, self._settings.maintenance)
        if known.uuid is None:
            self._handle_earlier_rows(committer, query_id)
        elif known.uuid != committer.identity:
            raise PlanError(
                f"table {known.name} was dropped and made again: rows written before are not in it "
                f"(its uuid was {known.uuid}, now {committer.identity})",
                hint="put the old table back; or start over with fresh=True",
            )
        self._last = committer.last_epoch(query_id)
        self._check_last()
        known.uuid = committer.identity
        self.stop()
        # Tables are opened in epochs: the job runs.
        committer.start()
        self._committer, self._loaded, self.writer = committer, time.monotonic(), None

    def _check_last(self) -> None:
        """Check that the table has the last epoch that it is known to have had."""
        before = self.known.epoch
        if before is not None and (self._last is None or self._last < before):
            raise StorageError(
                f"table {self.known.name} had epoch {before} of this job and now has "
                f"{'none' if self._last is None else f'none after {self._last}'}: it is an old copy, or has lost its "
                "marks, and the rows of the epochs between may be missing",
                hint='restore its newest copy; or start over: fresh=True, into="replace"',
            )

    def _reload(self, query_id: str) -> None:
        """Load the table's metadata and credentials again; its writer is made anew."""
        assert self._committer is not None
        self._last = self._committer.last_epoch(query_id)
        self._check_last()
        self._loaded, self.writer = time.monotonic(), None

    def _handle_earlier_rows(self, committer: IcebergCommitter, query_id: str) -> None:
        if self._earlier_rows == "delete":
            committer.clear()
        elif self._earlier_rows == "refuse" and (earlier := committer.earlier_rows(query_id)):
            raise PlanError(
                f"{earlier}, and this checkpoint has written nothing there yet: rows would be there twice",
                hint='start over with into="replace", which empties each table before its first rows, or into="append"',
            )

    @property
    def _config(self) -> IcebergSinkConfig:
        known, settings = self.known, self._settings
        mode = settings.routing.key_fields.mode_of(known.identifier, known.key_fields)
        return replace(settings.config, namespace=known.identifier[:-1], table=known.identifier[-1], commit_mode=mode)


def _parked_in(files: Sequence[Any]) -> list[ParkedRows]:
    return [file for file in files if isinstance(file, ParkedRows)]


def _is_own(error: Exception) -> TypeGuard[VolleyError]:
    """Return True if an error is that of one table, which others do not share."""
    return isinstance(error, _OF_THE_TABLE) and not isinstance(error, CommitConflictError | CommitStateUnknownError)


def _joined(schemas: Sequence[pa.Schema]) -> pa.Schema:
    """Return one schema with the columns of all, and of each the widest type."""
    try:
        return pa.unify_schemas([schema.remove_metadata() for schema in schemas], promote_options="permissive")
    except (pa.ArrowTypeError, pa.ArrowInvalid) as error:
        raise SchemaMismatchError(
            f"rows of one table have columns whose types don't fit each other: {error}",
            hint="write them under another column's name, or to another table",
        ) from error
