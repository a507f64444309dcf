"""Loads a file of pipelines: parses it, builds its parts, looks how they fit together; raises all mistakes at once."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path as FilePath
from typing import Any

import yaml

from volley.checks import mapping, optional
from volley.checks import path as checked_path
from volley.config.connectors import SINK_CONNECTORS, SOURCE_CONNECTORS, YamlConnector, connector_of
from volley.config.models import DocumentModel, PartModel, PipelineModel, RestartModel, RuntimeModel
from volley.config.pipelines import PipelineBuilder, configured_view
from volley.config.scope import Parts, Scope
from volley.config.values import Config, ConfiguredBranch, ConfiguredPipeline
from volley.contracts.sink import Sink
from volley.contracts.source import Source
from volley.documents.collector import Collector
from volley.documents.mistakes import Mistake, Path, error_of, is_secret, nearest
from volley.documents.models import given
from volley.documents.references import References, is_reference
from volley.documents.yaml_text import Document, parse
from volley.environment import Environment
from volley.errors import ConfigError, VolleyError, brief
from volley.secrets import MASK, redact, redact_uri

__all__ = ["check_file", "load_config"]


def shown(document: Document) -> str:
    """Return a document as YAML: with references instead of their values, and secrets masked.

    Example:
        >>> from volley.documents.references import References
        >>> from volley.documents.yaml_text import parse
        >>> text = "{host: '${HOST:-db}', password: hunter2}"
        >>> print(shown(parse(text, "a.yaml", References({}))), end="")
        host: ${HOST:-db}
        password: '***'
    """
    text: str = yaml.safe_dump(_shown(document, document.value, ()), sort_keys=False, allow_unicode=True, width=120)
    return text


def _shown(document: Document, value: Any, path: Path) -> Any:
    if isinstance(value, dict):
        return {key: _shown(document, inner, (*path, key)) for key, inner in value.items()}
    if isinstance(value, list):
        return [_shown(document, inner, (*path, number)) for number, inner in enumerate(value)]
    text = document.references.get(path, value)
    if is_secret(path) and not (isinstance(text, str) and is_reference(text)):
        return MASK
    return redact_uri(text) if isinstance(text, str) else text


def check_columns(pipelines: Iterable[ConfiguredPipeline], scope: Scope, sinks: Parts[Sink]) -> None:
    """Note each step and each setting of a sink that does not fit the columns of its rows."""
    for pipeline in pipelines:
        for branch in pipeline.branches:
            _check_branch(branch, ("pipelines", pipeline.name), scope, sinks)


def _check_branch(branch: ConfiguredBranch, path: Path, scope: Scope, sinks: Parts[Sink]) -> None:
    from volley.engine.collect import declared_schema

    try:
        schema = declared_schema(branch.stream._node)
    except VolleyError as problem:
        scope.collector.add(scope.paths.get(problem.place or "", path), problem.message, problem.hint)
        return
    for name in branch.sinks if schema is not None else ():
        sink = sinks.values[name]
        assert sink is not None, "a file with mistakes is not looked at"
        try:
            sink.check_columns(schema)
        except VolleyError as problem:
            scope.collector.add_within(("sinks", name, "config"), problem)


def assemble(
    file: str, document: DocumentModel, collector: Collector, text: str, secrets: set[str], columns: bool = False
) -> Config:
    """Return what a document says; mistakes are left out of it.

    Args:
        text: The document, to be shown.
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
    writes = [write for pipeline in pipelines.values() if pipeline.enabled for write in _writes_of(pipeline)]
    writes += [(("views", name, "sink"), name, view.sink) for name, view in views.items() if view.enabled]
    _check_writers(writes, sinks.values, collector)
    _check_keys(document, pipelines, collector)
    if columns and not collector.mistakes:
        check_columns(pipelines.values(), scope, sinks)
    warnings = tuple(f"{parts.kind} {name!r} is not used" for parts in (sinks, sources) for name in parts.unused)
    return Config(file, environment, found_sources, found_sinks, pipelines, views, warnings, text, secrets)


def _parts(
    parts: Mapping[str, Any] | None, connectors: Mapping[str, YamlConnector], section: str, collector: Collector
) -> Iterator[tuple[str, Any]]:
    """Yield sources or sinks with their names; None for one with mistakes."""
    for name, values in (parts or {}).items():
        path: Path = (section, name)
        part = collector.check(PartModel, values, path)
        yield name, _part(connectors, part, collector, path) if part else None


def _part(connectors: Mapping[str, YamlConnector], part: PartModel, collector: Collector, path: Path) -> Any:
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
    """Note each upsert and history without keys that gets rows of a source that does not tell them."""
    for name, values in (document.sinks or {}).items():
        config = _mapping(_mapping(values).get("config"))
        mode = config.get("commit_mode")
        if mode not in ("upsert", "history") or {"key_fields", "route"} & {*config}:
            continue
        writers = [pipeline for pipeline in pipelines.values() if name in pipeline.sinks]
        if not writers or not all(_tells_keys(document, pipeline) for pipeline in writers):
            path = ("sinks", name, "config", "key_fields")
            collector.add(path, f"key_fields are missing: commit_mode {mode} needs them", "key_fields: [id]")


def _tells_keys(document: DocumentModel, pipeline: ConfiguredPipeline) -> bool:
    """Return True if the rows of a pipeline tell an upsert their keys."""
    if _mapping((document.pipelines or {}).get(pipeline.name)).get("changes_from_snapshots") is not None:
        return True
    source = _mapping((document.sources or {}).get(pipeline.sources[0]))
    connector = connector_of(str(source.get("connector")), SOURCE_CONNECTORS)
    return connector is not None and connector.tells_keys


def _mapping(values: Any) -> Mapping[str, Any]:
    return values if isinstance(values, Mapping) else {}


@brief
def load_config(path: str | os.PathLike[str], variables: Mapping[str, str] | None = None) -> Config:
    """Return the sources, sinks and pipelines of a YAML file: the same values as Python builds. Nothing is opened.

    Args:
        path: The file; `docs/yaml.md` describes it.
        variables: The environment variables for ``${NAME}``; None = those of this process.

    Raises:
        ConfigError: If the file can't be read or has mistakes: the message has all of them, each with line and column.
        MissingDependencyError: If a package is not installed that an expression or a connector needs.

    Example:
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     file = Path(folder, "volley.yaml")
        ...     _ = file.write_text('''
        ... sources: {events: {connector: files, config: {path: "in/*.json"}}}
        ... sinks: {out: {connector: console}}
        ... pipelines: {show: {source: events, sink: out, steps: [{drop: [note]}]}}
        ... ''')
        ...     config = load_config(file)
        >>> print(config.pipelines["show"].pipeline)
        write ConsoleSink(rows=20)
          drop 'note'
            read FileSource(path='in/*.json', format='json')
    """
    file, environment = checked_path("path", path), optional(mapping)("variables", variables)
    config, mistakes, secrets = check_file(file, environment)
    if config is None:
        error = error_of(os.fspath(file), mistakes)
        raise ConfigError(redact(error.message, secrets), error.hint and redact(error.hint, secrets))
    return config


def check_file(
    path: str | os.PathLike[str], variables: Mapping[str, str] | None = None, columns: bool = False
) -> tuple[Config | None, list[Mistake], set[str]]:
    """Return what a file says, or None and its mistakes; and the secrets that messages must not show.

    Args:
        variables: The environment variables; None = those of this process.
        columns: Look whether steps and sinks fit the columns that sources declare, too.
    """
    file = FilePath(path)
    references = References(os.environ if variables is None else variables, file.parent)
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        hint = "check the path; volley init writes a first file" if isinstance(error, OSError) else "save it as UTF-8"
        return None, [Mistake(f"the file can't be read: {reason}", (), hint)], set()
    document = parse(text, os.fspath(path), references)
    collector = Collector(document)
    config = _config(document, collector, references, columns)
    return (None if collector.mistakes else config), collector.mistakes, references.secrets


def _config(document: Document, collector: Collector, references: References, columns: bool) -> Config | None:
    values: Any = document.value
    if collector.mistakes and values is None:
        return None
    if values is None:
        collector.add((), "the file is empty", "volley init writes a first one")
        return None
    top = collector.check(DocumentModel, values)
    if top is None:
        return None
    if top.version is not None and str(top.version) not in ("1", "1.0"):
        collector.add(("version",), f"version {top.version!r} is unknown", '"1.0"')
    # A file with mistakes becomes no pipeline, and is not shown.
    text = "" if collector.mistakes else shown(document)
    return assemble(document.file, top, collector, text, references.secrets, columns)
