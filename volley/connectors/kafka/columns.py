"""The names of the columns that Kafka's messages have beside those of their values."""

from __future__ import annotations

__all__ = ["METADATA", "UNKNOWN"]

METADATA = ("key", "headers", "timestamp", "topic", "partition", "offset")
"""What can be had of a message beside its value; as columns they are called ``kafka_…``."""

UNKNOWN = "kafka_unknown"
"""The column with the fields of a JSON object that the schema does not have."""
