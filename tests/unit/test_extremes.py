"""The extremes that a view keeps of its groups are those of all their values, whatever the changes."""

from __future__ import annotations

import math
from collections import Counter
from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from volley.iceberg.views.extremes import KEPT, Extreme, Values, changed, extremes

TYPES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "int": (pa.int32(), [-(2**31), 2**31 - 1, 0, 1, 2, 3]),
    "long": (pa.int64(), [-(2**63), 2**63 - 1, 0, 1, 2, 3]),
    "small": (pa.int8(), [-128, 127, 0, 1, 2, 3]),
    "double": (pa.float64(), [math.nan, math.inf, -math.inf, -0.0, 0.0, 1.5, -1.5]),
    "float": (pa.float32(), [math.nan, math.inf, -0.0, 0.0, 1.5, -1.5]),
    "text": (pa.string(), ["", "a", "b", "ä", "zz", "z"]),
    "decimal": (pa.decimal128(10, 2), [Decimal("-1.50"), Decimal("0"), Decimal("2"), Decimal("10"), Decimal("9")]),
    "date": (pa.date32(), [date(1969, 1, 1), date(1970, 1, 1), date(2026, 1, 1), date(9999, 1, 1), date(1, 1, 1)]),
    "boolean": (pa.bool_(), [True, False]),
}
GROUPS = 3


def place(value: Any) -> Any:
    """The place of a value in the order, NaN the last."""
    return (math.isnan(value), value) if isinstance(value, float) else value


def plain(value: Any) -> Any:
    return ("nan" if math.isnan(value) else value + 0.0) if isinstance(value, float) else value


def given_values(data_type: pa.DataType, rows: list[tuple[int, Any]]) -> Values:
    groups = np.array([group for group, _ in rows], np.int64)
    return Values.of(groups, [pa.array([value for _, value in rows], data_type)])


@pytest.mark.parametrize("kind", ["min", "max"])
@pytest.mark.parametrize("name", TYPES)
@given(st.data())
def test_extremes_after_changes(name: str, kind: Extreme, data: st.DataObject) -> None:
    data_type, choices = TYPES[name]
    row = st.tuples(st.integers(0, GROUPS - 1), st.sampled_from(choices))
    live = data.draw(st.lists(row, max_size=20))
    known = extremes(kind, given_values(data_type, live), GROUPS)
    for _ in range(4):
        counts = np.bincount([group for group, _ in live], minlength=GROUPS).astype(np.int64)
        removed = [live.pop(data.draw(st.integers(0, len(live) - 1))) for _ in range(min(len(live), 3))]
        added = data.draw(st.lists(row, max_size=3))
        live += added
        known = changed(kind, known, counts, given_values(data_type, added), given_values(data_type, removed))
        for group in range(GROUPS):
            values = sorted((value for of, value in live if of == group), key=place, reverse=kind == "max")
            kept = [value for column in known if (value := column[group].as_py()) is not None]
            assert list(map(plain, kept)) == list(map(plain, values[: len(kept)]))


@pytest.mark.parametrize("kind", ["min", "max"])
def test_extremes_are_complete_while_a_group_is_small(kind: Extreme) -> None:
    known, live = extremes(kind, given_values(pa.int64(), []), 1), Counter[int]()
    for value in (5, 3, 9, 3):
        counts = np.array([live.total()])
        known = changed(kind, known, counts, given_values(pa.int64(), [(0, value)]), given_values(pa.int64(), []))
        live[value] += 1
        kept = [column[0].as_py() for column in known if column[0].is_valid]
        assert kept == sorted(live.elements(), reverse=kind == "max")
    assert len(kept) == KEPT


def test_a_group_whose_known_extremes_are_all_gone_has_none() -> None:
    rows = [(0, value) for value in range(10)]
    known = extremes("min", given_values(pa.int64(), rows), 1)
    none = given_values(pa.int64(), [])
    lost = changed("min", known, np.array([10]), none, given_values(pa.int64(), rows[:KEPT]))
    assert [column[0].as_py() for column in lost] == [None] * KEPT
    # What is added beyond the last known value may not be the least one that is left.
    beyond = changed(
        "min", known, np.array([10]), given_values(pa.int64(), [(0, 5)]), given_values(pa.int64(), rows[:KEPT])
    )
    assert beyond[0][0].as_py() is None
