"""The tables that queries are tried on, with nulls, ties, NaN, and keys that have no match."""

from __future__ import annotations

import math
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

__all__ = ["TABLES", "counted", "shown"]

_START = datetime(2026, 1, 1, tzinfo=UTC)
_SECONDS = [0, 3, 9, 10, 25, 25, 40, 61, 119, 120, 300, None]
_PRICES = [None if number == 5 else Decimal(number * 37 % 101) / 4 for number in range(12)]

TABLES = {
    "orders": pa.table(
        {
            "id": pa.array(range(12), pa.int64()),
            "customer": pa.array([1, 2, None, 1, 3, 9, 2, 1, None, 3, 3, 2], pa.int64()),
            "item": ["pen", "ink", "pen", "O'Neil", None, "ink", "pen", "cap", "ink", "pen", "PROMO a", "PROMO b"],
            "price": pa.array(_PRICES, pa.decimal128(15, 2)),
            "heat": [0.5, -0.0, 0.0, float("nan"), None, 1e300, 2.5, -3.25, 0.1, 0.2, 0.3, float("nan")],
            "day": [date(2026, 1, 31) + timedelta(days=number * 9) for number in range(12)],
            "at": pa.array(
                [None if second is None else _START + timedelta(seconds=second) for second in _SECONDS],
                pa.timestamp("us", "UTC"),
            ),
            "paid": [True, False, None, True, True, False, None, True, False, True, False, True],
            "n": pa.array([1, 2, 3, -7, 5, 6, 7, 8, 9, None, 11, 12], pa.int32()),
        }
    ),
    "customers": pa.table(
        {
            "id": pa.array([1, 2, 3, 4, None], pa.int64()),
            "name": ["Ada", "Bob", "Cid", "Dan", "Eve"],
            "country": pa.array([10, 20, 10, None, 20], pa.int64()),
        }
    ),
    "countries": pa.table({"country": pa.array([10, 20, 30], pa.int64()), "title": ["DE", "AT", "CH"]}),
    "lines": pa.table(
        {
            "order_id": pa.array([0, 0, 1, 3, 3, 3, 7, 77, None], pa.int64()),
            "part": ["a", "b", "a", "c", "a", None, "b", "a", "c"],
            "quantity": pa.array([1, 2, 3, 4, 5, 6, 7, 8, 9], pa.int64()),
        }
    ),
    "nothing": pa.table({"x": pa.array([], pa.int64()), "y": pa.array([], pa.decimal128(10, 2))}),
}


def counted(rows: pa.Table) -> Counter[str]:
    """Return the rows as texts, with how often each is there."""
    return Counter(str([shown(value) for value in row.values()]) for row in rows.to_pylist())


def shown(value: Any) -> Any:
    """A value as text; numbers of equal value are the same, whatever their types."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else format(value + 0.0, ".12g")
    if isinstance(value, int | Decimal) and not isinstance(value, bool):
        return format(float(value), ".12g")
    return value.isoformat()[:19] if hasattr(value, "isoformat") and len(value.isoformat()) > 10 else str(value)
