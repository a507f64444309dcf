"""Refreshes a view, commits its rows together with the cursor, and tells what the next refresh would do."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import get_args

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.update import AssertCurrentSchemaId, AssertDefaultSpecId

from volley.contracts.epoch import Epoch
from volley.errors import PlanError, SourceError, TableNotFoundError, VolleyError
from volley.iceberg.commit.hold import Hold, hold_name
from volley.iceberg.commit.loop import Stage, Staged, commit_to, new_snapshot_id, unchanged, write_manifests
from volley.iceberg.commit.overwrite import overwrite
from volley.iceberg.modes import Overwrite
from volley.iceberg.read.history import check_same_table, head_of, moment_of, snapshots_between
from volley.iceberg.schema.changes import Evolution
from volley.iceberg.storage.errors import storage_errors
from volley.iceberg.views.contents import Contents, needed_changes, open_view
from volley.iceberg.views.costs import COSTS, Cost, Kind, Measures, full_cost, scans_of
from volley.iceberg.views.cursor import CURSOR, MODE, QUERY, VIEW, Cursor, SourcePosition, fingerprint
from volley.iceberg.views.decisions import (
    Decision,
    Tables,
    check_own,
    compiled,
    decide,
    positions_of,
    sources_of,
)
from volley.iceberg.views.maintained import Maintained, maintained
from volley.iceberg.views.operators import ViewOperator
from volley.iceberg.views.scan import Scan, Tally, TooManyRowsError
from volley.iceberg.views.told import known_after, work_of
from volley.iceberg.views.values import (
    View,
    ViewEstimate,
    ViewPlan,
    ViewRefresh,
    ViewSource,
    ViewStatus,
    ViewStep,
    obstacle,
)
from volley.iceberg.write.writer import IcebergWriter
from volley.iceberg.write.written import SnapshotFiles
from volley.lineage.work import Work
from volley.plan.queried import described
from volley.task.failpoints import reach

__all__ = ["explain", "refresh", "status"]

_log = logging.getLogger(__name__)

# A refresh reads the pages of the groups that it touches; the header of each page takes as long as a thousand rows.
# Of numbers without a dictionary it looks at those of these groups alone.
_TABLE_PROPERTIES = {"write.parquet.page-row-limit": "50000", "write.parquet.dict-size-bytes": "65536"}


def hold_sources(view: View, scans: Iterable[Scan]) -> None:
    """Move the view's tag in each source that asks for it to the snapshot that the view stands for.

    Called after the refresh is committed: a tag that could not be moved holds more snapshots than needed.

    Args:
        scans: Its sources, as the refresh has read them.
    """
    tag = hold_name(f"{view.config.ref.address} {view.config.ref.name}")
    for scan in scans:
        max_age, held = scan.config.hold, scan.pin.table.metadata.refs.get(tag)
        if not isinstance(max_age, timedelta) or (held is not None and held.snapshot_id == scan.pin.after):
            continue
        try:
            Hold(scan.config.ref, tag, max_age)(scan.pin.after)
        except VolleyError as error:
            text = "view %s: snapshots of %s may expire before its next refresh: %s"
            _log.warning(text, view.name, scan.config.ref.name, error.message)


def refresh(view: View) -> ViewRefresh:
    """Refresh a view.

    Every attempt starts from the view's table as it is: an attempt that another refresh has overtaken finds its cursor
    there, and computes what is left.

    Raises:
        PlanError: If the view can't be refreshed by changes alone, and must be; if another writer changed its table.
        SourceError: If a source can't be read.
        CommitConflictError: If other writers changed the view's table during each attempt; nothing is changed then.
        CommitStateUnknownError: If the refresh may or may not have landed; the next one finds out.
        VolleyError: If a catalog or a storage fails, or the query does not fit a source.
    """
    work = work_of(view)
    try:
        done = _refresh(view, work)
    except VolleyError as error:
        if work is not None:
            work.fail(error)
        raise
    if work is not None and done.mode != "none":
        work.complete(partial(known_after, view, done))
    return done


def _refresh(view: View, work: Work | None) -> ViewRefresh:
    began = time.monotonic()
    run = _Refresh(view, work)
    staged = commit_to(view.config.ref, run, run.catalog).staged
    done = staged.attempt if staged else run.last
    reach("after-view-commit", done.cursor.refresh)
    hold_sources(view, done.scans)
    return run.result(done, time.monotonic() - began)


class _Timer:
    """Measures work by the time that passes, or by the processor's if that is less, as on a busy machine."""

    def __init__(self) -> None:
        self._began, self._cpu = time.monotonic(), time.process_time()

    @property
    def seconds(self) -> float:
        """The time since the timer was made, more than zero."""
        return max(min(time.monotonic() - self._began, time.process_time() - self._cpu), 1e-6)


@dataclass
class _RefreshAttempt:
    """What one attempt to commit a refresh has made.

    Args:
        given_up_rows: How many rows of the sources it read by changes before it gave that up; the full refresh that
            followed did not read them.
    """

    cursor: Cursor
    scans: list[Scan]
    decision: Decision
    tally: Tally
    contents: Contents
    measures: Measures
    changes: SnapshotFiles = field(default_factory=SnapshotFiles)
    given_up_rows: int = 0

    @property
    def rows_written(self) -> int:
        """The number of rows that were written to the view's table."""
        return sum(file.data_file.record_count for file in self.changes.added)


@dataclass(frozen=True)
class _StagedRefresh(Staged):
    attempt: _RefreshAttempt


class _Refresh(Stage[_StagedRefresh]):
    def __init__(self, view: View, work: Work | None) -> None:
        self.action = f"refreshing view {view.name!r}"
        self._work = work
        self._view = view
        self._attempts: list[_RefreshAttempt] = []
        self._tables: Tables = {}
        schema = maintained(compiled(view, None, Tally(), self._tables)).schema
        config = view.config.with_table_properties({**_TABLE_PROPERTIES, **view.config.table_properties})
        self.catalog = open_view(config, schema, _catalog_of_source(view, self._tables))

    @property
    def last(self) -> _RefreshAttempt:
        """The last attempt."""
        return self._attempts[-1]

    def stage(self, table: Table) -> _StagedRefresh | None:
        """Return the commit of the refresh for a freshly loaded table; None if the view is up to date."""
        timer = _Timer()
        view, branch = self._view, self._view.config.branch
        before, tally = Cursor.of(table), Tally()
        _check_name(before, view)
        check_own(table, branch, before, forced=view.mode == "full")
        # Another attempt loads the sources anew.
        tables, self._tables = self._tables, {}
        operator = compiled(view, before, tally, tables)
        decision = decide(view, before, operator, table)
        query = maintained(operator)
        number = before.refresh + 1 if before else 1
        schema_changes = needed_changes(view.config, table, query.schema)
        evolved = schema_changes.of(table)
        writer = IcebergWriter.for_table(evolved, view.config, Epoch(str(uuid.uuid4()), number))
        # A refresh reads the keys and sums of many groups, to bring few up to date.
        writer = replace(writer, compresses_numbers=False)
        contents = Contents(evolved, branch, writer, query.order)
        cursor = Cursor(
            view.name,
            fingerprint(view.query),
            positions_of(operator),
            number,
            before.snapshot if before else None,
            time.time_ns() // 1_000_000,
        )
        attempt = _RefreshAttempt(cursor, scans_of(operator), decision, tally, contents, Measures.of(table))
        self._attempts.append(attempt)
        if decision.mode == "none":
            return None
        if self._work is not None:
            self._work.start()
        if not self._by_changes(attempt, query, timer):
            timer = _Timer()
            added = contents.write(query.all_rows())
            attempt.changes = overwrite(Overwrite(), added, branch, table)
        reach("after-view-files", number)
        if attempt.changes:
            attempt.cursor = replace(cursor, snapshot=new_snapshot_id())
        measures = _measures(attempt, operator, timer.seconds)
        staged = self._staged(attempt, table, schema_changes, measures)
        reach("before-view-commit", number)
        return staged

    def _by_changes(self, attempt: _RefreshAttempt, query: Maintained, timer: _Timer) -> bool:
        """Bring the view up to date by changes; return False if it has to be computed anew."""
        decision, tally = attempt.decision, attempt.tally
        if decision.mode != "incremental":
            return False
        if decision.cost and self._view.mode == "auto" and not self._view.strict:
            tally.most = decision.cost.most_rows
        try:
            attempt.changes = query.changes(attempt.contents)
        except TooManyRowsError as error:
            cost, seconds = decision.cost, timer.seconds
            assert cost is not None
            reason = f"by changes it would read at least {error.rows:,} rows, computed anew {cost.all_rows:,}"
            attempt.decision = Decision("full", reason, cost)
            attempt.measures = cost.given_up(seconds, error.rows)
            attempt.given_up_rows = tally.rows
            return False
        finally:
            tally.most = None
        return True

    def _staged(
        self, attempt: _RefreshAttempt, table: Table, schema_changes: Evolution, measures: Measures
    ) -> _StagedRefresh:
        """Return the transaction with rows and cursor; without changed rows it has the cursor alone."""
        config, cursor = self._view.config, attempt.cursor
        head, metadata = head_of(table, config.branch), table.metadata
        with storage_errors(table.location()):
            transaction = table.transaction()
            schema_changes.add_to(transaction)
            marks = {VIEW: cursor.view, CURSOR: cursor.to_json(), COSTS: measures.to_json()}
            transaction.set_properties({**marks, QUERY: described(self._view.query)})
            if attempt.changes:
                assert cursor.snapshot is not None
                summary = {**config.snapshot_properties, **marks, MODE: attempt.decision.mode}
                write_manifests(transaction, attempt.changes, cursor.snapshot, summary, config.branch)
        same_head = unchanged(config.branch, head.snapshot_id if head else None)
        same_schema = AssertCurrentSchemaId.model_validate({"current-schema-id": metadata.current_schema_id})
        same_spec = AssertDefaultSpecId.model_validate({"default-spec-id": metadata.default_spec_id})
        return _StagedRefresh(transaction, attempt, requirements=[same_head, same_schema, same_spec])

    def landed(self, table: Table, staged: _StagedRefresh) -> bool:
        cursor = Cursor.of(table)
        return cursor is not None and cursor.attempt == staged.attempt.cursor.attempt

    def discard(self) -> None:
        self._discard(self._attempts)

    def _discard(self, attempts: Iterable[_RefreshAttempt]) -> None:
        for attempt in attempts:
            attempt.contents.discard()

    def result(self, attempt: _RefreshAttempt, seconds: float) -> ViewRefresh:
        """Delete the files of all attempts but this one, and return what it did."""
        self._discard(other for other in self._attempts if other is not attempt)
        return ViewRefresh(
            self._view.name,
            attempt.decision.mode,
            attempt.decision.reason,
            attempt.cursor.snapshot if attempt.changes else None,
            attempt.tally.rows,
            attempt.tally.groups,
            attempt.rows_written,
            {source.table: source.snapshot for source in attempt.cursor.sources},
            seconds,
            datetime.now(UTC),
        )


def _catalog_of_source(view: View, tables: Tables) -> Catalog | None:
    """Return the open catalog of a source, if it is the view's, too: to open one takes milliseconds."""
    properties = view.config.ref.to_properties()
    refs = (config.ref for config in sources_of(view.query) if config.ref.to_properties() == properties)
    return next((tables[ref.address, ref.name].catalog for ref in refs), None)


def _measures(attempt: _RefreshAttempt, operator: ViewOperator, seconds: float) -> Measures:
    """Return what refreshes took, with this one."""
    kind: Kind = "incremental" if attempt.decision.mode == "incremental" else "full"
    cost = attempt.decision.cost
    if kind == "full" or cost is None:
        cost = full_cost(operator, attempt.rows_written, attempt.measures)
    return cost.after(kind, seconds, attempt.tally.rows - attempt.given_up_rows)


def _check_name(cursor: Cursor | None, view: View) -> None:
    if cursor is not None and cursor.view != view.name:
        raise PlanError(
            f"table {view.config.table_name} is of view {cursor.view!r}, not of {view.name!r}",
            hint="give each view a table of its own",
        )


def explain(view: View) -> ViewPlan:
    """Return what the next refresh would do; reads metadata alone. Raises like `refresh`."""
    table = _table(view)
    cursor = Cursor.of(table) if table else None
    operator = compiled(view, cursor, Tally())
    decision = Decision("full", "it is the first one")
    if table is not None:
        check_own(table, view.config.branch, cursor, forced=view.mode == "full")
        decision = decide(view, cursor, operator, table)
    all_rows = sum(scan.all_rows for scan in scans_of(operator))
    cost = decision.cost
    changed = cost.changed_rows if cost else 0
    estimates = tuple(_estimates(cost)) if cost else ()
    return ViewPlan(view.name, decision.mode, decision.reason, tuple(_steps(operator, 0)), changed, all_rows, estimates)


def _estimates(cost: Cost) -> Iterator[ViewEstimate]:
    kinds: tuple[Kind, ...] = get_args(Kind)
    for kind in kinds:
        last = cost.measures.kinds.get(kind)
        seconds, rows = (last.seconds, last.rows) if last else (None, None)
        yield ViewEstimate(kind, cost.seconds(kind), cost.rows(kind), seconds, rows)


def _steps(operator: ViewOperator, depth: int) -> Iterator[ViewStep]:
    for node in reversed(operator.nodes):
        against = obstacle(node)
        yield ViewStep(node.label(), depth, against or operator.how, against is None)
        depth += 1
    for before in operator.inputs:
        yield from _steps(before, depth)


def status(view: View) -> ViewStatus:
    """Return how far a view is; reads metadata alone."""
    table = _table(view)
    cursor = Cursor.of(table) if table else None
    if cursor is None:
        return ViewStatus(view.name, 0, None, ())
    scans = scans_of(compiled(view, cursor, Tally()))
    sources = tuple(_source(scan, old) for scan, old in zip(scans, cursor.sources, strict=False))
    return ViewStatus(view.name, cursor.refresh, moment_of(cursor.refreshed_at), sources)


def _source(scan: Scan, old: SourcePosition) -> ViewSource:
    table, after = scan.pin.table, scan.pin.after
    try:
        check_same_table(table, old.uuid)
        later = [] if after in (None, old.snapshot) else snapshots_between(table, old.snapshot, after or 0)
    except SourceError:
        return ViewSource(old.table, old.snapshot, None, timedelta(0))
    age = datetime.now(UTC) - moment_of(later[0].timestamp_ms) if later else timedelta(0)
    return ViewSource(old.table, old.snapshot, len(later), max(age, timedelta(0)))


def _table(view: View) -> Table | None:
    try:
        return view.config.ref.load()
    except TableNotFoundError:
        return None
