"""The connectors of YAML: the model of each one's settings, and how they become a source or a sink."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, create_model

from volley.connectors.webhook.auth import BearerAuth, HmacAuth, ServerTls
from volley.connectors.webhook.source import WebhookSource
from volley.documents.collector import Collector
from volley.documents.mistakes import Path
from volley.documents.models import Model, Names, Span, given, model_of
from volley.iceberg.config import IcebergSinkConfig
from volley.iceberg.documents.settings import sink_model, source_model
from volley.iceberg.sink import IcebergSink, RoutedSink
from volley.iceberg.source import IcebergSource
from volley.iceberg.source_config import IcebergSourceConfig
from volley.registry import CONNECTORS, connectors_with, load

if TYPE_CHECKING:
    from volley.contracts.source import Source

__all__ = ["SINK_CONNECTORS", "SOURCE_CONNECTORS", "YamlConnector", "connector_of"]


if TYPE_CHECKING:
    _Tls = Model
else:
    _Tls = model_of(ServerTls)


class Auth(Model):
    """Who may send: those who sign with a secret, or those who have a token."""

    hmac: str | None = Field(None, description="How requests are signed: github, stripe, slack, or a header's name.")
    secret: Names | None = Field(None, description="For hmac: the secret, or two while they rotate.")
    tolerance: Span | None = Field(
        None, description="For hmac: the greatest difference between a signed timestamp and the clock; 5m by default."
    )
    bearer: Names | None = Field(None, description="The token, or several; instead of hmac.")


class _Webhook(Model):
    """Requests of others, as rows."""

    auth: Auth | None = Field(None, description="Who may send; without it, everyone who reaches the port.")
    tls: _Tls | None = Field(None, description="The files for HTTPS; without them, HTTP.")


def webhook_model() -> type[Model]:
    """Return the model of the settings under ``config``."""
    return model_of(WebhookSource, frozenset({"auth", "tls"}), _Webhook)


def webhook_source(values: Any, collector: Collector, path: Path) -> WebhookSource | None:
    """Return the source of a document's values; None after mistakes."""
    model = collector.check(webhook_model(), values, path)
    if model is None:
        return None
    arguments = given(model)
    if arguments.get("auth") is not None:
        arguments["auth"] = _auth(given(arguments["auth"]), collector, (*path, "auth"))
    if arguments.get("tls") is not None:
        arguments["tls"] = collector.make(ServerTls, given(arguments["tls"]), (*path, "tls"))
    source = collector.make(WebhookSource, arguments, path)
    return None if collector.has_mistakes(path) else source


def _auth(values: dict[str, Any], collector: Collector, path: Path) -> HmacAuth | BearerAuth | None:
    kinds = [name for name in ("hmac", "bearer") if name in values]
    if len(kinds) != 1:
        collector.add(path, f"auth has {' and '.join(kinds) or 'neither hmac nor bearer'}", "give one of them")
    elif "bearer" in values:
        for name in values.keys() - {"bearer"}:
            collector.add((*path, name), f"{name} is for hmac, not for bearer", "leave it out", of_key=True)
        return collector.make(BearerAuth, {"token": values["bearer"]}, path, {"token": "bearer"})
    elif "secret" not in values:
        collector.add(path, "secret is missing: hmac needs it", '"${file:/run/secrets/hook}"', of_key=True)
    else:
        arguments = {"scheme" if name == "hmac" else name: value for name, value in values.items()}
        return collector.make(HmacAuth, arguments, path, {"scheme": "hmac"})
    return None


_LOADS = {"incremental": "snapshot", "changes_only": "none"}


class CapturePattern(Model):
    """A table that is captured, or several."""

    name: str = Field(description="The table's name; * and ? stand for any characters.")
    namespace: str = Field("public", description="The table's schema, likewise.")
    sync_mode: Literal["incremental", "changes_only"] = Field(
        "incremental", description="incremental: its rows first, then every change; changes_only: only changes."
    )


class _Postgres(Model):
    """The changes of tables, as rows."""

    tables: Names | None = Field(
        None, description='Tables, "schema.table"; * and ? stand for any characters. Or streams beside config.'
    )


def postgres_model() -> type[Model]:
    """Return the model of the settings under ``config``."""
    return model_of(load("source", "postgres"), frozenset({"tables"}), _Postgres)


def postgres_source(values: Any, collector: Collector, path: Path) -> Source | None:
    """Return the source of a document's values; None after mistakes."""
    settings = {name: value for name, value in values.items() if name != "streams"}
    beside, listed = (*path[:-1], "streams"), values.get("streams", [])
    streams = [collector.check(CapturePattern, stream, (*beside, number)) for number, stream in enumerate(listed)]
    tables = [table for table in streams if table is not None]
    model = collector.check(postgres_model(), settings, path)
    if model is None:
        return None
    arguments = given(model)
    if tables:
        arguments["tables"] = [f"{table.namespace}.{table.name}" for table in tables]
        arguments["load"] = _LOADS[tables[0].sync_mode]
        if len({table.sync_mode for table in tables}) > 1:
            collector.add(beside, "streams differ in sync_mode", "a source of its own for each sync_mode")
    elif not arguments.get("tables"):
        collector.add(beside, "streams are missing", "streams: [{name: orders}]")
        return None
    source: Source | None = collector.make(load("source", "postgres"), arguments, path)
    return None if collector.has_mistakes(path[:-1]) else source


class _Route(Model):
    """How rows go to many tables; see `IcebergSink.routed`."""

    table: str | None = Field(
        None,
        description="The tables' names, with columns in braces; without it, the sink's table is the template.",
    )
    key_fields: Literal["primary_key"] | list[str] | dict[str, list[str]] | None = Field(
        None, description="The key columns for upserts: of all tables, or of each; primary_key = those of packed rows."
    )


Route = model_of(IcebergSink.routed, frozenset({"route", "key_fields"}), _Route)


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


def _routed(sink: IcebergSink, route: Model, collector: Collector, path: Path) -> RoutedSink | None:
    arguments = given(route)
    if "table" in arguments:
        arguments["route"] = arguments.pop("table")
    return collector.make(sink.routed, arguments, path, {"route": "table"})


# Names that documents of 0.2.0 have.
_FORMER_NAMES = {"postgres-cdc": "postgres"}


@dataclass(frozen=True)
class YamlConnector:
    """How settings under ``config`` become a source or a sink.

    Args:
        model: Returns the model of the settings; called when the first one is read.
        build: Returns the source or sink of a document's values at a path; None after mistakes.
        takes_streams: True if ``streams`` may stand beside ``config``; they are one more setting.
        tells_keys: True if its rows tell an upsert their keys.
    """

    model: Callable[[], type[Model]]
    build: Callable[[Any, Collector, Path], Any]
    takes_streams: bool = False
    tells_keys: bool = False


def _of_class(part: Literal["source", "sink"], name: str) -> YamlConnector:
    """Return the connector of a registered class: documents have the arguments of its constructor."""

    def model() -> type[Model]:
        return model_of(load(part, name))

    def build(values: Any, collector: Collector, path: Path) -> Any:
        settings = collector.check(model(), values, path)
        value = None if settings is None else collector.make(load(part, name), given(settings), path)
        return None if collector.has_mistakes(path) else value

    return YamlConnector(model, build)


_OWN_SOURCES = {
    "iceberg": YamlConnector(lambda: source_model(IcebergSourceConfig), iceberg_source),
    "postgres": YamlConnector(postgres_model, postgres_source, takes_streams=True, tells_keys=True),
    "webhook": YamlConnector(webhook_model, webhook_source),
}
_OWN_SINKS = {"iceberg": YamlConnector(iceberg_sink_model, iceberg_sink)}


def _in_yaml(part: Literal["source", "sink"], own: Mapping[str, YamlConnector]) -> dict[str, YamlConnector]:
    names = [name for name in connectors_with(part) if CONNECTORS[name].in_yaml]
    return {name: own.get(name) or _of_class(part, name) for name in names}


SOURCE_CONNECTORS = _in_yaml("source", _OWN_SOURCES)
"""The sources, by the name that stands under ``connector``."""

SINK_CONNECTORS = _in_yaml("sink", _OWN_SINKS)
"""The sinks, by the name that stands under ``connector``."""


def connector_of(name: str, connectors: Mapping[str, YamlConnector]) -> YamlConnector | None:
    """Return the connector of a name, or of one that it had before; None if there is none."""
    return connectors.get(_FORMER_NAMES.get(name, name))
