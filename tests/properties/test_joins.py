"""Joins with a table, in this process, against DuckDB over random rows."""

from __future__ import annotations

import math
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tests.duck import query
from volley import Environment, MemorySource
from volley.columns import join_index
from volley.engine.indices import KeyBuckets
from volley.plan.joins import How
from volley.stream.stream import DataStream

START = datetime(2026, 1, 1, tzinfo=UTC)
KEYS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "long": (pa.int64(), st.integers(-2, 2) | st.sampled_from([2**63 - 1, -(2**63)])),
    "double": (pa.float64(), st.sampled_from([0.0, -0.0, 1.5, math.nan, math.inf])),
    "string": (pa.string(), st.sampled_from(["", "a", "b", "ab", "ü", "a\0"])),
    "binary": (pa.binary(), st.sampled_from([b"", b"a", b"\0"])),
    "boolean": (pa.bool_(), st.booleans()),
    "decimal": (pa.decimal128(20, 2), st.sampled_from([Decimal("1.00"), Decimal("-0.01"), Decimal(10) ** 15])),
    "date": (pa.date32(), st.sampled_from([date(1969, 12, 31), date(2026, 1, 1)])),
    "timestamp": (pa.timestamp("us", "UTC"), st.sampled_from([START, datetime(1900, 1, 1, tzinfo=UTC)])),
}
times = st.none() | st.integers(-3, 3).map(lambda hours: START + timedelta(hours=hours, microseconds=hours))


@st.composite
def joins(draw: st.DrawFn) -> tuple[pa.Table, pa.Table, list[str]]:
    """Rows of a stream and of a table, and the keys of both."""
    keys = draw(st.lists(st.sampled_from(sorted(KEYS)), min_size=1, max_size=2, unique=True))
    columns = {name: st.none() | KEYS[name][1] for name in keys} | {"at": times}
    types = [(name, KEYS[name][0]) for name in keys] + [("at", pa.timestamp("us", "UTC")), ("n", pa.int64())]
    sides = []
    for _ in range(2):
        rows = draw(st.lists(st.fixed_dictionaries(columns), max_size=12))
        sides.append(pa.Table.from_pylist([row | {"n": n} for n, row in enumerate(rows)], pa.schema(types)))
    return sides[0], sides[1].rename_columns([*keys, "valid_from", "m"]), keys


def stream(table: pa.Table) -> DataStream:
    return Environment().from_source(MemorySource(table))


def counted(table: pa.Table) -> Counter[str]:
    """Rows as texts, so that NaN equals NaN; the sign of a zero counts."""
    return Counter(map(repr, table.to_pylist()))


def sql(keys: list[str], how: str, as_of: bool) -> str:
    """The same join in DuckDB's words, whose joins tell -0.0 from 0.0, and take any of several rows of one time."""
    zero = {"double": " + 0.0"}
    on = " and ".join(f'l."{key}"{zero.get(key, "")} = r."{key}"{zero.get(key, "")}' for key in keys)
    left = ", ".join(f'l."{key}"' for key in keys)
    last = ", ".join(f'"{key}"{zero.get(key, "")} as "{key}"' for key in keys)
    right = f"(select {last}, valid_from, max(m) as m from r group by all)" if as_of else "r"
    verb = f"asof {how}" if as_of else how
    validity = ' and l."at" >= r.valid_from' if as_of else ""
    return f'select {left}, l."at", l.n, r.valid_from, r.m from l {verb} join {right} r on {on}{validity}'


@given(joins(), st.sampled_from(["inner", "left"]), st.booleans())
def test_random_joins_are_those_of_duckdb(drawn: tuple[pa.Table, pa.Table, list[str]], how: How, as_of: bool) -> None:
    left, right, keys = drawn
    joined = stream(left).join(MemorySource(right), on=keys, how=how, as_of=("at", "valid_from") if as_of else None)
    expected = query(sql(keys, how, as_of), l=left, r=right).to_arrow_table()
    rows = joined.to_arrow()
    assert counted(rows) == counted(expected.cast(joined.schema))
    with patch.object(KeyBuckets, "bits", 2):
        divided = joined.to_arrow()
    assert list(map(repr, divided.to_pylist())) == list(map(repr, rows.to_pylist()))


@given(joins(), st.sampled_from(["inner", "left"]))
def test_keys_with_one_hash_are_told_apart(drawn: tuple[pa.Table, pa.Table, list[str]], how: How) -> None:
    left, right, keys = drawn
    as_of = ("at", "valid_from")
    expected = stream(left).join(MemorySource(right), on=keys, how=how, as_of=as_of).to_arrow()
    with patch.object(join_index, "hashes", lambda batch: np.zeros(batch.num_rows, np.uint64)):
        found = stream(left).join(MemorySource(right), on=keys, how=how, as_of=as_of).to_arrow()
    assert counted(found) == counted(expected)
