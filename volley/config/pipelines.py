"""Builds the pipelines of a file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from volley.config.models import BranchModel, EndpointModel, PipelineModel, RestartModel
from volley.config.rows import rows_of
from volley.config.scope import Parts, Scope
from volley.config.steps import apply_steps
from volley.config.values import Branch, ConfiguredPipeline
from volley.connectors.console import ConsoleSink
from volley.contracts.sink import Sink
from volley.documents.mistakes import Path
from volley.documents.models import given
from volley.engine.restart import Restart
from volley.errors import ConfigError
from volley.stream.pipeline import Pipeline
from volley.stream.stream import DataStream

__all__ = ["PipelineBuilder"]

_RESTART = {"restart": "policy", "max_restarts": "limit", "backoff": "backoff"}


class PipelineBuilder:
    """Builds pipelines.

    Args:
        runtime: What holds for all pipelines.
    """

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
        stream = rows_of(model, self._scope, path)
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
    ) -> Iterator[tuple[Branch, Pipeline]]:
        """Yield the branches of a stream with their pipelines; a stream without a split is one branch."""
        if model.split is None:
            names = self._sink_names(model, path)
            yield Branch(stream, names), self._pipeline(stream, names, dead_letter, path)
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

    def _check_branches(self, branches: Sequence[Branch], path: Path) -> None:
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
        letters: Sink | str | None = dead_letter
        if dead_letter is not None and dead_letter in self._sinks.values:
            letters = self._sinks.find(dead_letter, (*path, "dead_letter"))
        if dead_letter in names:
            self._collector.add((*path, "dead_letter"), f"dead_letter {dead_letter!r} is a sink of the pipeline itself")
        try:
            pipeline: Any = stream
            for name in names:
                with self._scope.at(("sinks", name)):
                    pipeline = pipeline.to_sink(self._sinks.values.get(name) or ConsoleSink(), letters)
            return pipeline if names else stream.to_sink(ConsoleSink())
        except ConfigError as error:
            self._collector.add((*path, "dead_letter"), error.message, error.hint)
            return stream.to_sink(ConsoleSink())

    def _restart(self, model: PipelineModel, path: Path) -> Restart:
        common = {_RESTART[name]: value for name, value in given(self._runtime).items() if name in _RESTART}
        own = {_RESTART[name]: value for name, value in given(model).items() if name in _RESTART}
        settings = {name: value for name, value in {**common, **own}.items() if value is not None}
        return self._collector.make(Restart, settings, path) or Restart()
