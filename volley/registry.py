"""The connectors by their one name, and packages that may be missing: imported on first use only."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any, Literal

from volley.errors import ConfigError, MissingDependencyError, near

__all__ = ["CONNECTORS", "Connector", "connectors_with", "installed", "load"]

Part = Literal["source", "sink", "rows"]


@dataclass(frozen=True)
class Connector:
    """A connector: where its parts are, each as ``module:name``; None = it has no such part.

    Args:
        source: Its `Source`.
        sink: Its `Sink`.
        rows: What reads the rows of a table in this process.
        in_yaml: False if its settings are objects of Python.
    """

    source: str | None = None
    sink: str | None = None
    rows: str | None = None
    in_yaml: bool = True


CONNECTORS = {
    "console": Connector(sink="volley.connectors.console:ConsoleSink"),
    "files": Connector("volley.connectors.files.source:FileSource", "volley.connectors.files.sink:FileSink"),
    "function": Connector(sink="volley.connectors.function:FunctionSink", in_yaml=False),
    "iceberg": Connector(
        "volley.iceberg.source:IcebergSource",
        "volley.iceberg.sink:IcebergSink",
        "volley.iceberg.read.whole:read_now",
    ),
    "kafka": Connector("volley.connectors.kafka.source:KafkaSource", "volley.connectors.kafka.sink:KafkaSink"),
    "memory": Connector(
        "volley.connectors.memory.source:MemorySource", "volley.connectors.memory.sink:MemorySink", in_yaml=False
    ),
    "mariadb": Connector("volley.connectors.mariadb.source:MariaDbSource"),
    "mysql": Connector("volley.connectors.mariadb.source:MySqlSource"),
    "postgres": Connector("volley.connectors.postgres.source:PostgresSource"),
    "rate": Connector("volley.connectors.rate:RateSource"),
    "webhook": Connector("volley.connectors.webhook.source:WebhookSource"),
}
"""The connectors, by the name that they have in YAML, in messages and as a package."""


def connectors_with(part: Part) -> dict[str, str]:
    """Return the names of the connectors that have a part, each with where it is."""
    places = {name: getattr(connector, part) for name, connector in CONNECTORS.items()}
    return {name: place for name, place in places.items() if place is not None}


def load(part: Part, name: str) -> Any:
    """Import and return a part of a connector.

    Args:
        part: ``"source"``, ``"sink"``, or ``"rows"``: what reads the rows of a table in this process.
        name: The connector's name.

    Raises:
        ConfigError: If there is no connector of that name with this part; the hint lists similar names.

    Example:
        >>> load("source", "memory").__name__
        'MemorySource'
    """
    places = connectors_with(part)
    if name not in places:
        raise ConfigError(f"no connector {name!r} has a {part}", hint=near(name, places))
    module, _, attribute = places[name].partition(":")
    return getattr(importlib.import_module(module), attribute)


def installed(package: str) -> Any:
    """Import and return a package that a user may not have.

    Raises:
        MissingDependencyError: If it is not installed.
    """
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise MissingDependencyError(f"{package} is not installed", hint=f"pip install {package}") from error
