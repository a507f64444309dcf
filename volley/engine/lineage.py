"""Tells OpenLineage what a job does: when it starts, what it reads and writes, its progress, and how it ends."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from volley.columns.letters import SCHEMA
from volley.contracts.datasets import Dataset
from volley.contracts.dimension import Dimension
from volley.contracts.sink import Sink
from volley.contracts.source import Source
from volley.engine.listeners import Listener
from volley.engine.options import JobContext
from volley.engine.runs import runs_of
from volley.engine.status import expectations_of
from volley.errors import VolleyError
from volley.lineage.columns import columns_of
from volley.lineage.emitter import Emitter
from volley.lineage.events import LineageRun, Part, State, run_event
from volley.lineage.running import register, unregister
from volley.metrics.figures import FinishedEpoch
from volley.metrics.metrics import Metrics
from volley.metrics.status import JobStatus
from volley.plan.graph import JobGraph
from volley.plan.nodes import Expect, Join, Node, Read, Write, walk
from volley.plan.pushdown import used_columns
from volley.types.arrow import type_name

if TYPE_CHECKING:
    import pyarrow as pa

    from volley.spark.compile import CompiledPlan

__all__ = ["JobLineage", "steps_of"]

_log = logging.getLogger(__name__)
_EVERY_SECONDS = 60.0
_STATES: dict[str, State] = {"finished": "COMPLETE", "stopped": "ABORT", "failed": "FAIL"}
_DIED = "the process of this run ended without saying so: it was killed, or its machine was lost"


class JobLineage(Listener):
    """Tells of one job in this process: one run, with all its restarts. Events are made and sent in another thread.

    Args:
        began: When the job began, as its history has it.
    """

    def __init__(self, context: JobContext, began: datetime, emitter: Emitter) -> None:
        self._context = context
        self._emitter = emitter
        self._run = LineageRun(context.name, began, is_streaming=not context.bounded, plan=steps_of(context.graph))
        self._parts: _Parts | None = None
        self._begun = False
        self._due = 0.0
        self._first: int | None = None
        self._last: int | None = None
        self._error: str | None = None

    def opened(self, plan: CompiledPlan) -> None:
        self._parts = _Parts(plan, self._context.metrics)
        if self._begun:
            self._emit("RUNNING", in_full=True)

    def begin(self, job: str) -> None:
        self._begun = True
        register(self._run)
        self._emit("START", at=self._run.began, in_full=True)
        self._emitter.emit(self._died)

    def refused(self, error: VolleyError) -> None:
        self._emit("START", at=self._run.began)
        self._emit("FAIL", error=str(error))

    def add(self, epoch: FinishedEpoch) -> None:
        self._first = epoch.number if self._first is None else self._first
        self._last = epoch.number
        now = time.monotonic()
        if now >= self._due:
            self._due = now + _EVERY_SECONDS
            self._emit("RUNNING")

    def restarting(self, error: VolleyError) -> None:
        self._emit("RUNNING", error=str(error))

    def failed(self, error: VolleyError) -> None:
        self._error = str(error)

    def end(self, status: Callable[[], JobStatus]) -> None:
        self._emit(_STATES[status().state], error=self._error, in_full=True)
        unregister(self._run)

    def _emit(
        self, state: State, *, at: datetime | None = None, error: str | None = None, in_full: bool = False
    ) -> None:
        """Send an event.

        Args:
            in_full: True: with the columns of datasets, and where they come from.
        """
        tags = (
            {} if self._last is None else {"volley.first_epoch": str(self._first), "volley.last_epoch": str(self._last)}
        )
        moment = at or datetime.now(UTC)
        self._emitter.emit(partial(self._events, self._parts, state, moment, error, tags, in_full))

    def _events(
        self, parts: _Parts | None, state: State, at: datetime, error: str | None, tags: dict[str, str], in_full: bool
    ) -> Iterator[object]:
        inputs = parts.inputs(in_full) if parts else []
        outputs = parts.outputs(in_full) if parts else []
        origins = parts.origins if parts else {}
        yield run_event(self._run, state, at, inputs, outputs, origins=origins, error=error, tags=tags)

    def _died(self) -> Iterator[object]:
        """Yield the end of the run before, if its process was killed: else it would seem to run for ever."""
        runs = [run for run in runs_of(self._context.checkpoint.url) if run.began < self._run.began]
        if runs and (runs[-1].ended is None or runs[-1].state == "died"):
            last = LineageRun(self._context.name, runs[-1].began, is_streaming=self._run.is_streaming)
            yield run_event(last, "FAIL", runs[-1].ended or self._run.began, error=_DIED)


def steps_of(graph: JobGraph) -> str:
    """Return the steps of a job as text, a line each, with the numbers of those before."""
    return "\n".join(_line(node, graph.numbers) for node in graph.nodes)


def _line(node: Node, numbers: Mapping[int, int]) -> str:
    before = ", ".join(str(numbers[id(source)] + 1) for source in node.inputs)
    return f"{numbers[id(node)] + 1}. {node.label()}{f' (of {before})' if before else ''}"


class _Parts:
    """What a run of a job reads and writes. Datasets are asked for once, in the thread that sends events."""

    def __init__(self, plan: CompiledPlan, metrics: Metrics) -> None:
        self._graph = plan.graph
        self._metrics = metrics
        self._schemas = plan.schemas
        self._written: dict[tuple[int, tuple[str, ...]], Sequence[Dataset]] = {}
        self._origins: dict[int, Sequence[Dataset]] | None = None

    @property
    def origins(self) -> dict[int, Sequence[Dataset]]:
        """The datasets of each source, and of each table that a stream is joined with."""
        if self._origins is None:
            tables = [node.join.table for node in self._graph.nodes if isinstance(node, Join)]
            sources: list[Source | Dimension] = [*(read.source for read in self._graph.reads), *tables]
            self._origins = {id(source): _known(source.datasets) for source in sources}
        return self._origins

    def inputs(self, in_full: bool) -> Iterator[Part]:
        """Yield what it reads."""
        rows, expected = self._metrics.by_source, {one.name: one for one in expectations_of(self._graph, self._metrics)}
        for read in self._graph.reads:
            datasets = self.origins[id(read.source)]
            # Rows of several datasets are counted together.
            count = rows.get(read.source.identity, 0) if len(datasets) == 1 else None
            fields = _fields(self._schema_of(read)) if in_full else ()
            checks = [expected[name] for name in self._expected_of(read) if expected[name].rows]
            for dataset in datasets:
                yield _told(Part(dataset, fields, rows=count, expectations=checks), in_full)
        for node in self._graph.nodes:
            if isinstance(node, Join):
                yield from (_told(Part(dataset), in_full) for dataset in self.origins[id(node.join.table)])

    def outputs(self, in_full: bool) -> Iterator[Part]:
        """Yield what it writes: the sinks, then the dead letters."""
        sinks = [*(write.sink for write in self._graph.writes), *self._graph.letters]
        counts = list(self._metrics.by_sink.values())
        count = len(self._graph.writes)
        for number, (sink, metrics) in enumerate(zip(sinks, counts, strict=False)):
            write = self._graph.writes[number] if number < count else None
            schema = self._schemas.known(write) if write else SCHEMA
            yield from self._output(sink, metrics, write, schema if in_full else None)

    def _output(self, sink: Sink, metrics: Metrics, write: Write | None, schema: pa.Schema | None) -> Iterator[Part]:
        now, tables = metrics.snapshot(), metrics.by_table
        columns = columns_of(write, self._names) if write is not None and schema is not None else None
        for dataset in self._datasets(sink, tuple(tables), again=schema is not None):
            part = _told(Part(dataset, _fields(schema), columns), schema is not None)
            if write is None:
                yield replace(part, rows=now.records_failed)
            elif tables:
                figures = tables.get(dataset.table[1]) if dataset.table else None
                yield replace(part, rows=figures.records_written if figures else None)
            else:
                yield replace(part, rows=now.records_written, bytes=now.bytes_written, files=now.files_created)

    def _expected_of(self, read: Read) -> list[str]:
        """Return the names of what is expected of rows that a source has given."""
        steps = [node for node in self._graph.nodes if isinstance(node, Expect)]
        return list(dict.fromkeys(step.name for step in steps if any(node is read for node in walk([step]))))

    def _datasets(self, sink: Sink, tables: tuple[str, ...], again: bool) -> Sequence[Dataset]:
        """Return what a sink writes; `again`: its tables may have other columns than before."""
        key = id(sink), tables
        if again or key not in self._written:
            self._written[key] = _known(partial(sink.datasets, tables))
        return self._written[key]

    def _names(self, node: Node) -> Sequence[str]:
        if isinstance(node, Join):
            return sorted(node.added or ())
        names: list[str] = self._schemas.known(node).names
        return names

    def _schema_of(self, read: Read) -> pa.Schema | None:
        """Return the columns of a source; None if only those that the job uses are known."""
        declared = read.source.declared()
        if declared is not None:
            return declared
        return self._schemas.known(read) if used_columns(self._graph.followers, read) is None else None


def _told(part: Part, in_full: bool) -> Part:
    """Return a part with the columns that the dataset has itself: a table may lack some of a stream."""
    own = part.dataset.fields
    if not in_full or not own:
        return part
    names = {name for name, _ in own}
    columns = part.columns
    if columns is not None:
        kept = {name: origins for name, origins in columns.values.items() if name in names}
        columns = replace(columns, values=kept)
    return replace(part, fields=own, columns=columns)


def _known(datasets: Callable[[], Sequence[Dataset]]) -> Sequence[Dataset]:
    try:
        return datasets()
    except VolleyError as error:
        _log.info("lineage: a dataset is left out: %s", error.message)
        return ()


def _fields(schema: pa.Schema | None) -> Sequence[tuple[str, str]]:
    return () if schema is None else [(field.name, type_name(field.type)) for field in schema]
