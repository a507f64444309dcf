"""PostgreSQL → Iceberg: a table and every change of it, exactly once.

Run it with ``python -m examples.postgres_to_iceberg HOST PORT DATABASE USER PASSWORD [FOLDER]``: it reads what the
server has, then stops. Start it again, and it goes on where it stopped. With ``bounded=False`` it would run on.
"""

from __future__ import annotations

import sys
from pathlib import Path

from volley import Environment, IcebergSink, IcebergSinkConfig, IcebergStorage, Job, PostgresSource, Upsert, col


def pipeline(host: str, port: int, database: str, user: str, password: str, folder: Path) -> Job:
    """The table ``public.orders`` with the key ``id`` into the table ``shop.orders``."""
    orders = PostgresSource(
        host=host,
        port=port,
        database=database,
        user=user,
        password=password,
        slot_name=f"volley_{database}",
        publication="volley_orders",
        tables="public.orders",
        bounded=True,
    )
    config = IcebergSinkConfig(namespace="shop", table="orders", storage=IcebergStorage.Local(str(folder / "lake")))
    return (
        Environment(checkpoint_dir=str(folder / "checkpoints"))
        .from_source(orders)
        .with_column("gross", col("total") * 1.25)
        .to_sink(IcebergSink(config.with_commit_mode(Upsert())))
        .execute("orders")
    )


def main(host: str, port: str, database: str, user: str, password: str, folder: str = ".volley/orders") -> None:
    seen = pipeline(host, int(port), database, user, password, Path(folder)).progress
    print(f"{seen.rows} rows and changes in {seen.epochs} epochs")


if __name__ == "__main__":
    main(*sys.argv[1:])
