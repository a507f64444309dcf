"""Builds the sources, sinks, pipelines and views of a document, and looks at how they fit together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from volley.config.columns import check_columns
from volley.config.connectors import SINK_CONNECTORS, SOURCE_CONNECTORS, Connector, connector_of
from volley.config.models import DocumentModel, PartModel, PipelineModel, RestartModel, RuntimeModel
from volley.config.pipelines import PipelineBuilder
from volley.config.scope import Parts, Scope
from volley.config.values import Config, ConfiguredPipeline
from volley.config.views import configured_view
from volley.contracts.sink import Sink
from volley.contracts.source import Source
from volley.documents.collector import Collector
from volley.documents.mistakes import Path, nearest
from volley.documents.models import given
from volley.environment import Environment

__all__ = ["assemble"]


def assemble(
    file: str, document: DocumentModel, collector: Collector, text: str, secrets: set[str], columns: bool = False
) -> Config:
    """Return what a document says; mistakes are left out of it.

    Args:
        document: Its parts.
        text: The document, to be shown.
        secrets: Values that messages must not show.
        columns: True: look whether steps and sinks fit the columns that sources declare, too.
    """
    runtime: Any = collector.check(RuntimeModel, document.runtime, ("runtime",)) or RuntimeModel.model_construct()
    settings = {name: value for name, value in given(runtime).items() if name not in RestartModel.model_fields}
    environment = collector.make(Environment, settings, ("runtime",)) or Environment()
    found_sources = dict(_parts(document.sources, SOURCE_CONNECTORS, "sources", collector))
    found_sinks = dict(_parts(document.sinks, SINK_CONNECTORS, "sinks", collector))
    sources: Parts[Source] = Parts("source", found_sources, collector)
    sinks: Parts[Sink] = Parts("sink", found_sinks, collector)
    scope = Scope(collector, environment, sources)
    pipelines = dict(_pipelines(document.pipelines or {}, PipelineBuilder(scope, sinks, runtime), collector))
    views = {}
    for name, values in (document.views or {}).items():
        if name in (document.pipelines or {}):
            collector.add(("views", name), f"there is a pipeline {name!r}, too", "give the view another name")
        view = configured_view(name, values, scope, sinks)
        if view is not None:
            views[name] = view
    writes = [write for each in pipelines.values() if each.enabled for write in _writes_of(each)]
    writes += [(("views", name, "sink"), name, view.sink) for name, view in views.items() if view.enabled]
    _check_writers(writes, sinks.values, collector)
    _check_keys(document, pipelines, collector)
    if columns and not collector.mistakes:
        check_columns(pipelines.values(), scope, sinks)
    warnings = tuple(f"{parts.kind} {name!r} is not used" for parts in (sinks, sources) for name in parts.unused)
    return Config(file, environment, found_sources, found_sinks, pipelines, views, warnings, text, secrets)


def _parts(
    parts: Mapping[str, Any] | None, connectors: Mapping[str, Connector], kind: str, collector: Collector
) -> Iterator[tuple[str, Any]]:
    """Yield sources or sinks with their names; None for one with mistakes."""
    for name, values in (parts or {}).items():
        path: Path = (kind, name)
        part = collector.check(PartModel, values, path)
        yield name, _part(connectors, part, collector, path) if part else None


def _part(connectors: Mapping[str, Connector], part: PartModel, collector: Collector, path: Path) -> Any:
    """Return a source or sink; None after mistakes."""
    connector = connector_of(part.connector, connectors)
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


def _pipelines(
    documents: Mapping[str, Any], builder: PipelineBuilder, collector: Collector
) -> Iterator[tuple[str, ConfiguredPipeline]]:
    for name, values in documents.items():
        model = collector.check(PipelineModel, values, ("pipelines", name))
        if model is not None:
            yield name, builder.pipeline(name, model)


def _writes_of(pipeline: ConfiguredPipeline) -> Iterator[tuple[Path, str, str]]:
    """Yield each sink of a pipeline: its place, the pipeline's name, its own name."""
    key = "split" if len(pipeline.branches) > 1 else "sinks" if len(pipeline.sinks) > 1 else "sink"
    for name in sorted(set(pipeline.sinks)):
        yield ("pipelines", pipeline.name, key), pipeline.name, name


def _check_writers(
    writes: Iterable[tuple[Path, str, str]], sinks: Mapping[str, Sink | None], collector: Collector
) -> None:
    """Two jobs that write to one table take it for their own: note each writer after the first."""
    writers: dict[str, str] = {}
    for path, writer, name in writes:
        sink = sinks.get(name)
        target = None if sink is None else sink.target
        if target is None:
            continue
        if target in writers:
            collector.add(
                path,
                f"{writers[target]!r} and {writer!r} both write to {target}",
                "let one write there, for example with a union step; or give each a table of its own",
            )
        writers.setdefault(target, writer)


def _check_keys(document: DocumentModel, pipelines: Mapping[str, ConfiguredPipeline], collector: Collector) -> None:
    """Note each upsert without keys that gets rows of a source that does not tell them."""
    connectors = {name: _mapping(values).get("connector") for name, values in (document.sources or {}).items()}
    for name, values in (document.sinks or {}).items():
        config = _mapping(_mapping(values).get("config"))
        if config.get("commit_mode") != "upsert" or {"key_fields", "route"} & {*config}:
            continue
        sources = {each.sources[0] for each in pipelines.values() if name in each.sinks}
        known = [connector_of(str(connectors.get(source)), SOURCE_CONNECTORS) for source in sources]
        if not known or not all(connector is not None and connector.tells_keys for connector in known):
            path = ("sinks", name, "config", "key_fields")
            collector.add(path, "key_fields are missing: commit_mode upsert needs them", "key_fields: [id]")


def _mapping(values: Any) -> Mapping[str, Any]:
    return values if isinstance(values, Mapping) else {}
