"""The tables that tests' jobs write to: all in one local lake, in a folder's subfolder ``lake``."""

from __future__ import annotations

from pathlib import Path

from volley import IcebergSink, IcebergSinkConfig, IcebergStorage

__all__ = ["config_of", "sink_of"]


def config_of(folder: Path, table: str = "events") -> IcebergSinkConfig:
    """The settings of a sink to a table of the lake."""
    return IcebergSinkConfig(namespace="db", table=table, storage=IcebergStorage.Local(str(folder / "lake")))


def sink_of(folder: Path, table: str = "events") -> IcebergSink:
    """A sink that appends to a table of the lake."""
    return IcebergSink(config_of(folder, table))
