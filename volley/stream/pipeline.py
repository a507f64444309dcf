"""A stream with its sinks, ready to run, and plans in words."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, Unpack

from volley.checks import class_or_type
from volley.contracts.sink import Sink
from volley.contracts.source import SourceContext
from volley.engine.options import StartOptions
from volley.errors import ConfigError, VolleyError, brief_methods
from volley.plan import graph, nodes
from volley.plan.keyed_nodes import Keyed
from volley.plan.places import caller
from volley.plan.pushdown import used_columns, used_rows
from volley.stream.verbs import UnknownVerb, nearest_verb

if TYPE_CHECKING:
    from volley.engine.job import Job

__all__ = ["Pipeline", "Runner", "as_html", "explained"]


class Runner(Protocol):
    """The part of Environment that streams and pipelines use."""

    def start(self, name: str, *pipelines: Pipeline, **options: Unpack[StartOptions]) -> Job: ...

    def execute(self, name: str, *pipelines: Pipeline, **options: Unpack[StartOptions]) -> Job: ...

    def replay(self, name: str, *pipelines: Pipeline, **options: Unpack[StartOptions]) -> Job: ...


@brief_methods
@dataclass(frozen=True)
class Pipeline:
    """A stream with its sinks, ready to run: alone, or together with others in `Environment.execute`.

    A frozen value, created by `DataStream.to_sink`.

    Example:
        >>> from volley import Environment, MemorySink, MemorySource
        >>> pipeline = Environment().from_source(MemorySource([{"id": 1}])).to_sink(MemorySink("out"))
        >>> pipeline.execute("example").progress.rows  # doctest: +SKIP
        1
    """

    _writes: tuple[nodes.Write, ...]
    _environment: Runner = field(compare=False)

    def to_sink(self, sink: Sink, dead_letter: Sink | str | None = None) -> Pipeline:
        """Write the same rows to another sink, too. They are computed once; each sink commits by itself.

        Args:
            sink: The sink.
            dead_letter: See `DataStream.to_sink`.

        Raises:
            ConfigError: If `sink` is not a sink, or can't have this `dead_letter`.
        """
        return self._with(self._writes[0].input, sink, dead_letter)

    def start(self, name: str, **options: Unpack[StartOptions]) -> Job:
        """Start the pipeline as a job, and return the running job at once. See `Environment.start`."""
        return self._environment.start(name, self, **options)

    def execute(self, name: str, **options: Unpack[StartOptions]) -> Job:
        """Run the pipeline to the end of its bounded sources, or until it is stopped. See `Environment.execute`."""
        return self._environment.execute(name, self, **options)

    def replay(self, name: str, **options: Unpack[StartOptions]) -> Job:
        """Read the dead letters of the job of this name again, through this pipeline. See `Environment.replay`."""
        return self._environment.replay(name, self, **options)

    def explain(self) -> None:
        """Print the logical plan, and what the sources leave out."""
        print(explained(self._writes))

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            hint = f"{nearest_verb(name, Pipeline)}; steps stand before to_sink"
            raise UnknownVerb(f"a pipeline has no {name!r}", hint=hint)

    def __str__(self) -> str:
        return "\n".join(map(graph.describe, self._writes))

    def __repr__(self) -> str:
        return f"Pipeline(\n{self}\n)"

    def _repr_html_(self) -> str:
        return as_html("Pipeline", self._writes)

    def _with(self, node: nodes.Node, sink: Sink, dead_letter: Sink | str | None) -> Pipeline:
        if not isinstance(sink, Sink):
            raise ConfigError(
                f"to_sink takes a Sink, not {class_or_type(sink)}",
                hint="for example IcebergSink(config), FileSink(path), MemorySink(), ConsoleSink()",
            )
        if dead_letter is None:
            destination = sink.dead_letter
        elif isinstance(dead_letter, str):
            destination = sink.dead_letter_at(dead_letter)
        elif isinstance(dead_letter, Sink):
            destination = dead_letter
        else:
            raise ConfigError(
                f"dead_letter takes a Sink, not {class_or_type(dead_letter)}", hint='for example FileSink("bad")'
            )
        return Pipeline((*self._writes, nodes.Write(node, sink, destination, place=caller())), self._environment)


def explained(roots: Sequence[nodes.Node]) -> str:
    """Return plans, by the last node of each, what the sources leave out, and what stays in the sinks."""
    return "\n".join([*map(graph.describe, roots), *_of_levels(roots), *_of_sources(roots), *_of_sinks(roots)])


def _of_levels(roots: Sequence[nodes.Node]) -> Iterator[str]:
    """Yield the keyed steps by their levels, if some follow others."""
    keyed = [node for node in nodes.walk(roots) if isinstance(node, Keyed)]
    levels = graph.levels_of(keyed)
    for number, steps in enumerate(levels if len(levels) > 1 else (), start=1):
        yield from (f"level {number}: {keyed[step].brief}" for step in steps)


def _of_sinks(roots: Sequence[nodes.Node]) -> Iterator[str]:
    """Yield what becomes of the rows in each sink, if it tells more than its repr, and of epochs in several."""
    writes = [root for root in roots if isinstance(root, nodes.Write)]
    for write in writes:
        if (line := write.sink.explain()) is not None:
            yield f"{write.sink.label}: {line}"
    sinks = [sink for write in writes for sink in (write.sink, write.dead_letter) if sink is not None]
    yield from filter(None, dict.fromkeys(sink.explain_together(sinks) for sink in sinks))


def _of_sources(roots: Sequence[nodes.Node]) -> Iterator[str]:
    """Yield what each source would read, if it tells more than its repr."""
    walked = list(nodes.walk(roots))
    followers = graph.followers_in(walked)
    for read in (node for node in walked if isinstance(node, nodes.Read)):
        context = SourceContext("", predicate=used_rows(followers, read), columns=used_columns(followers, read))
        try:
            line = read.source.explain(context)
        except VolleyError as error:
            line = f"not known yet: {error.message}"
        if line is not None:
            yield f"{read.source!r}: {line}"


def as_html(title: str, roots: Sequence[nodes.Node]) -> str:
    """Return plans for a notebook."""
    plans = "\n".join(map(graph.describe, roots))
    return f"<div><b>{html.escape(title)}</b><pre>{html.escape(plans)}</pre></div>"
