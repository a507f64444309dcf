"""Kafka with Avro and a schema registry → Iceberg: columns come from the schema each message was written with.

Run it with ``python -m examples.kafka_avro BROKERS TOPIC REGISTRY [FOLDER]``; the registry's address can have
``user:password@`` in it.
"""

from __future__ import annotations

import sys
from pathlib import Path

from volley import Environment, IcebergSink, IcebergSinkConfig, IcebergStorage, KafkaSource


def main(brokers: str, topic: str, registry: str, folder: str = ".volley/avro") -> int:
    """Read the topic to its end; return the number of messages."""
    users = KafkaSource(brokers, topic, value_format="avro", registry=registry, include=["offset"], bounded=True)
    config = IcebergSinkConfig(namespace="db", table="users", storage=IcebergStorage.Local(str(Path(folder, "lake"))))
    stream = Environment(checkpoint_dir=f"{folder}/checkpoints").from_source(users)
    job = stream.to_sink(IcebergSink(config.with_schema_evolution("add_columns"))).execute("users")
    print(f"{job.progress.rows} messages")
    return job.progress.rows


if __name__ == "__main__":
    main(*sys.argv[1:])
