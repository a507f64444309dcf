"""Names of the columns that a KafkaSource adds to those of a message's value."""

from __future__ import annotations

__all__ = ["METADATA", "UNKNOWN"]

METADATA = ("key", "headers", "timestamp", "topic", "partition", "offset")
"""The parts of a message besides its value; their columns are named ``kafka_…``."""

UNKNOWN = "kafka_unknown"
"""The column of the fields of a JSON object that the schema lacks."""
