"""Looks whether steps and sinks fit the columns that the sources of a file declare; reaches nothing."""

from __future__ import annotations

from collections.abc import Iterable

from volley.config.scope import Parts, Scope
from volley.config.values import Branch, ConfiguredPipeline
from volley.contracts.sink import Sink
from volley.documents.mistakes import Path
from volley.errors import VolleyError

__all__ = ["check_columns"]


def check_columns(pipelines: Iterable[ConfiguredPipeline], scope: Scope, sinks: Parts[Sink]) -> None:
    """Note each step and each setting of a sink that does not fit the columns of its rows."""
    for pipeline in pipelines:
        for branch in pipeline.branches:
            _check_branch(branch, ("pipelines", pipeline.name), scope, sinks)


def _check_branch(branch: Branch, path: Path, scope: Scope, sinks: Parts[Sink]) -> None:
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
