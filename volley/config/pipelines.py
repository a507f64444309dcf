"""Builds the pipelines and views of a file: the rows of a source, a filter, steps, sinks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import Field

from volley.config.models import BranchModel, EndpointModel, PipelineModel, RestartModel, RowsModel
from volley.config.scope import Parts, Scope
from volley.config.steps import apply_steps
from volley.config.values import ConfiguredBranch, ConfiguredPipeline, ConfiguredView
from volley.connectors.console import ConsoleSink
from volley.connectors.rate import RateSource
from volley.contracts.sink import Sink
from volley.documents.mistakes import Path
from volley.documents.models import Model, Span, given, model_of
from volley.engine.restart import Restart
from volley.errors import ConfigError
from volley.iceberg.sink import IcebergSink
from volley.stream.pipeline import Pipeline
from volley.stream.stream import DataStream
from volley.views.view import MaterializedView

__all__ = ["PipelineBuilder", "configured_view", "view_model"]


def rows_of(model: RowsModel, scope: Scope, path: Path, snapshots: Model | None = None) -> DataStream:
    """Return the rows; behind a source with mistakes, those of another one, so that the steps can be looked at.

    Args:
        snapshots: How the source's extracts are compared; None = they are not.
    """
    stream = _first_rows(model, scope, path, snapshots) or scope.environment.from_source(RateSource())
    predicate = None if model.filter is None else scope.expression(model.filter, (*path, "filter"))
    with scope.at((*path, "filter")):
        stream = stream if predicate is None else stream.filter(predicate)
    return apply_steps(stream, model.steps or [], scope, (*path, "steps"))


def _first_rows(model: RowsModel, scope: Scope, path: Path, snapshots: Model | None) -> DataStream | None:
    """Return the rows of the source, or of the query; None if they have mistakes."""
    if model.query is None:
        if model.source is not None:
            return scope.stream(model.source, (*path, "source"), snapshots)
        scope.collector.add((*path, "source"), "source is missing", "the name of a source, or query: select …")
        return None
    for name in {"source", "changes_from_snapshots"} & given(model).keys():
        scope.collector.add((*path, name), f"{name} beside query", "the query names its sources", of_key=True)
    return scope.query(model.query, (*path, "query"))


class _View(RowsModel):
    """A table that is kept equal to a query over Iceberg tables."""

    source: str | None = Field(None, description="The name of an Iceberg source.")
    sink: str = Field(description="The name of an Iceberg sink: the table to keep it in.")
    enabled: bool = Field(True, description="False: volley run leaves it out.")
    interval: Span | None = Field(None, description="How often to look for new snapshots; 10s by default.")


def view_model() -> type[Model]:
    """Return the model of a view."""
    return model_of(MaterializedView, frozenset({"name", "query", "into"}), _View)


def configured_view(name: str, values: Any, scope: Scope, sinks: Parts[Sink]) -> ConfiguredView | None:
    """Return the view of a document's values; None after mistakes."""
    path = ("views", name)
    model: Any = scope.collector.check(view_model(), values, path)
    if model is None:
        return None
    others = len(scope.sources.used)
    query = rows_of(model, scope, path)
    sources = tuple(dict.fromkeys(scope.sources.used[others:]))
    sink = sinks.find(model.sink, (*path, "sink"))
    if sink is not None and not isinstance(sink, IcebergSink):
        scope.collector.add((*path, "sink"), f"sink {model.sink!r} is no Iceberg table", "a view is kept in one")
    if not isinstance(sink, IcebergSink) or any(scope.sources.values.get(name) is None for name in sources):
        return None
    arguments = {key: value for key, value in given(model).items() if key in MaterializedView.__dataclass_fields__}
    arguments |= {"name": name, "query": query, "into": sink.config}
    view = scope.collector.make(
        MaterializedView, arguments, path, {"query": "query" if model.query else "steps", "into": "sink"}
    )
    if view is None:
        return None
    waits = {} if model.interval is None else {"interval": model.interval}
    return scope.collector.make(
        ConfiguredView, {"view": view, "sources": sources, "sink": model.sink, "enabled": model.enabled, **waits}
    )


_RESTART = {"restart": "policy", "max_restarts": "limit", "backoff": "backoff"}


class PipelineBuilder:
    """Builds pipelines."""

    def __init__(self, scope: Scope, sinks: Parts[Sink], runtime: RestartModel) -> None:
        self._scope = scope
        self._collector = scope.collector
        self._sinks = sinks
        self._runtime = runtime

    def pipeline(self, name: str, model: PipelineModel) -> ConfiguredPipeline:
        """Return a pipeline."""
        path = ("pipelines", name)
        sources = self._scope.sources
        others = len(sources.used)
        stream = rows_of(model, self._scope, path, model.changes_from_snapshots)
        ends = list(self._ends(stream, model, model.dead_letter, path))
        self._check_branches([branch for branch, _ in ends], path)
        writes = tuple(write for _, pipeline in ends for write in pipeline._writes)
        options: Any = {key: value for key, value in given(model).items() if key in EndpointModel.model_fields}
        return ConfiguredPipeline(
            name=name,
            stream=stream,
            pipeline=Pipeline(writes, self._scope.environment),
            sources=tuple(dict.fromkeys(sources.used[others:])),
            branches=tuple(branch for branch, _ in ends),
            enabled=model.enabled,
            restart=self._restart(model, path),
            options=options,
        )

    def _ends(
        self, stream: DataStream, model: BranchModel, dead_letter: str | None, path: Path
    ) -> Iterator[tuple[ConfiguredBranch, Pipeline]]:
        """Yield the branches of a stream with their pipelines; a stream without a split is one branch."""
        if model.split is None:
            names = self._sink_names(model, path)
            yield ConfiguredBranch(stream, names), self._pipeline(stream, names, dead_letter, path)
            return
        for name in {"sink", "sinks"} & given(model).keys():
            self._collector.add((*path, name), f"{name} beside split", "its branches have sinks", of_key=True)
        split = given(model.split)
        path = (*path, "split")
        predicate = self._scope.expression(split["if"], (*path, "if"))
        with self._scope.at((*path, "if")):
            streams = (stream, stream) if predicate is None else stream.split(predicate)
        for name, rows in zip(("then", "else"), streams, strict=True):
            branch, place = split[name], (*path, name)
            rows = apply_steps(rows, branch.steps or [], self._scope, (*place, "steps"))
            yield from self._ends(rows, branch, branch.dead_letter or dead_letter, place)

    def _check_branches(self, branches: Sequence[ConfiguredBranch], path: Path) -> None:
        names = [name for branch in branches for name in set(branch.sinks)]
        for name, count in Counter(names).items():
            if count > 1:
                hint = "give each branch a sink of its own"
                self._collector.add((*path, "split"), f"sink {name!r} is in {count} branches", hint)

    def _sink_names(self, model: BranchModel, path: Path) -> tuple[str, ...]:
        if model.sink is not None and model.sinks is not None:
            self._collector.add((*path, "sinks"), "sink and sinks are both given", "give one of them", of_key=True)
        if model.sink is None and not model.sinks:
            self._collector.add((*path, "sink"), "sink is missing", "the name of a sink, or sinks: a list of names")
        listed = [((*path, "sink"), model.sink)] if model.sink is not None else []
        listed += [((*path, "sinks", number), name) for number, name in enumerate(model.sinks or [])]
        for number, (place, name) in enumerate(listed):
            if any(other == name for _, other in listed[:number]):
                self._collector.add(place, f"sink {name!r} is there twice", "once is enough")
            self._sinks.find(name, place)
        return tuple(name for _, name in listed)

    def _pipeline(self, stream: DataStream, names: tuple[str, ...], dead_letter: str | None, path: Path) -> Pipeline:
        dead_letters: Sink | str | None = dead_letter
        if dead_letter is not None and dead_letter in self._sinks.values:
            dead_letters = self._sinks.find(dead_letter, (*path, "dead_letter"))
        if dead_letter in names:
            self._collector.add((*path, "dead_letter"), f"dead_letter {dead_letter!r} is a sink of the pipeline itself")
        try:
            pipeline: Any = stream
            for name in names:
                with self._scope.at(("sinks", name)):
                    pipeline = pipeline.to_sink(self._sinks.values.get(name) or ConsoleSink(), dead_letters)
            return pipeline if names else stream.to_sink(ConsoleSink())
        except ConfigError as error:
            self._collector.add((*path, "dead_letter"), error.message, error.hint)
            return stream.to_sink(ConsoleSink())

    def _restart(self, model: PipelineModel, path: Path) -> Restart:
        common = {_RESTART[name]: value for name, value in given(self._runtime).items() if name in _RESTART}
        own = {_RESTART[name]: value for name, value in given(model).items() if name in _RESTART}
        settings = {name: value for name, value in {**common, **own}.items() if value is not None}
        return self._collector.make(Restart, settings, path) or Restart()
