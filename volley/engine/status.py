"""Puts together what is known of a running job: `Job.status`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta

from volley.engine.options import JobContext
from volley.engine.progress import Progress
from volley.metrics.figures import FinishedEpoch
from volley.metrics.metrics import Metrics
from volley.metrics.snapshot import MetricsSnapshot
from volley.metrics.status import GraphNode, JobStatus, Minute, SinkStatus, SourceStatus
from volley.plan.graph import JobGraph
from volley.plan.keyed_nodes import Keyed
from volley.plan.nodes import Read, Write

__all__ = ["status_of"]

_MOST_RECENT = 100
_OF_PROGRESS = ("epoch", "epochs", "skipped", "rows", "rejected", "files", "bytes", "seconds", "running", "restarts")
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
    )


def _graph(graph: JobGraph, metrics: Metrics) -> tuple[GraphNode, ...]:
    """Return a job's graph, with the rows that sources have given and that sinks have got so far."""
    ids = {id(node): number for number, node in enumerate(graph.nodes)}
    read = metrics.by_source
    written = _metrics_of_sinks(graph, metrics)
    nodes = []
    for number, node in enumerate(graph.nodes):
        inputs = tuple(ids[id(source)] for source in node.inputs)
        label = node.brief
        if isinstance(node, Read):
            nodes.append(GraphNode(number, "source", label, inputs, rows=read.get(node.source.identity, 0)))
        elif isinstance(node, Write):
            sink = written.get(id(node.sink))
            rows, rejected = (sink.records_written, _rejected(sink.snapshot())) if sink else (0, 0)
            nodes.append(GraphNode(number, "sink", label, inputs, rows, rejected))
        else:
            nodes.append(GraphNode(number, "keyed" if isinstance(node, Keyed) else "step", label, inputs))
    for number, letter in enumerate(graph.letters, start=len(nodes)):
        writes = tuple(ids[id(write)] for write in graph.writes if write.dead_letter == letter)
        sink = written.get(id(letter))
        label = Write(graph.writes[0], letter).brief
        nodes.append(GraphNode(number, "dead letter", label, writes, sink.records_failed if sink else 0))
    return tuple(nodes)


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


def _minutes(epochs: Iterable[FinishedEpoch], now: datetime) -> tuple[Minute, ...]:
    """Return what was written in each minute of the last hour.

    Args:
        epochs: The last ones first.
    """
    counted: dict[datetime, Minute] = {}
    for epoch in _since(epochs, now - _HOUR):
        assert epoch.ended is not None
        at = epoch.ended.replace(second=0, microsecond=0)
        before = counted.get(at, Minute(at, 0, 0))
        counted[at] = Minute(at, before.rows + epoch.rows, before.epochs + 1)
    return tuple(counted[at] for at in sorted(counted))


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
