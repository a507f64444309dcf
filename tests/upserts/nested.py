"""Columns of every type, nested four deep, with nulls at every level, for property tests."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

_DAYS = st.dates()
_MOMENTS = st.datetimes()
_LEAVES: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.bool_(), st.booleans()),
    (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.float32(), st.floats(width=32)),
    (pa.float64(), st.floats()),
    (pa.decimal128(5, 2), st.integers(-99_999, 99_999).map(lambda each: Decimal(each).scaleb(-2))),
    (pa.decimal128(38, 0), st.integers(-(10**28), 10**28).map(Decimal)),
    (pa.date32(), _DAYS),
    (pa.time64("us"), st.times()),
    (pa.timestamp("us"), _MOMENTS),
    (pa.timestamp("us", "UTC"), _MOMENTS.map(lambda each: each.replace(tzinfo=dt.UTC))),
    (pa.string(), st.text(max_size=5)),
    (pa.binary(), st.binary(max_size=5)),
    (pa.binary(3), st.binary(min_size=3, max_size=3)),
]
_KEYS = [each for each in _LEAVES if not pa.types.is_floating(each[0])]
_VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = dict(_LEAVES)
_DEPTH = 4


@st.composite
def kinds(draw: st.DrawFn, depth: int = _DEPTH) -> pa.DataType:
    """A type that is nested at most so deep."""
    form = draw(st.sampled_from(["leaf", "list", "map", "struct", "struct"])) if depth else "leaf"
    if form == "list":
        return pa.list_(draw(kinds(depth - 1)))
    if form == "map":
        return pa.map_(draw(st.sampled_from([kind for kind, _ in _KEYS])), draw(kinds(depth - 1)))
    if form == "struct":
        inner = draw(st.lists(kinds(depth - 1), min_size=1, max_size=3))
        return pa.struct([(f"f{number}", kind) for number, kind in enumerate(inner)])
    return draw(st.sampled_from([kind for kind, _ in _LEAVES]))


def values(kind: pa.DataType) -> st.SearchStrategy[Any]:
    """Values of a type, null often among them."""
    return st.one_of(st.none(), _filled(kind))


def _filled(kind: pa.DataType) -> st.SearchStrategy[Any]:
    if pa.types.is_list(kind):
        return st.lists(values(kind.value_type), max_size=3)
    if pa.types.is_map(kind):
        pairs = st.tuples(_filled(kind.key_type), values(kind.item_type))
        return st.lists(pairs, max_size=3, unique_by=lambda pair: pair[0])
    if pa.types.is_struct(kind):
        return st.fixed_dictionaries({field.name: values(field.type) for field in kind})
    return _VALUES[kind]


@st.composite
def tables(draw: st.DrawFn, rows: int = 6) -> pa.Table:
    """Some rows with an ``id`` and a few such columns."""
    made = draw(st.lists(kinds(), min_size=1, max_size=3))
    columns = {"id": pa.array(range(rows))}
    for number, kind in enumerate(made):
        columns[f"c{number}"] = pa.array(draw(st.lists(values(kind), min_size=rows, max_size=rows)), kind)
    return pa.table(columns)


def told(table: pa.Table) -> list[str]:
    """The rows by id in a form in which NaN is NaN, and -0.0 is not 0.0."""
    return [repr(row) for row in table.sort_by("id").to_pylist()]
