"""States that are grouped by the places of their keys in dictionaries are those that Arrow groups by the keys."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from volley.arrow.groups import ArrowMerge, combine
from volley.arrow.numbered_groups import combine_numbered

_ROWS = st.lists(
    st.tuples(
        st.none() | st.sampled_from(["a", "b", ""]),
        st.integers(0, 2),
        st.none() | st.integers(-(1 << 40), 1 << 40),
        st.none() | st.sampled_from([0.0, -1.5, 2.0, float("inf"), float("-inf"), float("nan")]),
        st.none() | st.booleans(),
    ),
    max_size=60,
)
_COLUMNS = {
    "user": pa.string(),
    "pane": pa.int64(),
    "n": pa.int64(),
    "total": pa.int64(),
    "seen": pa.bool_(),
    "low": pa.float64(),
    "high": pa.float64(),
    "mean": pa.float64(),
}
_MERGES = [
    (ArrowMerge(("sum",)), ("n",)),
    (ArrowMerge(("sum", "max")), ("total", "seen")),
    (ArrowMerge(("min",)), ("low",)),
    (ArrowMerge(("max",)), ("high",)),
    (ArrowMerge(("sum",)), ("mean",)),
]
_FUNCTIONS = [
    (name, function) for merge, names in _MERGES for name, function in zip(names, merge.functions, strict=True)
]
_KEYS = ("user", "pane")


@given(_ROWS)
def test_equal_to_groups_of_values(rows: list[tuple[Any, ...]]) -> None:
    values = _states(rows)
    # Rows of an input come in several batches, each with a dictionary of its own.
    halves = [values.slice(0, len(rows) // 2), values.slice(len(rows) // 2)]
    encoded = pa.concat_tables([_encoded(half) for half in halves]).unify_dictionaries()
    assert _sorted(combine(encoded, _KEYS, _MERGES)) == _sorted(combine(values, _KEYS, _MERGES))


def test_many_rows_of_few_groups_are_numbered() -> None:
    rows = [("a" if n % 3 else None, n % 2, n, n / 7, n % 5 == 0) for n in range(100)]
    encoded = _encoded(_states(rows))
    numbered = combine_numbered(encoded, _KEYS, _FUNCTIONS)
    assert numbered is not None
    assert _sorted(numbered) == _sorted(combine(_states(rows), _KEYS, _MERGES))
    # More groups than rows are possible: three users and null, three panes.
    assert combine_numbered(encoded.slice(0, 5), _KEYS, _FUNCTIONS) is None


def _states(rows: list[tuple[Any, ...]]) -> pa.Table:
    users, panes, numbers, prices, flags = zip(*rows, strict=True) if rows else ((),) * 5
    plain = [None if price != price else price for price in prices]
    columns = [users, panes, [1] * len(rows), numbers, flags, plain, plain, prices]
    return pa.table(
        [pa.array(column, type) for column, type in zip(columns, _COLUMNS.values(), strict=True)], [*_COLUMNS]
    )


def _encoded(table: pa.Table) -> pa.Table:
    columns = [
        column.dictionary_encode() if name in _KEYS else column
        for name, column in zip(table.column_names, table.columns, strict=True)
    ]
    return pa.table(columns, table.column_names)


def _sorted(table: pa.Table) -> list[str]:
    return sorted(map(repr, table.to_pylist()))
