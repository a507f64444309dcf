"""Kafka → Iceberg: orders as JSON messages, the bad ones to a dead letter, all of them exactly once.

Run it with ``python -m examples.kafka_to_iceberg BROKERS TOPIC [FOLDER]``: it reads the topic to its end, then stops.
Start it again, and it goes on where it stopped. With ``bounded=False`` it would run on.
"""

from __future__ import annotations

import sys
from pathlib import Path

from volley import Environment, IcebergSink, IcebergSinkConfig, IcebergStorage, Job, KafkaSource, col


def pipeline(brokers: str, topic: str, folder: Path) -> Job:
    """Messages such as ``{"id": 1, "item": "tea", "price": 2.5, "amount": 3}`` into the table ``shop.orders``."""
    orders = KafkaSource(
        brokers,
        topic,
        schema="id long, item string, price double, amount int",
        include=["timestamp", "partition", "offset"],
        max_rows_per_epoch=1_000_000,
        bounded=True,
    )
    config = IcebergSinkConfig(namespace="shop", table="orders", storage=IcebergStorage.Local(str(folder / "lake")))
    return (
        Environment(checkpoint_dir=str(folder / "checkpoints"))
        .from_source(orders)
        .filter_expr(col("amount") > 0)
        .with_column("total", col("price") * col("amount"))
        .to_sink(IcebergSink(config.with_dead_letter("bad_orders")))
        .execute("orders")
    )


def main(brokers: str, topic: str, folder: str = ".volley/orders") -> None:
    seen = pipeline(brokers, topic, Path(folder)).progress
    print(f"{seen.rows} orders in {seen.epochs} epochs, {seen.rejected} messages to bad_orders")


if __name__ == "__main__":
    main(*sys.argv[1:])
