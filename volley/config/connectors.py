"""The connectors of YAML: the model of each one's settings, and how they become a source or a sink."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from pydantic import Field, create_model

from volley.connectors.files.notifications import AzureQueue, PubSubSubscription, SqsQueue
from volley.connectors.webhook.auth import (
    Auth,
    BearerAuth,
    HmacAuth,
    PublicKeyAuth,
    ServerTls,
    SignatureScheme,
    SnsAuth,
)
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
    _Scheme = Model
    _Sqs = Model
    _PubSub = Model
    _Azure = Model
else:
    _Tls, _Scheme = model_of(ServerTls), model_of(SignatureScheme)
    _Sqs, _PubSub, _Azure = model_of(SqsQueue), model_of(PubSubSubscription), model_of(AzureQueue)


class WebhookAuth(Model):
    """Who may send: those who sign with a secret or a key, those who have a token, or topics of SNS."""

    hmac: str | None = Field(
        None,
        description="How requests are signed with a secret: github, shopify, slack, stripe, standard, svix, a header's "
        "name, or custom, which is described under scheme.",
    )
    secret: Names | None = Field(None, description="For hmac: the secret, or two while they rotate.")
    public_key: str | None = Field(
        None, description="How requests are signed with the sender's private key: sendgrid, or custom."
    )
    key: Names | None = Field(None, description="For public_key: the sender's public key, or two while they rotate.")
    scheme: _Scheme | None = Field(None, description="For custom: how the sender signs.")
    tolerance: Span | None = Field(
        None,
        description="For hmac and public_key: the greatest difference between a signed timestamp and the clock; 5m by "
        "default.",
    )
    sns: Names | None = Field(None, description="The ARN of a topic of Amazon SNS, or several.")
    bearer: Names | None = Field(None, description="The token, or several.")


class _Webhook(Model):
    """Requests of others, as rows."""

    auth: WebhookAuth | None = Field(None, description="Who may send; without it, everyone who reaches the port.")
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


class _AuthForm(NamedTuple):
    """What a way of `auth` becomes."""

    make: type[Any]
    argument: str  # what the setting of the way's name is
    needs: str | None  # the setting that it needs beside
    takes: frozenset[str]  # those that it may have


_FORMS = {
    "hmac": _AuthForm(HmacAuth, "scheme", "secret", frozenset({"hmac", "secret", "scheme", "tolerance"})),
    "public_key": _AuthForm(PublicKeyAuth, "scheme", "key", frozenset({"public_key", "key", "scheme", "tolerance"})),
    "sns": _AuthForm(SnsAuth, "topics", None, frozenset({"sns"})),
    "bearer": _AuthForm(BearerAuth, "token", None, frozenset({"bearer"})),
}
_NEEDED = {"secret": '"${file:/run/secrets/hook}"', "key": "the text that the sender shows"}


def _auth(values: dict[str, Any], collector: Collector, path: Path) -> Auth | None:
    ways = [name for name in _FORMS if name in values]
    if len(ways) != 1:
        told = " and ".join(ways) or f"none of {', '.join(_FORMS)}"
        collector.add(path, f"auth has {told}", "give one of them")
        return None
    (way,) = ways
    form = _FORMS[way]
    for name in sorted(values.keys() - form.takes):
        users = " and ".join(other for other, known in _FORMS.items() if name in known.takes)
        collector.add((*path, name), f"{name} is for {users}, not for {way}", "leave it out", of_key=True)
    if form.needs is not None and form.needs not in values:
        collector.add(path, f"{form.needs} is missing: {way} needs it", _NEEDED[form.needs], of_key=True)
        return None
    arguments = {
        form.argument if name == way else name: values[name] for name in values if name in form.takes - {"scheme"}
    }
    if "scheme" in form.takes and not _set_scheme(arguments, values, collector, path, way):
        return None
    auth: Auth | None = collector.make(form.make, arguments, path, {form.argument: way})
    return auth


def _set_scheme(arguments: dict[str, Any], values: dict[str, Any], collector: Collector, path: Path, way: str) -> bool:
    """Set the scheme that a document describes; return False if it does not fit."""
    if (values[way] == "custom") != ("scheme" in values):
        collector.add(
            path,
            f"{way} is {values[way]!r}, and scheme is {'there' if 'scheme' in values else 'missing'}",
            f"{way}: custom, with a scheme",
        )
        return False
    if "scheme" in values:
        arguments["scheme"] = collector.make(SignatureScheme, given(values["scheme"]), (*path, "scheme"))
    return arguments["scheme"] is not None


class Notifications(Model):
    """Where a storage tells of new files."""

    sqs: _Sqs | None = Field(None, description="A queue of Amazon SQS, with the events of S3.")
    azure: _Azure | None = Field(None, description="A queue of Azure's storage, with the events of Event Grid.")
    pub_sub: _PubSub | None = Field(None, description="A subscription of Pub/Sub, with the notifications of GCS.")


class _Files(Model):
    """Files, as rows."""

    notifications: Notifications | None = Field(
        None, description="Where the storage tells of new files; without it, the folder is listed for each epoch."
    )


def files_model() -> type[Model]:
    """Return the model of the settings under ``config``."""
    return model_of(load("source", "files"), frozenset({"notifications"}), _Files)


def files_source(values: Any, collector: Collector, path: Path) -> Source | None:
    """Return the source of a document's values; None after mistakes."""
    model = collector.check(files_model(), values, path)
    if model is None:
        return None
    arguments = given(model)
    if arguments.get("notifications") is not None:
        told = given(arguments["notifications"])
        if len(told) != 1:
            collector.add((*path, "notifications"), f"notifications has {len(told)} queues", "sqs, azure, or pub_sub")
            return None
        ((name, queue),) = told.items()
        make = {"sqs": SqsQueue, "azure": AzureQueue, "pub_sub": PubSubSubscription}[name]
        arguments["notifications"] = collector.make(make, given(queue), (*path, "notifications", name))
    source: Source | None = collector.make(load("source", "files"), arguments, path)
    return None if collector.has_mistakes(path) else source


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
    "files": YamlConnector(files_model, files_source),
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
