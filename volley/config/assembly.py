"""Builds sources, sinks and pipelines of a document, and looks at how they fit together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from volley.config.connectors import SINK_CONNECTORS, SOURCE_CONNECTORS, Connector
from volley.config.models import DocumentModel, EndpointModel, PartModel, PipelineModel, RestartModel, RuntimeModel
from volley.config.scope import Scope
from volley.config.steps import apply_steps
from volley.config.values import Config, ConfiguredPipeline, Restart
from volley.connectors.console.sink import ConsoleSink
from volley.connectors.rate import RateSource
from volley.documents.collector import Collector
from volley.documents.mistakes import Path, nearest
from volley.documents.models import given
from volley.environment import Environment
from volley.errors import ConfigError
from volley.pipeline import Pipeline
from volley.sink import Sink
from volley.source import Source
from volley.stream import DataStream

__all__ = ["assemble"]

P = TypeVar("P", Source, Sink)
_RESTART = {"restart": "policy", "max_restarts": "limit", "backoff": "backoff"}


def assemble(file: str, document: DocumentModel, collector: Collector, text: str, secrets: set[str]) -> Config:
    """Return what a document says; mistakes are left out of it.

    Args:
        file: The document's name.
        document: Its parts.
        collector: Takes the mistakes.
        text: The document, to be shown.
        secrets: Values that messages must not show.
    """
    runtime: Any = collector.check(RuntimeModel, document.runtime, ("runtime",)) or RuntimeModel.model_construct()
    settings = {name: value for name, value in given(runtime).items() if name not in _RESTART}
    environment = collector.make(Environment, settings, ("runtime",)) or Environment()
    sources = dict(_parts(document.sources, SOURCE_CONNECTORS, "sources", collector, RateSource()))
    sinks = dict(_parts(document.sinks, SINK_CONNECTORS, "sinks", collector, ConsoleSink()))
    assembly = _Assembly(collector, environment, sources, sinks, runtime)
    pipelines = {}
    for name, values in (document.pipelines or {}).items():
        model = collector.check(PipelineModel, values, ("pipelines", name))
        if model is not None:
            pipelines[name] = assembly.pipeline(name, model)
    _check_writers(pipelines, sinks, collector)
    _check_keys(document, collector)
    warnings = tuple(_unused(document, pipelines))
    return Config(file, environment, sources, sinks, pipelines, warnings, text, secrets)


def _parts(
    parts: Mapping[str, Any] | None, connectors: Mapping[str, Connector], kind: str, collector: Collector, other: P
) -> Iterator[tuple[str, P]]:
    """Yield sources or sinks with their names; one with mistakes as `other`, so that its pipelines can be looked at."""
    for name, values in (parts or {}).items():
        path: Path = (kind, name)
        part = collector.check(PartModel, values, path)
        yield name, (_part(connectors, part, collector, path) if part else None) or other


def _part(connectors: Mapping[str, Connector], part: PartModel, collector: Collector, path: Path) -> Any:
    """Return a source or sink; None after mistakes."""
    connector = connectors.get(part.connector)
    if connector is None:
        hint = nearest(part.connector, connectors)
        collector.add((*path, "connector"), f"there is no connector {part.connector!r} among the {path[0]}", hint)
        return None
    settings = dict(part.config or {})
    if part.streams is not None and not connector.takes_streams:
        collector.add((*path, "streams"), f"{part.connector} has no streams", "leave them out", of_key=True)
    elif part.streams is not None:
        settings["streams"] = part.streams
    return connector.build(settings, collector, (*path, "config"))


class _Assembly:
    """Builds pipelines.

    Args:
        collector: Takes the mistakes.
        environment: Where they run.
        sources: The sources, by name.
        sinks: The sinks, by name.
        runtime: What holds for all pipelines.
    """

    def __init__(
        self,
        collector: Collector,
        environment: Environment,
        sources: Mapping[str, Source],
        sinks: Mapping[str, Sink],
        runtime: RestartModel,
    ) -> None:
        self._collector = collector
        self._sinks = sinks
        self._runtime = runtime
        self._streams = {name: environment.from_source(source) for name, source in sources.items()}
        self._any = environment.from_source(RateSource())

    def pipeline(self, name: str, model: PipelineModel) -> ConfiguredPipeline:
        """Return a pipeline."""
        path = ("pipelines", name)
        stream = self._stream(model, path)
        names = self._sink_names(model, path)
        pipeline = self._pipeline(stream, names, model.dead_letter, path)
        options: Any = {key: value for key, value in given(model).items() if key in EndpointModel.model_fields}
        return ConfiguredPipeline(
            name, stream, pipeline, model.source, names, model.enabled, self._restart(model, path), options
        )

    def _stream(self, model: PipelineModel, path: Path) -> DataStream:
        if model.source not in self._streams:
            hint = nearest(model.source, self._streams)
            self._collector.add((*path, "source"), f"there is no source {model.source!r}", hint)
        scope = Scope(self._collector, self._streams)
        stream = self._streams.get(model.source, self._any)
        predicate = None if model.filter is None else scope.expression(model.filter, (*path, "filter"))
        stream = stream if predicate is None else stream.filter(predicate)
        return apply_steps(stream, model.steps or [], scope, (*path, "steps"))

    def _sink_names(self, model: PipelineModel, path: Path) -> tuple[str, ...]:
        if model.sink is not None and model.sinks is not None:
            self._collector.add((*path, "sinks"), "sink and sinks are both given", "give one of them", of_key=True)
        if model.sink is None and not model.sinks:
            self._collector.add((*path, "sink"), "sink is missing", "the name of a sink, or sinks: a list of names")
        listed = [((*path, "sink"), model.sink)] if model.sink is not None else []
        listed += [((*path, "sinks", number), name) for number, name in enumerate(model.sinks or [])]
        for place, name in listed:
            if name not in self._sinks:
                self._collector.add(place, f"there is no sink {name!r}", nearest(name, self._sinks))
        return tuple(name for _, name in listed if name in self._sinks)

    def _pipeline(self, stream: DataStream, names: tuple[str, ...], dead_letter: str | None, path: Path) -> Pipeline:
        letters: Sink | str | None = None if dead_letter is None else self._sinks.get(dead_letter, dead_letter)
        if dead_letter in names:
            self._collector.add((*path, "dead_letter"), f"dead_letter {dead_letter!r} is a sink of the pipeline itself")
        targets: list[Any] = [self._sinks[name] for name in names] or [ConsoleSink()]
        try:
            pipeline: Any = stream
            for target in targets:
                pipeline = pipeline.to_sink(target, letters)
            return pipeline  # type: ignore[no-any-return]
        except ConfigError as error:
            self._collector.add((*path, "dead_letter"), error.message, error.hint)
            return stream.to_sink(ConsoleSink())

    def _restart(self, model: PipelineModel, path: Path) -> Restart:
        common = {_RESTART[name]: value for name, value in given(self._runtime).items() if name in _RESTART}
        own = {_RESTART[name]: value for name, value in given(model).items() if name in _RESTART}
        settings = {name: value for name, value in {**common, **own}.items() if value is not None}
        return self._collector.make(Restart, settings, path) or Restart()


def _check_writers(
    pipelines: Mapping[str, ConfiguredPipeline], sinks: Mapping[str, Sink], collector: Collector
) -> None:
    """Two jobs that write to one table take it for their own: note each sink after the first."""
    writers: dict[str, str] = {}
    for pipeline in pipelines.values():
        if not pipeline.enabled:
            continue
        key = "sinks" if len(pipeline.sinks) > 1 else "sink"
        path = ("pipelines", pipeline.name, key)
        for name, count in Counter(pipeline.sinks).items():
            target = sinks[name].target
            if count > 1:
                collector.add(path, f"sink {name!r} is there twice", "once is enough")
            elif target is not None and target in writers:
                collector.add(
                    path,
                    f"pipelines {writers[target]!r} and {pipeline.name!r} both write to {target}",
                    "let one write there, for example with a union step; or give each a table of its own",
                )
            elif target is not None:
                writers[target] = pipeline.name


def _check_keys(document: DocumentModel, collector: Collector) -> None:
    """Note each upsert without keys that gets rows of a source that does not tell them."""
    connectors = {name: _mapping(values).get("connector") for name, values in (document.sources or {}).items()}
    pipelines = [_mapping(values) for values in (document.pipelines or {}).values()]
    for name, values in (document.sinks or {}).items():
        config = _mapping(_mapping(values).get("config"))
        if config.get("commit_mode") != "upsert" or {"key_fields", "route"} & {*config}:
            continue
        sources = {each.get("source") for each in pipelines if name in (each.get("sink"), *(each.get("sinks") or []))}
        known = [SOURCE_CONNECTORS.get(str(connectors.get(str(source)))) for source in sources]
        if not known or not all(connector is not None and connector.tells_keys for connector in known):
            path = ("sinks", name, "config", "key_fields")
            collector.add(path, "key_fields are missing: commit_mode upsert needs them", "key_fields: [id]")


def _mapping(values: Any) -> Mapping[str, Any]:
    return values if isinstance(values, Mapping) else {}


def _unused(document: DocumentModel, pipelines: Mapping[str, ConfiguredPipeline]) -> Iterator[str]:
    text = [values for values in (document.pipelines or {}).values() if isinstance(values, dict)]
    used_sinks = {name for pipeline in pipelines.values() for name in pipeline.sinks}
    used_sinks |= {str(values.get("dead_letter")) for values in text}
    steps = [step for values in text for step in values.get("steps") or [] if isinstance(step, dict)]
    unions = [step["union"] for step in steps if "union" in step]
    used_sources = {pipeline.source for pipeline in pipelines.values()}
    used_sources |= {name for names in unions for name in ([names] if isinstance(names, str) else names)}
    yield from (f"sink {name!r} is not used" for name in document.sinks or {} if name not in used_sinks)
    yield from (f"source {name!r} is not used" for name in document.sources or {} if name not in used_sources)
