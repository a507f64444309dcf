"""Imports what is needed on first use only: connectors by their short names, and packages that may be missing."""

from __future__ import annotations

import importlib
from typing import Any

from volley.errors import ConfigError, MissingDependencyError, near

__all__ = ["ROWS", "SINKS", "SOURCES", "installed", "load"]

SOURCES = {
    "files": "volley.connectors.files.source:FileSource",
    "http": "volley.connectors.webhook.source:HttpSource",
    "iceberg": "volley.iceberg.source:IcebergSource",
    "kafka": "volley.connectors.kafka.source:KafkaSource",
    "memory": "volley.connectors.memory.source:MemorySource",
    "postgres": "volley.connectors.postgres.source:PostgresSource",
    "rate": "volley.connectors.rate:RateSource",
}

SINKS = {
    "console": "volley.connectors.console.sink:ConsoleSink",
    "files": "volley.connectors.files.sink:FileSink",
    "function": "volley.connectors.function.sink:FunctionSink",
    "iceberg": "volley.iceberg.sink:IcebergSink",
    "kafka": "volley.connectors.kafka.sink:KafkaSink",
    "memory": "volley.connectors.memory.sink:MemorySink",
}

ROWS = {"iceberg": "volley.iceberg.read.whole_table:read_now"}
"""What reads the rows of a table in this process."""


def load(table: dict[str, str], name: str) -> Any:
    """Import and return the class of a connector, or the function that reads its rows.

    Args:
        table: SOURCES, SINKS or ROWS.
        name: The connector's short name.

    Raises:
        ConfigError: If there is no connector of that name; the hint lists similar names.

    Example:
        >>> load(SOURCES, "memory").__name__
        'MemorySource'
    """
    if name not in table:
        raise ConfigError(f"no connector {name!r}", hint=near(name, table))
    module, _, attribute = table[name].partition(":")
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
