"""Reads what the table of `joined.py` had at each time, makes orders of such times, and joins both by DuckDB."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.table.snapshots import ancestors_of

from tests.duck import query
from tests.iceberg.joined import history
from tests.recovery.joined import CUSTOMERS, Row
from tests.recovery.runs import load

__all__ = ["current_history", "joined_by_duckdb", "known_since", "read_orders", "write_timed_orders"]

_FUTURE = datetime(2100, 1, 1, tzinfo=UTC)


def current_history(folder: Path) -> pa.Table:
    """The rows of each snapshot of the table, with the times between which it was current."""
    return history(load(folder, "db.customers"))


def known_since(folder: Path) -> datetime | None:
    """The time before which it is not known what the table had, as snapshots have expired; None = always known."""
    table = load(folder, "db.customers")
    *_, oldest = ancestors_of(table.current_snapshot(), table.metadata)
    # An expiry takes the ids of parents away, too.
    return None if oldest.sequence_number == 1 else datetime.fromtimestamp(oldest.timestamp_ms / 1000, UTC)


def write_timed_orders(folder: Path, epoch: int) -> pa.Table:
    """An order of each customer, and of one who is not in the table, at each time at which the table has changed."""
    times = sorted({*current_history(folder).column("since").to_pylist(), _FUTURE})
    rows = [(customer, at) for at in times for customer in range(CUSTOMERS + 1)]
    orders = pa.table(
        {
            "id": pa.array(range(epoch * 1_000, epoch * 1_000 + len(rows)), pa.int64()),
            "customer": pa.array([customer for customer, _ in rows], pa.int64()),
            "at": pa.array([at for _, at in rows], pa.timestamp("us", "UTC")),
        }
    )
    (folder / "in").mkdir(exist_ok=True)
    pq.write_table(orders, _file(folder, epoch))
    return orders


def read_orders(folder: Path, epoch: int) -> pa.Table:
    """The orders of an epoch."""
    return pq.read_table(_file(folder, epoch))


def joined_by_duckdb(orders: pa.Table, known: pa.Table) -> list[Row]:
    """Orders with the rows that the table had at their times."""
    sql = 'from o left join h on o.customer = h.customer and "at" >= since and "at" < until'
    found = query(f'select id, o.customer, "at", version {sql}', o=orders, h=known)
    rows: list[Row] = found.to_arrow_table().to_pylist()
    return rows


def _file(folder: Path, epoch: int) -> Path:
    return folder / "in" / f"{epoch:06}.parquet"
