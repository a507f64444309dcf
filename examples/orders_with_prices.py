"""Orders joined with prices that change: each order gets the price that was valid when it was placed.

Run it with ``python -m examples.orders_with_prices [FOLDER]``.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pyarrow as pa

from volley import Environment, FileSource, IcebergSink, IcebergSinkConfig, IcebergStorage, IcebergTable, TableRef, col

ORDERS = {"id": "long", "item": "string", "amount": "int", "at": "timestamp"}


def pipeline(folder: Path) -> None:
    """The job itself: files of orders, a join as of the time of the order, an Iceberg table."""
    prices = TableRef("shop", "prices", IcebergStorage.Local(str(folder / "lake")))
    source = FileSource(str(folder / "orders"), format="json", schema=ORDERS, max_files_per_epoch=1)
    (
        Environment(checkpoint_dir=str(folder / "checkpoints"))
        .from_source(source)
        .join(IcebergTable(prices), on="item", how="left", as_of=("at", "valid_from"), columns=["price"])
        .with_column("total", col("amount") * col("price"))
        .to_sink(IcebergSink(IcebergSinkConfig.from_table(prices.beside("orders"))))
        .execute("orders")
    )


def set_price(folder: Path, item: str, price: int, valid_from: str) -> None:
    """Add a row to the table of prices, which is made if it is absent."""
    catalog = TableRef("shop", "prices", IcebergStorage.Local(str(folder / "lake"))).load_catalog()
    schema = pa.schema([("item", pa.string()), ("price", pa.int64()), ("valid_from", pa.timestamp("us", "UTC"))])
    catalog.create_namespace_if_not_exists("shop")
    row = pa.table({"item": [item], "price": [price], "valid_from": [valid_from]})
    table = catalog.create_table_if_not_exists("shop.prices", schema)
    table.append(row.set_column(2, "valid_from", row["valid_from"].cast(schema.field(2).type)))


def place_order(folder: Path, id: int, at: str) -> None:
    """Write a file with an order of three apples."""
    (folder / "orders").mkdir(exist_ok=True)
    (folder / "orders" / f"{id}.json").write_text(f'{{"id": {id}, "item": "apple", "amount": 3, "at": "{at}"}}\n')


def main(folder: Path) -> dict[int, int]:
    """Change the price between two runs of the job; show what is in its table, and return the total of each order."""
    set_price(folder, "apple", 5, "2026-01-01T00:00:00Z")
    place_order(folder, 1, "2026-01-15T12:00:00Z")
    pipeline(folder)
    set_price(folder, "apple", 7, "2026-02-01T00:00:00Z")
    place_order(folder, 2, "2026-01-31T12:00:00Z")
    place_order(folder, 3, "2026-02-01T12:00:00Z")
    pipeline(folder)
    orders = IcebergTable(TableRef("shop", "orders", IcebergStorage.Local(str(folder / "lake"))))
    orders.rows.show()
    return {row["id"]: row["total"] for row in orders.to_arrow().to_pylist()}


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp()))
