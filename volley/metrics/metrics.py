"""The counters of a running job and of its sinks."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from volley.contracts.reports import DeadLetter, Lag, TableTotals
from volley.metrics.exposition import Description, described, families
from volley.metrics.figures import EpochProgress, ExpectationFigures, Histogram, NodeFigures, TableFigures
from volley.metrics.snapshot import BUILD, LOSSES, SERIES, UNFIT, Figures, MetricsSnapshot

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from volley.contracts.epoch import WriteResult

__all__ = ["DESCRIPTIONS", "LAST_LETTERS", "Metrics"]

# More series are too many for Prometheus.
_TABLES = 100
_OTHER_TABLES = "other"
LAST_LETTERS = 20
"""How many of the last dead letters a job tells."""
_COUNTERS = frozenset(field.name for field in fields(MetricsSnapshot) if field.type == "int")
_AT_FIRST = vars(MetricsSnapshot())

_STATES = ("starting", "running", "restarting")
_STATE = Description(
    "job_state",
    "gauge",
    "1 for what the job does: starting, running, or restarting after a failure; 0 for the others",
    lambda is_state: is_state,
)
_RESTARTS = Description(
    "job_restarts",
    "counter",
    "How often the job starts again after a failure, the restart that it waits for included",
    lambda job: job.restarts,
)
_EPOCH = Description("last_epoch", "gauge", "Number of the last epoch in every sink", lambda job: job.last_epoch)
_WATERMARK = Description(
    "watermark_seconds",
    "gauge",
    "Watermark of the job's windows, in seconds since 1970",
    lambda job: job.watermark and job.watermark.timestamp(),
)
_SOURCE_WATERMARK = Description(
    "source_watermark_seconds",
    "gauge",
    "Watermark of a source's rows at the slowest keyed step, in seconds since 1970",
    lambda watermark: watermark.timestamp(),
)
_STATE_BYTES = Description(
    "state_bytes", "gauge", "Bytes of the state of a keyed step, after the last epoch", lambda size: size
)
_READ = Description("source_records_read", "counter", "Rows read of a source, good and bad ones", lambda rows: rows)
_LAG = described(Lag, "source_lag_")
_TABLE = described(TableFigures, "table_")
_TOTALS = described(TableTotals, "table_")
_EXPECTATION = described(ExpectationFigures, "expectation_")
_RUNNING = described(EpochProgress, "running_epoch_")
DESCRIPTIONS = (
    *(*SERIES, _STATE, _RESTARTS, LOSSES, *UNFIT, BUILD, _EPOCH, _WATERMARK, _READ, _SOURCE_WATERMARK, _STATE_BYTES),
    *(*_LAG, *_TABLE, *_TOTALS, *_EXPECTATION, *_RUNNING),
)
"""All metrics of a job, whether it has them now or not."""


class Metrics(Figures):
    """The counters of a running job; thread-safe.

    Every counter of MetricsSnapshot is an attribute of Metrics, too.

    Args:
        labels: Prometheus labels of these counters: label → value.

    Example:
        >>> metrics = Metrics()
        >>> metrics.record_commit(0.25, succeeded=True)
        >>> metrics.commits_success, metrics.avg_commit_latency_ms()
        (1, 250.0)
    """

    def __init__(self, labels: Mapping[str, str] | None = None) -> None:
        self._labels = dict(labels or {})
        self._lock = threading.Lock()
        self._values: dict[str, Any] = dict(_AT_FIRST)
        self._last_commit: float | None = None
        self._all = [self]
        self._sinks: dict[str, Metrics] = {}
        self._in_use: set[str] = set()
        self._running: Callable[[], EpochProgress | None] = lambda: None
        self._lags: dict[str, Lag] = {}
        self._read: dict[str, int] = {}
        self._source_watermarks: dict[str, datetime] = {}
        self._tables: dict[str, TableFigures] = {}
        self._nodes: dict[int, NodeFigures] = {}
        self._states: dict[str, int] = {}
        self._expectations: dict[str, ExpectationFigures] = {}
        self._letters: deque[DeadLetter] = deque(maxlen=LAST_LETTERS)
        self._totals: dict[str, TableTotals] = {}
        self._last_epoch: int | None = None
        self._state: str | None = None
        self._restarts = 0
        self._watermark: datetime | None = None

    @property
    def state(self) -> str | None:
        """What the job does: ``starting``, ``running``, or ``restarting`` after a failure; None without a job."""
        return self._state

    @property
    def restarts(self) -> int:
        """How often the job was started again after a failure."""
        return self._restarts

    @property
    def running(self) -> EpochProgress | None:
        """The progress of the running epoch; None between epochs."""
        return self._running()

    @property
    def last_epoch(self) -> int | None:
        """The number of the last epoch that is in every sink; None before the first of this run."""
        return self._last_epoch

    @property
    def watermark(self) -> datetime | None:
        """The watermark of the job's windows, or joins of streams, after the last epoch: older rows count as late.

        None before the first row of this run, and without either. With several of them, that of the last; each sink
        has its own in `by_sink`.
        """
        return self._watermark

    @property
    def lags(self) -> Mapping[str, Lag]:
        """How far the job is behind each source that can tell, by the source's name, since the last epoch."""
        with self._lock:
            return {lag.source: lag for lag in self._lags.values()}

    @property
    def lags_by_source(self) -> Mapping[str, Lag]:
        """The same by the names of `by_source`."""
        with self._lock:
            return dict(self._lags)

    @property
    def source_watermarks(self) -> Mapping[str, datetime]:
        """The watermark of each source's rows at the slowest keyed step, by the source's name, since the last epoch."""
        with self._lock:
            return dict(self._source_watermarks)

    @property
    def by_sink(self) -> Mapping[str, Metrics]:
        """The counters of each sink and dead letter, by its label."""
        return dict(self._sinks)

    @property
    def by_source(self) -> Mapping[str, int]:
        """The rows read of each source, by its name, good and bad ones; of an epoch once it is in every sink."""
        with self._lock:
            return dict(self._read)

    @property
    def by_expectation(self) -> Mapping[str, ExpectationFigures]:
        """What has become of each expectation, by its name; of an epoch once it is in every sink."""
        with self._lock:
            return dict(self._expectations)

    @property
    def by_state(self) -> Mapping[str, int]:
        """The bytes of the state of each keyed step, by the name of its folder in the checkpoint."""
        with self._lock:
            return dict(self._states)

    @property
    def letters(self) -> Sequence[DeadLetter]:
        """The last rows that went to dead letters, the oldest first."""
        with self._lock:
            return tuple(self._letters)

    @property
    def by_node(self) -> Mapping[int, NodeFigures]:
        """The figures of each node of the job's graph, by its number; of an epoch once it is in every sink."""
        with self._lock:
            return dict(self._nodes)

    @property
    def by_table(self) -> Mapping[str, TableFigures]:
        """The figures of each table of a sink with many, by its name; those after the first hundred under ``other``."""
        with self._lock:
            return dict(self._tables)

    @property
    def totals(self) -> Mapping[str, TableTotals]:
        """What each table of a sink has, by its name, after the sink's last look at it; of the first hundred tables."""
        with self._lock:
            return dict(self._totals)

    def of_sink(self, label: str) -> Metrics:
        """Return the counters of one sink, from 0 or from an earlier run; what they count also counts here.

        Args:
            label: The sink's label; a second sink with the same label gets a number behind it.
        """
        number, name = 1, label
        while name in self._in_use:
            number += 1
            name = f"{label} {number}"
        self._in_use.add(name)
        if name in self._sinks:
            return self._sinks[name]
        metrics = Metrics({**self._labels, "sink": name})
        metrics._lock = self._lock
        metrics._all = [metrics, self]
        self._sinks[name] = metrics
        return metrics

    def begin_run(self) -> None:
        """Let `of_sink` return the same counters again: a job that starts again asks for them in the same order."""
        self._in_use.clear()

    def follow(self, running: Callable[[], EpochProgress | None]) -> None:
        """Read the progress of the running epoch from this function from now on."""
        self._running = running

    def record_state(self, state: Literal["starting", "running", "restarting"]) -> None:
        """Note what the job does; ``restarting`` counts a restart."""
        with self._lock:
            self._restarts += state == "restarting"
            self._state = state

    def record_write(self, result: WriteResult) -> None:
        """Count what one task wrote."""
        with self._lock:
            for metrics in self._all:
                metrics._add_write(result)

    def record_commit(self, seconds: float, succeeded: bool) -> None:
        """Count one commit: its seconds with all attempts, and whether it is known to have landed."""
        with self._lock:
            for metrics in self._all:
                metrics._add(commits_success=succeeded, commits_failed=not succeeded)
                durations = metrics._values["commit_durations"].observe(seconds)
                metrics._values.update(commit_durations=durations, commit_latency_us=round(durations.total * 1e6))
                if succeeded:
                    metrics._last_commit = time.monotonic()

    def record_retry(self) -> None:
        """Count one commit attempt after the first."""
        self._count(commit_retries=1)

    def record_failed(self, rows: int) -> None:
        """Count rows that went to a dead letter, or those of an epoch that could not be committed."""
        self._count(records_failed=rows)

    def record_maintenance(self, seconds: float, succeeded: bool) -> None:
        """Count one action of maintenance, and its seconds."""
        self._count(
            maintenance_runs=succeeded, maintenance_failed=not succeeded, maintenance_us=round(seconds * 1_000_000)
        )

    def record_rejected(self, late: int, early: int, untimed: int) -> None:
        """Count rows that a keyed step rejects."""
        self._count(rows_late=late, rows_ahead=early, rows_untimed=untimed)

    def record_lost(self, losses: int) -> None:
        """Count losses of input that a source passed over."""
        self._count(inputs_lost=losses)

    def record_unfit(self, rescued: int, dropped: int) -> None:
        """Count values that a contract rescues or drops."""
        self._count(values_rescued=rescued, values_dropped=dropped)

    def record_epoch(self, number: int) -> None:
        """Keep the number of an epoch that is in every sink."""
        self._last_epoch = number

    def record_watermark(self, watermark: datetime | None) -> None:
        """Keep the watermark after an epoch."""
        with self._lock:
            for metrics in self._all:
                metrics._watermark = watermark

    def record_source_watermarks(self, watermarks: Mapping[str, datetime]) -> None:
        """Keep the watermarks of sources after an epoch, by their names as of `record_read`."""
        with self._lock:
            self._source_watermarks.update(watermarks)

    def record_read(self, source: str, rows: int) -> None:
        """Count rows read of the source of this name."""
        self._count(records_read=rows)
        with self._lock:
            self._read[source] = self._read.get(source, 0) + rows

    def record_expectation(self, name: str, rows: int, failed: int, unknown: int) -> None:
        """Count rows that an expectation has looked at, by its name."""
        with self._lock:
            now = self._expectations.get(name, ExpectationFigures())
            self._expectations[name] = ExpectationFigures(now.rows + rows, now.failed + failed, now.unknown + unknown)

    def record_letters(self, letters: Sequence[DeadLetter]) -> None:
        """Keep the last rows that went to dead letters."""
        with self._lock:
            self._letters.extend(letters)

    def record_nodes(self, rows: Sequence[int], bad: Sequence[int], seconds: float) -> None:
        """Count the rows behind each node of the job's graph, and the bad rows at each, of an epoch of some seconds."""
        with self._lock:
            for number, (passed, refused) in enumerate(zip(rows, bad, strict=True)):
                now = self._nodes.get(number, NodeFigures())
                rate = passed / seconds if seconds else 0.0
                total = {"rows": now.rows + passed, "bad": now.bad + refused}
                self._nodes[number] = replace(now, **total, rows_per_second=rate)

    def record_rejected_at(self, number: int, rows: int) -> None:
        """Count rows that a keyed step rejects, by its number in the job's graph; `record_rejected` is of sinks."""
        with self._lock:
            now = self._nodes.get(number, NodeFigures())
            self._nodes[number] = replace(now, rejected=now.rejected + rows)

    def record_state_bytes(self, number: int, name: str, size: int) -> None:
        """Keep the bytes of a keyed step's state.

        Args:
            number: The step's number in the job's graph.
            name: That of the state's folder in the checkpoint.
        """
        with self._lock:
            self._nodes[number] = replace(self._nodes.get(number, NodeFigures()), state_bytes=size)
            self._states[name] = size

    def record_lag(self, lag: Lag, source: str | None = None) -> None:
        """Keep how far a source has been read.

        Args:
            source: Its name as of `record_read`; None = that of the lag.
        """
        with self._lock:
            self._lags[lag.source if source is None else source] = lag

    def record_table(self, name: str, rows: int) -> None:
        """Count a commit of rows to one of the tables of a sink, by the table's name."""
        with self._lock:
            label = self._label_of(name)
            now = self._tables.get(label, TableFigures())
            self._tables[label] = replace(now, records_written=now.records_written + rows, commits=now.commits + 1)

    def record_parked(self, rows: Mapping[str, int]) -> None:
        """Keep how many rows wait for tables of a sink, by the tables' names; none wait for any other."""
        with self._lock:
            parked = dict.fromkeys(self._tables, 0)
            for name, count in rows.items():
                label = self._label_of(name)
                parked[label] = parked.get(label, 0) + count
            for label, count in parked.items():
                self._tables[label] = replace(self._tables.get(label, TableFigures()), records_parked=count)

    def record_totals(self, table: str, totals: TableTotals) -> None:
        """Keep what a table has, by its name; of more than a hundred tables the first ones."""
        with self._lock:
            if table in self._totals or len(self._totals) < _TABLES:
                self._totals[table] = totals

    def _label_of(self, table: str) -> str:
        return table if table in self._tables or len(self._tables) < _TABLES else _OTHER_TABLES

    def snapshot(self) -> MetricsSnapshot:
        """Return the current counters."""
        with self._lock:
            return self._current()

    def snapshot_and_reset(self) -> MetricsSnapshot:
        """Return the current counters and reset them to 0, atomically: nothing counts twice or gets lost.

        The counters of the job's sinks are reset, too.
        """
        with self._lock:
            snapshot = self._current()
            for metrics in (self, *self._sinks.values()):
                metrics._values = dict(_AT_FIRST)
            return snapshot

    def _current(self) -> MetricsSnapshot:
        since = None if self._last_commit is None else time.monotonic() - self._last_commit
        return MetricsSnapshot(**{**self._values, "seconds_since_last_commit": since})

    def _count(self, **amounts: int) -> None:
        with self._lock:
            for metrics in self._all:
                metrics._add(**amounts)

    def _add(self, **amounts: int) -> None:
        for name, amount in amounts.items():
            self._values[name] += amount

    def _add_write(self, result: WriteResult) -> None:
        self._add(records_written=result.rows, bytes_written=result.bytes, files_created=result.files)
        values = self._values
        values["write_latency_us"] += round(result.seconds * 1e6)
        values["worker_memory_bytes"] = max(values["worker_memory_bytes"], result.worker_memory)
        if result.batches:
            least = result.batch_size_min
            values["batch_size_min"] = min(values["batch_size_min"], least) if values["batches_flushed"] else least
            values["batch_size_max"] = max(values["batch_size_max"], result.batch_size_max)
            self._add(batches_flushed=result.batches, batch_size_sum=result.rows)
            values["records_per_batch"] = _with_sizes(values["records_per_batch"], result)

    def _collect(self, prefix: str) -> Iterator[Metric]:
        sinks, job = [*self._sinks.values()], self._labels
        yield from families(prefix, SERIES, [(metrics._labels, metrics.snapshot()) for metrics in sinks or [self]])
        if self.state is not None:
            yield from families(prefix, [_STATE], [({**job, "state": name}, name == self.state) for name in _STATES])
            yield from families(prefix, [_RESTARTS], [(job, self)])
        yield from families(prefix, [LOSSES, *UNFIT, BUILD, _EPOCH, _WATERMARK], [(job, self)])
        yield from families(prefix, [_READ], [({**job, "source": name}, rows) for name, rows in self.by_source.items()])
        lags = [({**job, "source": name}, lag) for name, lag in self.lags.items()]
        yield from families(prefix, _LAG, lags)
        watermarks = [({**job, "source": name}, at) for name, at in self.source_watermarks.items()]
        yield from families(prefix, [_SOURCE_WATERMARK], watermarks)
        yield from families(
            prefix, [_STATE_BYTES], [({**job, "step": name}, size) for name, size in self.by_state.items()]
        )
        tables = [(sink, name, now) for sink in (self, *sinks) for name, now in sink.by_table.items()]
        readings = [({**sink._labels, "table": name}, now) for sink, name, now in tables]
        yield from families(prefix, _TABLE, readings)
        of_tables = [(sink, name, totals) for sink in (self, *sinks) for name, totals in sink.totals.items()]
        totals_of_tables = [({**sink._labels, "table": name}, totals) for sink, name, totals in of_tables]
        yield from families(prefix, _TOTALS, totals_of_tables)
        expected = [({**job, "expectation": name}, now) for name, now in self.by_expectation.items()]
        yield from families(prefix, _EXPECTATION, expected)
        running = self.running
        yield from families(prefix, _RUNNING, [(job, running)] if running else [])

    def __getattr__(self, name: str) -> int:
        if name not in _COUNTERS:
            raise AttributeError(f"Metrics has no {name!r}; its counters are those of MetricsSnapshot")
        counter: int = getattr(self.snapshot(), name)
        return counter

    def __repr__(self) -> str:
        return f"Metrics({self.snapshot()!r})"


def _with_sizes(sizes: Histogram, result: WriteResult) -> Histogram:
    """Add a task's batches: its smallest and largest, and for each other one the mean of the others."""
    between = result.batches - 2
    sizes = sizes.observe(result.batch_size_max)
    if between >= 0:
        sizes = sizes.observe(result.batch_size_min)
    if between > 0:
        rest = result.rows - result.batch_size_min - result.batch_size_max
        sizes = sizes.observe(rest / between, between)
    return sizes
