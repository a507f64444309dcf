"""What a join of streams has to give: the rows that are on time, and DuckDB's join of them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa

from tests.duck import query

__all__ = ["Row", "batch_join", "on_time"]

Row = dict[str, Any]


def on_time(
    pieces: Sequence[Sequence[Sequence[Row]]], times: tuple[str, str], lateness: timedelta
) -> tuple[list[list[Row]], int]:
    """The rows of both sides that are not left out, and how many are late: before the watermark at an epoch's start.

    Args:
        pieces: For each side, its rows of each epoch.
        times: The time columns of both sides.
        lateness: How much older than the latest row of its side a row may be.
    """
    watermark: datetime | None = None
    kept: list[list[Row]] = [[], []]
    late = 0
    for epoch in zip(*pieces, strict=True):
        for rows, time, side in zip(epoch, times, kept, strict=True):
            timed = [row for row in rows if row[time] is not None]
            fresh = [row for row in timed if watermark is None or row[time] >= watermark]
            late += len(timed) - len(fresh)
            side += fresh
        if kept[0] and kept[1]:
            latest = (max(row[time] for row in side) for side, time in zip(kept, times, strict=True))
            slowest = min(latest) - lateness
            watermark = slowest if watermark is None else max(watermark, slowest)
    return kept, late


def batch_join(
    rows: Sequence[Sequence[Row]], schemas: Sequence[pa.Schema], how: str, on: str, columns: str = "l.*, r.*"
) -> pa.Table:
    """DuckDB's join of two tables, l and r.

    Args:
        rows: Their rows.
        schemas: Their schemas.
        how: The kind of the join.
        on: The condition.
        columns: The columns of the result.
    """
    left, right = (pa.Table.from_pylist(list(side), schema) for side, schema in zip(rows, schemas, strict=True))
    # Over Arrow tables themselves DuckDB 1.5.5 loses rows, see findings/duckdb-join-of-zeros.sh.
    tables = "with l as materialized (from ours), r as materialized (from theirs)"
    return query(f"{tables} select {columns} from l {how} join r on {on}", ours=left, theirs=right).to_arrow_table()
