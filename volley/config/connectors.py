"""The connectors of YAML: the model of each one's settings, and how they become a source or a sink."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from volley.config.iceberg import iceberg_sink, iceberg_sink_model, iceberg_source
from volley.config.postgres import postgres_model, postgres_source
from volley.config.webhook import webhook_model, webhook_source
from volley.documents.collector import Collector
from volley.documents.mistakes import Path
from volley.documents.models import Model, given, model_of
from volley.iceberg.documents.sources import source_model
from volley.iceberg.source_config import IcebergSourceConfig
from volley.registry import SINKS, SOURCES, load

__all__ = ["SINK_CONNECTORS", "SOURCE_CONNECTORS", "Connector"]


@dataclass(frozen=True)
class Connector:
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


def _of_class(table: dict[str, str], name: str) -> Connector:
    """Return the connector of a registered class: documents have the arguments of its constructor."""

    def model() -> type[Model]:
        return model_of(load(table, name))

    def build(values: Any, collector: Collector, path: Path) -> Any:
        settings = collector.check(model(), values, path)
        value = None if settings is None else collector.make(load(table, name), given(settings), path)
        return None if collector.has_mistakes(path) else value

    return Connector(model, build)


SOURCE_CONNECTORS = {
    "files": _of_class(SOURCES, "files"),
    "iceberg": Connector(lambda: source_model(IcebergSourceConfig), iceberg_source),
    "kafka": _of_class(SOURCES, "kafka"),
    "postgres-cdc": Connector(postgres_model, postgres_source, takes_streams=True, tells_keys=True),
    "rate": _of_class(SOURCES, "rate"),
    "webhook": Connector(webhook_model, webhook_source),
}
"""The sources, by the name that stands under ``connector``."""

SINK_CONNECTORS = {
    "console": _of_class(SINKS, "console"),
    "files": _of_class(SINKS, "files"),
    "iceberg": Connector(iceberg_sink_model, iceberg_sink),
    "kafka": _of_class(SINKS, "kafka"),
}
"""The sinks, by the name that stands under ``connector``."""
