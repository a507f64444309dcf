"""Rows with nested columns and nulls at every level, and how tables are compared with them: by value, row by row."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.table import Table

from tests.duck import query

__all__ = ["SCHEMA", "START", "Difference", "Row", "compare", "nested", "read_back", "read_input", "write_file"]

T = TypeVar("T")
Row = dict[str, Any]

START = datetime(2024, 1, 1, tzinfo=ZoneInfo("UTC"))

_ITEM = pa.struct({"sku": pa.string(), "price": pa.decimal128(9, 2), "tags": pa.list_(pa.string())})
_NOTE = pa.struct({"number": pa.int64(), "at": pa.timestamp("us")})
SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "at": pa.timestamp("us", "UTC"),
        "amount": pa.decimal128(18, 4),
        "raw": pa.binary(),
        "items": pa.list_(_ITEM),
        "notes": pa.map_(pa.string(), _NOTE),
        "place": pa.struct({"name": pa.string(), "points": pa.list_(pa.float64())}),
    }
)


def nested(dice: random.Random, id: int, at: datetime) -> Row:
    """A row of `SCHEMA`: everything below id and time may be null or empty, at every level.

    Args:
        dice: Chooses the values.
        id: The row's id.
        at: The row's time.
    """

    def some(make: Callable[[], T]) -> T | None:
        return make() if dice.random() < 0.75 else None

    def few(make: Callable[[], T]) -> list[T]:
        return [make() for _ in range(dice.randrange(3))]

    def number() -> int:
        return dice.randrange(-99_999, 99_999)

    def text() -> str:
        return dice.choice(["", "naïve", "☃", f"{number()}"])

    def item() -> Row:
        return {
            "sku": some(text),
            "price": some(lambda: Decimal(number()).scaleb(-2)),
            "tags": some(lambda: few(lambda: some(text))),
        }

    def note() -> Row:
        return {"number": some(number), "at": some(lambda: datetime(1970, 1, 1) + timedelta(microseconds=number()))}

    def place() -> Row:
        return {"name": some(text), "points": some(lambda: few(lambda: some(lambda: number() / 8)))}

    return {
        "id": id,
        "at": at,
        "amount": some(lambda: Decimal(number()).scaleb(-4)),
        "raw": some(lambda: dice.randbytes(dice.randrange(4))),
        "items": some(lambda: few(lambda: some(item))),
        "notes": some(lambda: [(f"note {key}", some(note)) for key in range(dice.randrange(3))]),
        "place": some(place),
    }


def write_file(path: Path, rows: Sequence[Row], **more: pa.DataType) -> None:
    """The rows as one Parquet file, which appears whole.

    Args:
        path: The file.
        rows: The rows.
        more: Columns that they have beside those of `SCHEMA`.
    """
    schema = pa.schema([*SCHEMA, *more.items()])
    pq.write_table(pa.Table.from_pylist(rows, schema), f"{path}.tmp")
    Path(f"{path}.tmp").rename(path)


def read_input(folder: Path) -> list[list[Row]]:
    """The rows of each input file, in the order of their names."""
    return [pq.read_table(path).to_pylist() for path in sorted(folder.glob("*.parquet"))]


def read_back(table: Table, columns: Sequence[str]) -> list[Row]:
    """These columns of a table's rows, by DuckDB; pyiceberg's own scan makes null lists and maps of structs empty."""
    sql = f"select {', '.join(map(json.dumps, columns))} from iceberg_scan('{table.metadata_location}')"
    rows: list[Row] = query(sql).to_arrow_table().to_pylist()
    return rows


@dataclass(frozen=True)
class Difference:
    """How rows that are there differ from those that should be.

    Args:
        expected: Rows that should be there.
        found: Rows that are there.
        lost: Rows whose key is missing.
        doubled: Rows whose key is there too often, or should not be there.
        changed: Rows whose key is right and a value is not.
    """

    expected: int
    found: int
    lost: int
    doubled: int
    changed: int

    def __add__(self, other: Difference) -> Difference:
        return Difference(*map(int.__add__, astuple(self), astuple(other)))


def compare(expected: Iterable[Row], found: Iterable[Row], key: str = "id") -> Difference:
    """Compare two sets of rows by value; rows may be there several times.

    Example:
        >>> compare([{"id": 1, "n": 1}, {"id": 2, "n": 2}], [{"id": 1, "n": None}, {"id": 3, "n": 3}])
        Difference(expected=2, found=2, lost=1, doubled=1, changed=1)
    """
    wanted, there = list(expected), list(found)
    wanted_keys, there_keys = (Counter(row[key] for row in rows) for rows in (wanted, there))
    wanted_rows, there_rows = (Counter(repr(row) for row in rows) for rows in (wanted, there))
    lost = (wanted_keys - there_keys).total()
    return Difference(
        expected=len(wanted),
        found=len(there),
        lost=lost,
        doubled=(there_keys - wanted_keys).total(),
        changed=(wanted_rows - there_rows).total() - lost,
    )
