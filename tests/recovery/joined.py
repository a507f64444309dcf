"""The job of the recovery tests that joins a table, which two sinks get; its input, its table, and the comparison."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from tests.recovery.runs import load
from volley import Environment, FileSource, IcebergSink, IcebergSinkConfig, IcebergStorage, Job
from volley.iceberg import IcebergTable, TableRef
from volley.stream.joins import MAX_BYTES

__all__ = [
    *("CUSTOMERS", "DIVIDED", "SINKS", "Row", "bad_rows", "change_customers", "check", "check_rows"),
    *("create_customers", "expected", "main", "remake_customers", "table", "write_customers", "write_orders"),
]

Row = dict[str, Any]

SINKS = ("first", "second")
CUSTOMERS = 4
ROWS = 20
VERSIONED = pa.schema([("customer", pa.int64()), ("version", pa.int64())])


def table(folder: Path, name: str = "customers") -> TableRef:
    return TableRef("db", name, IcebergStorage.Local(str(folder / "lake")))


DIVIDED = 8_000
"""So many bytes are less than the rows of the table have."""


def main(
    folder: Path, deduplicated: bool = False, max_bytes: int = MAX_BYTES, as_of: str | None = None, filed: bool = False
) -> Job:
    """One run, a file an epoch; `deduplicated`: the join is in front of a step that keeps state; `filed`: the table is
    a CSV file."""
    environment = Environment("local[2]", checkpoint_dir=str(folder / "checkpoints"))
    orders = environment.from_source(FileSource(str(folder / "in"), format="parquet", max_files_per_epoch=1))
    customers = str(customers_file(folder)) if filed else IcebergTable(table(folder))
    joined = orders.join(customers, "customer", "left", as_of=as_of, columns=["version"], max_bytes=max_bytes)
    if deduplicated:
        joined = joined.deduplicate("id")
    configs = [IcebergSinkConfig.from_table(table(folder, name)) for name in SINKS]
    sinks = (IcebergSink(config.with_dead_letter(bad_rows(config.table) if as_of else None)) for config in configs)
    return environment.execute("joined", *map(joined.to_sink, sinks))


def customers_file(folder: Path) -> Path:
    return folder / "customers.csv"


def write_customers(folder: Path, version: int) -> None:
    """Replace the file; every customer has the version."""
    pa.csv.write_csv(pa.concat_tables([_others(), _customers(version)]), customers_file(folder))


def bad_rows(sink: str) -> str:
    """The table of a sink's rows that are older than what is known of the joined table's history."""
    return f"{sink}_bad"


def write_orders(folder: Path, numbers: Iterable[int]) -> None:
    """One file for each epoch; one customer in five is not in the table."""
    (folder / "in").mkdir(exist_ok=True)
    for number in numbers:
        ids = range(number * ROWS, (number + 1) * ROWS)
        rows = pa.table({"id": pa.array(ids, pa.int64()), "customer": [i % (CUSTOMERS + 1) for i in ids]})
        pq.write_table(rows, folder / "in" / f"{number:06}.parquet")


def create_customers(folder: Path, version: int) -> None:
    catalog = table(folder).load_catalog()
    catalog.create_namespace_if_not_exists("db")
    customers = catalog.create_table("db.customers", VERSIONED)
    # Most of the table never changes, so that its changes are applied to the files of the epoch before.
    customers.append(_others())
    customers.append(_customers(version))


def change_customers(folder: Path, version: int) -> None:
    """A new snapshot, in which every customer has the version."""
    load(folder, "db.customers").overwrite(_customers(version), f"customer < {CUSTOMERS}")


def remake_customers(folder: Path, version: int) -> None:
    """Drop the table and make it anew: no snapshot of it is left."""
    table(folder).load_catalog().purge_table("db.customers")
    create_customers(folder, version)


def _others() -> pa.Table:
    return pa.table({"customer": range(1_000, 3_000), "version": range(2_000)}, VERSIONED)


def _customers(version: int) -> pa.Table:
    return pa.table({"customer": list(range(CUSTOMERS)), "version": [version] * CUSTOMERS}, VERSIONED)


def check(folder: Path, versions: Sequence[int]) -> None:
    """Compare both sinks with the input, each epoch joined with its version."""
    check_rows(folder, [row for epoch, version in enumerate(versions) for row in expected(epoch, version)])


def expected(epoch: int, version: int) -> list[Row]:
    """The rows of an epoch that is joined with a version."""
    return [
        {"id": i, "customer": customer, "version": version if customer < CUSTOMERS else None}
        for i in range(epoch * ROWS, (epoch + 1) * ROWS)
        for customer in [i % (CUSTOMERS + 1)]
    ]


def check_rows(folder: Path, rows: Sequence[Row]) -> None:
    """Compare both sinks with the rows that they should have."""
    wanted = sorted(rows, key=lambda row: row["id"])
    for sink in SINKS:
        assert load(folder, f"db.{sink}").scan().to_arrow().sort_by("id").to_pylist() == wanted, sink
