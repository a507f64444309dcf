"""Iceberg sources and sinks in YAML, and sinks of many tables."""

from __future__ import annotations

from functools import cache
from typing import Any, Literal

from pydantic import Field, create_model

from volley.documents.collector import Collector
from volley.documents.mistakes import Path
from volley.documents.models import Model, Names, Whole, given
from volley.iceberg.config import IcebergSinkConfig
from volley.iceberg.documents.sinks import sink_model
from volley.iceberg.sink import IcebergSink, RoutedSink
from volley.iceberg.source import IcebergSource
from volley.iceberg.source_config import IcebergSourceConfig

__all__ = ["iceberg_sink", "iceberg_sink_model", "iceberg_source"]


class Route(Model):
    """How rows go to many tables; see `IcebergSink.routed`."""

    table: str | None = Field(
        None,
        description="The tables' names, with columns in braces; without it, the sink's table is the template.",
    )
    key_fields: Literal["primary_key"] | list[str] | dict[str, list[str]] | None = Field(
        None, description="The key columns for upserts: of all tables, or of each; primary_key = those of packed rows."
    )
    create: bool = Field(True, description="Make tables that are missing.")
    rows: str | None = Field(None, description="The column of packed rows.")
    omit: Names | None = Field(None, description="Columns that are not written.")
    limit: Whole = Field(500, description="The most tables.")
    max_open_writers: Whole = Field(100, description="The most tables with an open file in one task.")
    commits_at_once: Whole = Field(8, description="The most tables that are committed at the same time.")
    on_error: Literal["fail", "park"] = Field("fail", description="What to do if a table can't take its rows.")


@cache
def iceberg_sink_model() -> type[Model]:
    """Return the model of the sink's settings, with its route."""
    base: Any = IcebergSinkConfig
    route: Any = (Route | None, Field(None, description="Write each row to the table that its columns name."))
    return create_model("IcebergSink", __base__=sink_model(base), route=route)


def iceberg_source(values: Any, collector: Collector, path: Path) -> IcebergSource | None:
    """Return the source of a document's values; None after mistakes."""
    config = IcebergSourceConfig.from_document(values, collector, path)
    return None if config is None else IcebergSource(config)


def iceberg_sink(values: Any, collector: Collector, path: Path) -> IcebergSink | RoutedSink | None:
    """Return the sink of a document's values, of one table or of many; None after mistakes."""
    settings = {name: value for name, value in values.items() if name != "route"}
    route = None if values.get("route") is None else collector.check(Route, values["route"], (*path, "route"))
    config = IcebergSinkConfig.from_document(settings, collector, path)
    if config is None:
        return None
    if route is None:
        return IcebergSink(config)
    return _routed(IcebergSink(config), route, collector, (*path, "route"))


def _routed(sink: IcebergSink, route: Route, collector: Collector, path: Path) -> RoutedSink | None:
    arguments = given(route)
    if "table" in arguments:
        arguments["route"] = arguments.pop("table")
    return collector.make(sink.routed, arguments, path, {"route": "table"})
