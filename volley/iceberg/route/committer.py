"""Commits the epochs of a sink with many tables: one commit for each table that has rows, in several threads."""

from __future__ import annotations

import logging
import posixpath
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any, TypeVar

from volley.contracts.epoch import Epoch, WriteResult
from volley.contracts.reports import MaintenanceReport
from volley.errors import CommitStateUnknownError, LayoutChangedError
from volley.iceberg.commit.together import Change, GroupedCommitter, group_of
from volley.iceberg.route.known import KnownTable, KnownTables
from volley.iceberg.route.lanes import Gathered, Lanes
from volley.iceberg.route.parking import Backlog, delete_parked
from volley.iceberg.route.route import Route, RouteSettings
from volley.iceberg.route.writer import RoutedWriter, TableWriters
from volley.iceberg.write.table_format import file_prefix
from volley.storage.paths import filesystem
from volley.task.failpoints import reach

__all__ = ["RoutedCommitter"]

_log = logging.getLogger(__name__)

T = TypeVar("T")
Files = Mapping[str, Sequence[Any]]
"""The files of an epoch by the key of their rows."""


class RoutedCommitter(GroupedCommitter):
    """The committer of the committers of many tables.

    An epoch is exactly once in each table: each has the epoch's mark, and an epoch that is repeated after a crash goes
    to the tables that lack it. It is atomic across them where the catalog takes several tables in one commit. The marks
    have a query id of the sink's own, so that another sink of the job may write to one of the tables.
    """

    can_clear = True

    def __init__(self, target: str, settings: RouteSettings) -> None:
        context = settings.context
        self._target = target
        self._routing = settings.routing
        self._settings = replace(settings, context=replace(context, run=Gathered(context.run)))
        self._schema = context.schema
        self._state = context.state
        self._known = KnownTables.load(self._state)
        self._lanes = Lanes(settings.config.ref, self._routing.commits_at_once)
        self._routes: dict[str, Route] = {}
        # Keys: of tables that a commit was tried for in this epoch, and of those that had the epoch when it began.
        self._tried: set[str] = set()
        self._landed: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return f"tables {self._routing.names}"

    @property
    def parked(self) -> dict[str, tuple[int, str]]:
        """By the name of each table whose rows are parked: how many, and why."""
        routes = list(self._routes.values())
        faulty = [route for route in routes if route.fault is not None or route.waiting]
        return {route.known.name: (route.waiting, route.fault.message if route.fault else "") for route in faulty}

    @property
    def maintenance(self) -> MaintenanceReport | None:
        """What the maintenance of the tables has done lately; None without one."""
        if self._settings.config.maintenance is None:
            return None
        reports = (route.maintenance for route in list(self._routes.values()))
        return MaintenanceReport.of(report for report in reports if report is not None)

    @property
    def notes(self) -> list[str]:
        """The tables whose rows are parked."""
        return [
            f"table {name}: {rows:,} rows are parked{reason and ': '}{reason}"
            for name, (rows, reason) in self.parked.items()
        ]

    def earlier_rows(self, query_id: str) -> str | None:
        """Note that a table with rows of earlier queries is to be refused; the tables are not known yet."""
        self._known.earlier_rows = "refuse"
        self._known.save()
        return None

    def clear(self) -> None:
        """Note that each table is to be emptied before its first rows are written."""
        self._known.earlier_rows = "delete"
        self._known.save()

    def writer(self, epoch: Epoch) -> RoutedWriter:
        """Open all known tables, commit what is parked for them, and return the writer."""
        own = self._own(epoch)
        if not self._routes:
            self._add(self._known.tables.values(), own.query_id)
            self._delete_strays(epoch.number)
        _raise_first(self._each(self._routes, lambda route: route.begin(own)).values())
        self._tried = set()
        self._landed = frozenset(key for key, route in self._routes.items() if not route.is_due)
        return self._writer(own)

    def _writer(self, own: Epoch) -> RoutedWriter:
        routes = {key: route for key, route in self._routes.items() if route.is_due}
        return RoutedWriter(
            self._routing,
            self._schema,
            TableWriters(
                open={key: route.writer for key, route in routes.items() if route.writer is not None},
                landed=self._landed,
                waiting=frozenset(key for key, route in routes.items() if route.writer is None),
            ),
            parking=f"{self._parking}/{own.number:08}-",
            file_prefix=file_prefix(own),
        )

    def commit(self, epoch: Epoch, results: Sequence[WriteResult]) -> None:
        """Make the tables that are missing, then commit to each table that has rows.

        Raises:
            LayoutChangedError: If rows of a table must be written again.
            CommitStateUnknownError: If a commit may have landed.
            VolleyError: Any other, of one table: the others have the epoch, unless it is raised for the names.
        """
        if self.group is not None:
            self.commit_together(epoch, [(self, results)])
            return
        own, files = self._opened(epoch, results)
        order = count(1)
        outcomes = self._each(files, lambda route: _commit(route, own, files[route.known.key], order))
        for key, outcome in outcomes.items():
            if isinstance(outcome, Exception) and not isinstance(outcome, CommitStateUnknownError):
                self._abort(own, {key: files[key]})
        self._tried = set(files)
        self._count(outcomes, results)
        _raise_first(outcomes.values())

    def _opened(self, epoch: Epoch, results: Sequence[WriteResult]) -> tuple[Epoch, Files]:
        """Make or open the tables that have rows; return the epoch under this sink's query id, and the files."""
        own, files = self._own(epoch), _by_key(results)
        self._register(files, own)
        _raise_first(self._each(files, lambda route: route.open_for(own, files[route.known.key])).values())
        self._known.save()
        return own, files

    @property
    def group(self) -> object | None:
        """None for a sink that parks rows: a table that can't take them must not keep the epoch from the others."""
        if self._routing.on_error == "park":
            return None
        ref, lane = self._settings.config.ref, self._lanes[0]
        return lane.submit(lambda: group_of(ref, lane.catalog)).result()

    def changes(self, epoch: Epoch, results: Sequence[WriteResult]) -> Sequence[Change]:
        own, files = self._opened(epoch, results)
        outcomes = self._each(files, lambda route: route.changes(own, files[route.known.key]))
        _raise_first(outcomes.values())
        return [change for changes in outcomes.values() if not isinstance(changes, Exception) for change in changes]

    def committed(self, epoch: Epoch, results: Sequence[WriteResult]) -> None:
        self._tried = set(_by_key(results))
        for order, _ in enumerate(self._tried, 1):
            reach(f"after-route-{order}", epoch.number)
        self._count(dict.fromkeys(self._tried, True), results)

    def _count(self, outcomes: Mapping[str, object], results: Sequence[WriteResult]) -> None:
        rows = Counter[str]()
        for route in (route for result in results for route in result.committables):
            rows[route.key] += route.result.rows
        metrics = self._settings.context.metrics
        for key in (key for key, outcome in outcomes.items() if outcome is True):
            metrics.record_table(self._routes[key].known.name, rows[key])
        metrics.record_parked({name: parked for name, (parked, _) in self.parked.items()})

    def abort(self, epoch: Epoch, results: Sequence[WriteResult]) -> None:
        """Delete the files of tables that lack the epoch."""
        files = _by_key(results)
        self._abort(self._own(epoch), {key: files[key] for key in files if key not in self._tried})

    def _abort(self, own: Epoch, files: Files) -> None:
        """Delete files; those of tables that no commit has registered yet are parked rows."""
        known = {key: files[key] for key in files if key in self._routes}
        self._each(known, lambda route: route.abort(own, known[route.known.key]))
        delete_parked([file for key in files if key not in known for file in files[key]])

    def orphans(self, epoch: Epoch) -> list[str]:
        """Return the data files that dead attempts left behind in the tables that have rows of this epoch."""
        own = self._own(epoch)
        found = self._each(self._tried | self._landed, lambda route: route.orphans(own))
        return [path for paths in found.values() if not isinstance(paths, Exception) for path in paths]

    def stop(self) -> None:
        """Stop maintenance, write down the last epoch of each table, and close the catalog clients."""
        for route in self._routes.values():
            route.stop()
        try:
            self._known.save()
        except Exception as error:
            # The next run checks against the older record.
            _log.warning("%s: the last epochs of the tables were not recorded: %s", self, error)
        self._lanes.close()

    def _own(self, epoch: Epoch) -> Epoch:
        """Return the epoch under the query id of this sink."""
        own = uuid.uuid5(uuid.NAMESPACE_URL, f"{epoch.query_id}/{self._target}")
        return replace(epoch, query_id=str(own))

    def _register(self, keys: Iterable[str], own: Epoch) -> None:
        new = self._known.add(
            [key for key in keys if key not in self._routes], self._routing.names, self._routing.limit
        )
        if new:
            self._known.save()
            self._add(new, own.query_id)
            _log.info("%s: %d more, such as %s", self, len(new), new[0].name)

    def _add(self, tables: Iterable[KnownTable], query_id: str) -> None:
        for known in tables:
            backlog = Backlog(f"{self._state}/backlog/{known.number}", query_id)
            lane = self._lanes[known.number]
            self._routes[known.key] = Route(known, self._settings, lane, backlog, self._known.earlier_rows)

    def _each(self, keys: Iterable[str], work: Callable[[Route], T]) -> dict[str, T | Exception]:
        """Do work for some tables, several at a time; return the results, or the errors, by their keys."""
        routes = [self._routes[key] for key in keys]
        outcomes = self._lanes.run([(route.known.number, partial(work, route)) for route in routes])
        return {
            route.known.key: route.named(outcome) if isinstance(outcome, Exception) else outcome
            for route, outcome in zip(routes, outcomes, strict=True)
        }

    @property
    def _parking(self) -> str:
        return f"{self._state}/parked"

    def _delete_strays(self, number: int) -> None:
        """Delete the parked rows of dead attempts: those of earlier epochs that no backlog lists.

        Those of this epoch may be another driver's, which has not noticed yet that it was replaced.
        """
        files, folder = filesystem(self._parking, {})
        listed = {filesystem(url, {})[1] for route in self._routes.values() for url in route.parked_urls}
        for path in files.ls(folder, detail=False) if files.exists(folder) else ():
            if path not in listed and posixpath.basename(path) < f"{number:08}":
                with suppress(OSError):
                    files.rm_file(path)


def _commit(route: Route, epoch: Epoch, files: Sequence[Any], order: count[int]) -> bool:
    landed = route.commit(epoch, files)
    reach(f"after-route-{next(order)}", epoch.number)
    return landed


def _by_key(results: Sequence[WriteResult]) -> dict[str, list[Any]]:
    files: dict[str, list[Any]] = {}
    for route in (route for result in results for route in result.committables):
        files.setdefault(route.key, []).extend(route.result.committables)
    return files


def _raise_first(outcomes: Iterable[object]) -> None:
    """Raise the worst error, if there is one: that of a commit that may have landed, then any, then to write again."""
    errors = [outcome for outcome in outcomes if isinstance(outcome, Exception)]
    if errors:
        raise min(errors, key=_severity)


def _severity(error: Exception) -> int:
    if isinstance(error, CommitStateUnknownError):
        return 0
    return 2 if isinstance(error, LayoutChangedError) else 1
