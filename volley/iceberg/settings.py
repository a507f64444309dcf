"""What files and snapshots of a table can be set to: codecs, presets, properties; and the checks of each."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Literal

from volley.checks import one_of
from volley.errors import ConfigError

__all__ = [
    *("COMPRESSIONS", "TUNINGS", "Compression", "Tuning"),
    *("check_compression", "check_snapshot_properties", "check_texts", "check_version", "format_version"),
]

COMPRESSIONS: dict[str, range | None] = {
    "none": None,
    "snappy": None,
    "gzip": range(1, 10),
    "lz4": range(1, 13),
    "zstd": range(1, 23),
    "brotli": range(12),
}
"""The Parquet codecs, and the valid levels of each."""

TUNINGS: dict[str, dict[str, Any]] = {
    "low_latency": {"batch_size": 1_000, "flush_interval": timedelta(seconds=10), "target_file_size_mb": 32},
    "balanced": {"batch_size": 10_000, "flush_interval": timedelta(seconds=60), "target_file_size_mb": 128},
    "high_throughput": {"batch_size": 100_000, "flush_interval": timedelta(seconds=300), "target_file_size_mb": 512},
}
"""The presets of `IcebergSinkConfig.with_tuning`."""

_FORMAT_VERSION = "2"

# Keys that Iceberg writes into a snapshot's summary, and Volley's own keys.
_RESERVED = re.compile(
    r"(added|deleted|removed|total|manifests)-.*|changed-partition-count|partition-summaries-included|partitions\..*"
    r"|entries-processed|operation|volley\..*"
)
Tuning = Literal["low_latency", "balanced", "high_throughput"]
Compression = Literal["none", "snappy", "gzip", "lz4", "zstd", "brotli"]


def check_compression(compression: str, level: int | None) -> None:
    """Raise ConfigError unless it is a codec, and the level one of its levels."""
    one_of(COMPRESSIONS)("compression", compression)
    levels = COMPRESSIONS[compression]
    if level is not None and (isinstance(level, bool) or level not in (levels or ())):
        valid = f"levels {levels.start} to {levels.stop - 1}" if levels else "no level"
        raise ConfigError(f"compression level {level!r} is not valid", hint=f"{compression} takes {valid}")


def format_version(properties: Mapping[str, str]) -> int:
    """Return the format version of a new table with these properties."""
    return int(properties.get("format-version", _FORMAT_VERSION))


def check_version(properties: Mapping[str, str]) -> None:
    """Raise ConfigError for a format version that can't be written."""
    version = properties.get("format-version", _FORMAT_VERSION)
    if version not in ("1", "2", "3"):
        raise ConfigError(f"table property format-version is {version!r}", hint='"1", "2" or "3"')


def check_texts(what: str, properties: Mapping[str, str]) -> None:
    """Raise ConfigError unless names and values of properties are texts."""
    for key, value in properties.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise ConfigError(f"{what} property {key!r}: {value!r} is not text", hint="both are strings")


def check_snapshot_properties(properties: Mapping[str, str]) -> None:
    """Raise ConfigError unless all are texts, and none has a key that Iceberg or Volley writes."""
    check_texts("snapshot", properties)
    for key in properties:
        if _RESERVED.fullmatch(key):
            raise ConfigError(
                f"snapshot property {key!r} is written by Iceberg or Volley itself", hint=f'prefix it: "my.{key}"'
            )
