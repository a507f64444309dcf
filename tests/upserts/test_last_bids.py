"""Nexmark's query 18, the last bid of each bidder on each auction, as an upsert by sequence, beside DuckDB."""

from __future__ import annotations

import numpy as np
import pytest

from tests.duck import query
from tests.nexmark import LAST_BIDS, bids
from tests.tiers import nightly
from tests.upserts.conftest import MakeLake
from volley.iceberg import Upsert


@pytest.mark.parametrize(("epochs", "deleted"), [(4, 0.2), nightly(40, 0.0)])
def test_no_key_is_stale(epochs: int, deleted: float, make_lake: MakeLake) -> None:
    rows = bids(3_000, late=1_000, deleted=deleted)
    lake = make_lake(Upsert(["auction", "bidder"], sequence="date_time", op_field="op"), rows.schema)
    for part in np.array_split(np.arange(rows.num_rows), epochs):
        lake.epoch(rows.slice(part[0], len(part)).to_pylist())
    expected = query(LAST_BIDS, bids=rows).to_arrow_table().to_pylist()
    assert len(expected) > 200
    assert lake.rows() == lake.duckdb_rows() == sorted(expected, key=repr)
