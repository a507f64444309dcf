"""Makes a replay of a job's pipelines: the same steps and sinks, over the dead letters in place of the sources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from volley.columns.roles import ChangeColumns
from volley.contracts.sink import Sink
from volley.contracts.source import SourceContext, SparkSource
from volley.errors import ConfigError, PlanError
from volley.iceberg.letters import LETTER_KEY, LettersSource
from volley.iceberg.modes import Upsert
from volley.iceberg.sink import IcebergSink
from volley.plan import nodes
from volley.plan.graph import JobGraph, rebuilt
from volley.types.arrow import canonical_schema

__all__ = ["REPLAY", "replay_of"]

REPLAY = ".replay"
"""What follows a job's name in that of its replay."""


def replay_of(graph: JobGraph, job: str, state: str) -> JobGraph:
    """Return the graph of a job's replay.

    Args:
        graph: The graph of the job's pipelines, mended.
        state: The fsspec URL of the folder with the job's state: schemas that its sources have inferred.

    Raises:
        PlanError: If rows can't be read again through these pipelines.
        ConfigError: If the schema of a source is not known.
    """
    _check(graph)
    letters = _table_of(graph)
    labels = tuple(write.sink.label for write in graph.writes)
    reads = {
        id(read): nodes.Read(
            LettersSource(
                letters.config, job, read.source, _schema_of(read, f"{state}/{name}"), labels, len(graph.reads) == 1
            ),
            place=read.place,
        )
        for read, name in zip(graph.reads, graph.state_names, strict=True)
    }
    marked = IcebergSink(letters.config.with_commit_mode(Upsert(LETTER_KEY)))
    return JobGraph.of([_marking(write, marked) for write in _over(graph, reads)])


def _over(graph: JobGraph, reads: Mapping[int, nodes.Read]) -> Sequence[nodes.Node]:
    return rebuilt(graph.writes, lambda node: reads.get(id(node), node))


def _marking(write: nodes.Node, letters: Sink) -> nodes.Write:
    assert isinstance(write, nodes.Write)
    return write if write.dead_letter is None else replace(write, dead_letter=letters)


def _check(graph: JobGraph) -> None:
    """Raise PlanError if rows can't be read again through a job's steps, or into its sinks."""
    if graph.keyed:
        raise PlanError(
            f"a replay through {graph.keyed[0].label()}: its state has moved on, so the rows would come too late",
            hint="replay the pipelines without such steps; for these, mend the rows and send them to the source again",
        )
    for write in graph.writes:
        if write.sink.overwrites:
            raise PlanError(
                f"a replay into {write.sink!r}: it would replace the rows that are there",
                hint="replay into a sink that appends, or upserts",
            )
    labels = [write.sink.label for write in graph.writes]
    if twice := sorted({label for label in labels if labels.count(label) > 1}):
        raise PlanError(
            f"a replay with two sinks named {twice[0]}: letters name the sinks that lack them",
            hint="replay the pipelines one by one",
        )


def _table_of(graph: JobGraph) -> IcebergSink:
    """Return the only dead letter of a job."""
    if len(graph.letters) != 1:
        some = "no dead letter" if not graph.letters else f"{len(graph.letters)} dead letters"
        raise PlanError(
            f"a replay of pipelines with {some}",
            hint='name one: to_sink(sink, dead_letter="bad_events"); replay pipelines with several one by one',
        )
    (letters,) = graph.letters
    if not isinstance(letters, IcebergSink):
        raise PlanError(
            f"a replay of {letters!r}, where letters can't be marked as replayed",
            hint='keep dead letters in an Iceberg table: with_dead_letter("bad_events"); rows in files can be mended '
            "and given to the source again",
        )
    return letters


def _schema_of(read: nodes.Read, state: str) -> pa.Schema:
    """Return the schema of a source's rows, without opening it."""
    schema = None if isinstance(read.source, SparkSource) else read.source.preview(SourceContext(state))
    if schema is None:
        raise ConfigError(
            f"a replay needs the schema of {read.source!r}, which its settings don't tell",
            hint='declare it: schema="id long, name string"',
        )
    changes = ChangeColumns.of(schema)
    if changes.operation is not None and not changes.sequence:
        raise PlanError(
            f"a replay of changes of {read.source!r}: an old change would take the place of newer ones",
            hint="load the table again in place of that; changes with a sequence can be replayed: "
            "PostgresSource(…, sequence=True)",
        )
    return canonical_schema(schema)
