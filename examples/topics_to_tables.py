"""Kafka → Iceberg, many topics in one job: a table for each topic, made when its first message comes.

Run it with ``python -m examples.topics_to_tables BROKERS PATTERN [FOLDER]``: it reads the topics whose names match to
their ends, then stops. Start it again, and it goes on where it stopped, with new topics, too. A table that is dropped
parks its messages, until it is put back.
"""

from __future__ import annotations

import sys
from pathlib import Path

from volley import Environment, IcebergSink, IcebergSinkConfig, IcebergStorage, Job, KafkaSource


def pipeline(brokers: str, pattern: str, folder: Path) -> Job:
    """Messages such as ``{"id": 1, "at": "2026-11-24T10:00:00Z", "body": "…"}`` into ``topics.<name of the topic>``."""
    messages = KafkaSource(
        brokers, pattern=pattern, schema="id long, at timestamp, body string", include=["topic", "offset"], bounded=True
    )
    config = IcebergSinkConfig(
        namespace="topics", table="{kafka_topic}", storage=IcebergStorage.Local(str(folder / "lake"))
    )
    return (
        Environment(checkpoint_dir=str(folder / "checkpoints"))
        .from_source(messages)
        .to_sink(IcebergSink(config).routed(omit=["kafka_topic"], on_error="park"))
        .execute("topics")
    )


def main(brokers: str, pattern: str, folder: str = ".volley/topics") -> None:
    job = pipeline(brokers, pattern, Path(folder))
    for table, figures in sorted(job.metrics.by_sink["{kafka_topic}"].by_table.items()):
        print(f"{table}: {figures.records_written} messages")


if __name__ == "__main__":
    main(*sys.argv[1:])
