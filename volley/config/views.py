"""Builds the materialised views of a file."""

from __future__ import annotations

from functools import cache
from typing import Any

from pydantic import Field, create_model

from volley.config.models import RowsModel
from volley.config.rows import rows_of
from volley.config.scope import Parts, Scope
from volley.config.values import ConfiguredView
from volley.contracts.sink import Sink
from volley.documents.models import Span, given, model_of
from volley.iceberg.sink import IcebergSink
from volley.stream.views import MaterializedView

__all__ = ["configured_view", "view_model"]


class _View(RowsModel):
    """A table that is kept equal to a query over Iceberg tables."""

    source: str = Field(description="The name of an Iceberg source.")
    sink: str = Field(description="The name of an Iceberg sink: the table to keep it in.")
    enabled: bool = Field(True, description="False: volley run leaves it out.")
    interval: Span | None = Field(None, description="How often to look for new snapshots; 10s by default.")


@cache
def view_model() -> type[_View]:
    """Return the model of a view."""
    own = model_of(MaterializedView, frozenset({"name", "query", "into"})).model_fields
    definitions: dict[str, Any] = {name: (field.annotation, field) for name, field in own.items()}
    return create_model("View", __base__=_View, __doc__=_View.__doc__, **definitions)


def configured_view(name: str, values: Any, scope: Scope, sinks: Parts[Sink]) -> ConfiguredView | None:
    """Return the view of a document's values; None after mistakes."""
    path = ("views", name)
    model = scope.collector.check(view_model(), values, path)
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
    view = scope.collector.make(MaterializedView, arguments, path, {"query": "steps", "into": "sink"})
    if view is None:
        return None
    waits = {} if model.interval is None else {"interval": model.interval}
    return scope.collector.make(
        ConfiguredView, {"view": view, "sources": sources, "sink": model.sink, "enabled": model.enabled, **waits}
    )
