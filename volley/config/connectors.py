"""The connectors of YAML: the model of each one's settings, and how they become a source or a sink."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from volley.config.iceberg import iceberg_sink, iceberg_sink_model, iceberg_source
from volley.config.postgres import postgres_model, postgres_source
from volley.config.webhook import webhook_model, webhook_source
from volley.documents.collector import Collector
from volley.documents.mistakes import Path
from volley.documents.models import Model, given, model_of
from volley.iceberg.documents.sources import source_model
from volley.iceberg.source_config import IcebergSourceConfig
from volley.registry import CONNECTORS, connectors_with, load

__all__ = ["SINK_CONNECTORS", "SOURCE_CONNECTORS", "Connector", "connector_of"]

# Names that documents of 0.2.0 have.
_FORMER_NAMES = {"postgres-cdc": "postgres"}


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


def _of_class(part: Literal["source", "sink"], name: str) -> Connector:
    """Return the connector of a registered class: documents have the arguments of its constructor."""

    def model() -> type[Model]:
        return model_of(load(part, name))

    def build(values: Any, collector: Collector, path: Path) -> Any:
        settings = collector.check(model(), values, path)
        value = None if settings is None else collector.make(load(part, name), given(settings), path)
        return None if collector.has_mistakes(path) else value

    return Connector(model, build)


_OWN_SOURCES = {
    "iceberg": Connector(lambda: source_model(IcebergSourceConfig), iceberg_source),
    "postgres": Connector(postgres_model, postgres_source, takes_streams=True, tells_keys=True),
    "webhook": Connector(webhook_model, webhook_source),
}
_OWN_SINKS = {"iceberg": Connector(iceberg_sink_model, iceberg_sink)}


def _in_yaml(part: Literal["source", "sink"], own: Mapping[str, Connector]) -> dict[str, Connector]:
    names = [name for name in connectors_with(part) if CONNECTORS[name].in_yaml]
    return {name: own.get(name) or _of_class(part, name) for name in names}


SOURCE_CONNECTORS = _in_yaml("source", _OWN_SOURCES)
"""The sources, by the name that stands under ``connector``."""

SINK_CONNECTORS = _in_yaml("sink", _OWN_SINKS)
"""The sinks, by the name that stands under ``connector``."""


def connector_of(name: str, connectors: Mapping[str, Connector]) -> Connector | None:
    """Return the connector of a name, or of one that it had before; None if there is none."""
    return connectors.get(_FORMER_NAMES.get(name, name))
