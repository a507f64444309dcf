"""Sales per minute and shop: final rows into one table, current ones into another, late rows into a folder.

Run it with ``python -m examples.windows FOLDER``; it needs no server.
"""

from __future__ import annotations

import random
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from volley import (
    Environment,
    FileSource,
    IcebergSink,
    IcebergSinkConfig,
    IcebergStorage,
    Upsert,
    avg,
    col,
    count,
    quantile,
    tumbling,
)

START = datetime(2026, 1, 1, 9, tzinfo=UTC)


def write_sales(folder: Path) -> None:
    """Three files of two minutes each; some rows come late, a few very late."""
    dice = random.Random(1)
    folder.mkdir(parents=True)
    for number in range(3):
        rows = [
            {
                "shop": dice.choice(["Rome", "Oslo", "Kyiv"]),
                "price": dice.randrange(1, 50) / 2,
                "amount": dice.randrange(1, 4),
                "at": START + timedelta(seconds=120 * number + dice.randrange(120) - dice.choice([0] * 18 + [20, 300])),
            }
            for _ in range(1_000)
        ]
        pq.write_table(pa.Table.from_pylist(rows), folder / f"{number}.parquet")


def main(folder: Path) -> None:
    """Write the sales, run the job, and print both tables."""
    write_sales(folder / "sales")
    environment = Environment("local[2]", checkpoint_dir=str(folder / "checkpoints"))
    sales = environment.from_source(FileSource(str(folder / "sales"), format="parquet", max_files_per_epoch=1))
    by_shop = sales.with_column("revenue", col("price") * col("amount")).key_by("shop")
    figures = {"n": count(), "revenue": col("revenue").sum(), "mean": avg("price"), "median": quantile("price", 0.5)}
    final = by_shop.window(tumbling("1 minute"), on="at", lateness="30s", late="dead_letter").aggregate(**figures)
    now = by_shop.window(tumbling("1 minute"), on="at", lateness="30s", emit="updates").aggregate(**figures)

    config = IcebergSinkConfig(namespace="db", table="per_minute", storage=IcebergStorage.Local(str(folder / "lake")))
    current = replace(config, table="current").with_commit_mode(Upsert(["window_start", "shop"]))
    sinks = IcebergSink(config), IcebergSink(current)
    job = environment.execute("sales", final.to_sink(sinks[0], dead_letter=str(folder / "late")), now.to_sink(sinks[1]))
    print(f"late rows, in both windows: {job.metrics.rows_late}, watermark {job.metrics.watermark}")
    first, second = (sorted(map(repr, sink.table().scan().to_arrow().to_pylist())) for sink in sinks)
    print(f"{len(first)} windows; current figures are the same as the final ones: {first == second}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
