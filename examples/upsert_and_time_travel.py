"""Upserts, and the table as it was: each epoch is a snapshot that can be read, compared and tagged.

Run it with ``python -m examples.upsert_and_time_travel [FOLDER]``.
"""

from __future__ import annotations

import sys
from pathlib import Path

from volley import (
    Environment,
    IcebergSink,
    IcebergSinkConfig,
    IcebergStorage,
    IcebergTable,
    MemorySource,
    SnapshotManager,
    Upsert,
)

EPOCHS = [
    [{"id": 1, "price": 10, "op": "u"}, {"id": 2, "price": 20, "op": "u"}],
    [{"id": 1, "price": 12, "op": "u"}, {"id": 2, "price": None, "op": "d"}, {"id": 3, "price": 30, "op": "u"}],
]


def main(folder: Path) -> list[str]:
    """Upsert two epochs; print the prices before and after; return the changes between them."""
    prices = IcebergSinkConfig(namespace="shop", table="prices", storage=IcebergStorage.Local(str(folder / "lake")))
    environment = Environment(checkpoint_dir=str(folder / "checkpoints"))
    by_id = prices.with_commit_mode(Upsert("id", op_field="op"))
    for number, rows in enumerate(EPOCHS):
        one = MemorySource(rows, schema="id long, price int, op string", name=f"epoch-{number}")
        environment.from_source(one).to_sink(IcebergSink(by_id)).execute(f"prices-{number}")

    table = IcebergTable(prices)
    first, last = table.snapshots()
    SnapshotManager(prices).create_tag("first", first.id)
    print("before:", table.at("first").to_arrow().to_pylist())
    print("after: ", table.to_arrow().to_pylist())
    changes = sorted(str(change) for change in table.changes(first.id, last.id, keys="id"))
    for change in changes:
        print(change)
    return changes


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else ".volley/prices"))
