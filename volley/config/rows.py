"""The rows of a pipeline or a view: a source, a filter, steps."""

from __future__ import annotations

from volley.config.models import RowsModel
from volley.config.scope import Scope
from volley.config.steps import apply_steps
from volley.connectors.rate import RateSource
from volley.documents.mistakes import Path
from volley.stream.stream import DataStream

__all__ = ["rows_of"]


def rows_of(model: RowsModel, scope: Scope, path: Path) -> DataStream:
    """Return the rows; behind a source with mistakes, those of another one, so that the steps can be looked at."""
    stream = scope.stream(model.source, (*path, "source")) or scope.environment.from_source(RateSource())
    predicate = None if model.filter is None else scope.expression(model.filter, (*path, "filter"))
    with scope.at((*path, "filter")):
        stream = stream if predicate is None else stream.filter(predicate)
    return apply_steps(stream, model.steps or [], scope, (*path, "steps"))
