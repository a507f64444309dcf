"""Puts together what is known of a running job: `Job.status`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from volley.columns.letters import only_column
from volley.engine.options import JobContext
from volley.engine.progress import Progress
from volley.metrics.figures import ExpectationFigures, FinishedEpoch, NodeFigures
from volley.metrics.metrics import Metrics
from volley.metrics.snapshot import MetricsSnapshot
from volley.metrics.status import ExpectationStatus, GraphNode, JobStatus, Minute, SinkStatus, SourceStatus, TableStatus
from volley.plan.graph import JobGraph
from volley.plan.keyed_nodes import Keyed, Side
from volley.plan.nodes import Node, Read, Write

__all__ = ["expectations_of", "status_of"]

_MOST_RECENT = 100
_OF_PROGRESS = (
    *("epoch", "epochs", "skipped", "rows", "rejected", "files", "bytes", "seconds", "running", "restarts"),
    "replayed",
)
_HOUR = timedelta(hours=1)


def status_of(job: JobContext, progress: Progress, epochs: Sequence[FinishedEpoch]) -> JobStatus:
    """Return what a job's progress, metrics and epochs tell.

    Args:
        epochs: The last one first.
    """
    metrics, last = job.metrics, epochs[0] if epochs else None
    return JobStatus(
        job.name,
        progress.state.value,
        **{name: getattr(progress, name) for name in _OF_PROGRESS},
        late=_rejected(metrics.snapshot()),
        rows_per_second=last.rows / last.seconds if last and last.seconds else 0.0,
        recent=tuple(reversed(epochs[:_MOST_RECENT])),
        minutes=_minutes(epochs, datetime.now(UTC)),
        graph=_graph(job.graph, metrics),
        sources=_sources(metrics),
        sinks=_sinks(job.graph, metrics),
        tables=tuple(_tables(metrics)),
        expectations=tuple(expectations_of(job.graph, metrics)),
        letters=tuple(metrics.letters),
    )


def expectations_of(graph: JobGraph, metrics: Metrics) -> Iterator[ExpectationStatus]:
    """Yield the expectations of a job with what has become of them."""
    figures = metrics.by_expectation
    for name, step in graph.expectations.items():
        now, limit = figures.get(name, ExpectationFigures()), step.limit
        column = only_column(step.predicate)
        told = (name, repr(step.predicate), column, step.on_fail, limit)
        yield ExpectationStatus(*told, now.rows, now.failed, now.unknown)


def _graph(graph: JobGraph, metrics: Metrics) -> tuple[GraphNode, ...]:
    """Return a job's graph, with the rows that came to each of its nodes so far."""
    numbers, figures, written = graph.numbers, metrics.by_node, _metrics_of_sinks(graph, metrics)
    nodes: list[GraphNode] = []
    for number, node in enumerate(graph.nodes):
        inputs = tuple(numbers[id(source)] for source in node.inputs)
        found = GraphNode(number, _kind(node), node.brief, inputs)
        sink = written.get(id(node.sink)) if isinstance(node, Write) else None
        nodes.append(_with_figures(found, node, nodes, figures.get(number, NodeFigures()), sink))
    for number, letter in enumerate(graph.letters, start=len(nodes)):
        writes = tuple(numbers[id(write)] for write in graph.writes if write.dead_letter == letter)
        bad = written[id(letter)].records_failed if id(letter) in written else 0
        nodes.append(GraphNode(number, "dead letter", Write(graph.writes[0], letter).brief, writes, bad))
    return tuple(nodes)


def _kind(node: Node) -> str:
    if isinstance(node, Read | Write):
        return "source" if isinstance(node, Read) else "sink"
    return "keyed" if isinstance(node, Keyed) else "step"


def _with_figures(
    node: GraphNode, step: Node, before: Sequence[GraphNode], now: NodeFigures, sink: Metrics | None
) -> GraphNode:
    """Return a node with what has come to it.

    Args:
        before: The nodes with smaller numbers, its inputs among them.
        sink: The counters of its sink, if it is one.
    """
    rows, rate, inputs = now.rows, now.rows_per_second, [before[source] for source in node.inputs]
    if isinstance(step, Write | Side):
        # They pass on what they get.
        rows = sink.records_written if sink else sum(source.rows for source in inputs)
        rate = sum(source.rows_per_second for source in inputs)
    kept: Any = {"bad": now.bad, "rejected": now.rejected, "state_bytes": now.state_bytes}
    return replace(node, rows=rows, rows_per_second=rate, **kept)


def _sources(metrics: Metrics) -> tuple[SourceStatus, ...]:
    """Return the sources of a job by their names, with the rows read of them, their lags and watermarks."""
    read, lags, watermarks = metrics.by_source, metrics.lags_by_source, metrics.source_watermarks
    names = dict.fromkeys([*read, *lags])
    return tuple(SourceStatus(name, read.get(name, 0), lags.get(name), watermarks.get(name)) for name in names)


def _sinks(graph: JobGraph, metrics: Metrics) -> tuple[SinkStatus, ...]:
    """Return the sinks, then the dead letters, in the order in which their metrics were asked for."""
    of_sinks = enumerate(metrics.by_sink.items())
    return tuple(_sink(name, sink, number >= len(graph.writes)) for number, (name, sink) in of_sinks)


def _sink(name: str, metrics: Metrics, is_letter: bool) -> SinkStatus:
    now = metrics.snapshot()
    return SinkStatus(
        name,
        rows=now.records_failed if is_letter else now.records_written,
        bytes=now.bytes_written,
        files=now.files_created,
        commits=now.commits_success,
        commits_failed=now.commits_failed,
        rejected=_rejected(now),
        seconds_since_last_commit=now.seconds_since_last_commit,
        watermark=metrics.watermark,
    )


def _tables(metrics: Metrics) -> Iterator[TableStatus]:
    for sink, of_sink in metrics.by_sink.items():
        totals, figures = of_sink.totals, of_sink.by_table
        for name in dict.fromkeys([*totals, *figures]):
            parked = figures[name].records_parked if name in figures else 0
            yield TableStatus(sink, name, totals.get(name), parked)


def _minutes(epochs: Iterable[FinishedEpoch], now: datetime) -> tuple[Minute, ...]:
    """Return what was written in each minute of the last hour.

    Args:
        epochs: The last ones first.
    """
    # One that commits each second has 3,600 epochs in an hour: add numbers, and make the values at the end.
    rows, count = Counter[int](), Counter[int]()
    for epoch in _since(epochs, now - _HOUR):
        assert epoch.ended is not None
        minute = int(epoch.ended.timestamp() // 60)
        rows[minute] += epoch.rows
        count[minute] += 1
    return tuple(Minute(datetime.fromtimestamp(at * 60, UTC), rows[at], count[at]) for at in sorted(count))


def _since(epochs: Iterable[FinishedEpoch], first: datetime) -> Iterator[FinishedEpoch]:
    for epoch in epochs:
        if epoch.ended is None or epoch.ended < first:
            return
        yield epoch


def _metrics_of_sinks(graph: JobGraph, metrics: Metrics) -> dict[int, Metrics]:
    """Return the metrics of each sink and dead letter by its id; they were asked for in this order."""
    sinks = [*(write.sink for write in graph.writes), *graph.letters]
    return {id(sink): of_sink for sink, of_sink in zip(sinks, metrics.by_sink.values(), strict=False)}


def _rejected(now: MetricsSnapshot) -> int:
    return now.rows_late + now.rows_ahead + now.rows_untimed
