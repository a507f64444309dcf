"""The refresh that ``mode="auto"`` takes, by the rows that are read.

Times play no part: rows are given one beside which nothing counts, the same for both kinds of refresh.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.views.tables import Known, Query, Row, checked, view_of
from volley import MaterializedView, ViewEstimate, count, sum_

SCHEMA = pa.schema({"id": pa.int64(), "parity": pa.int64(), "block": pa.int64(), "weight": pa.float64()})
COUNTS = Query(
    lambda orders: orders.key_by("parity").aggregate(n=count()), "select parity, count(*) n from orders group by all"
)
# Sums of floating-point numbers are computed from all rows of a group that has lost one.
SUMS = Query(
    lambda orders: orders.key_by("parity").aggregate(n=count(), total=sum_("weight")),
    "select parity, count(*) n, sum(weight) total from orders group by all",
)
# Each block is a file.
BLOCKS = Query(
    lambda orders: orders.key_by("block").aggregate(total=sum_("weight")),
    "select block, sum(weight) total from orders group by all",
)
FILES, FILE_ROWS = 5, 2_000
ROWS = FILES * FILE_ROWS


def order(number: int) -> Row:
    return {"id": number, "parity": number % 2, "block": number // FILE_ROWS, "weight": float(number % 8)}


@pytest.fixture
def orders(tmp_path: Path) -> Iterator[Known]:
    table = Known(tmp_path, SCHEMA)
    for start in range(0, ROWS, FILE_ROWS):
        table.change([order(number) for number in range(start, start + FILE_ROWS)])
    yield table
    table.files.close()


def make_rows_dear(view: MaterializedView) -> None:
    """Set the times of both kinds to those of one slow row, and keep what is known of rows."""
    table = view.into.ref.load()
    known: dict[str, Any] = json.loads(table.properties["volley.view.costs"])
    kinds = {kind: {"seconds": 1.0, "rows": 1, "factor": 1e6} for kind in ("incremental", "full")}
    with table.transaction() as transaction:
        transaction.set_properties({"volley.view.costs": json.dumps({**known, "kinds": kinds})})


def estimated(view: MaterializedView) -> dict[str, ViewEstimate]:
    return {estimate.mode: estimate for estimate in view.explain().estimates}


def test_the_rows_of_the_changed_files_decide(orders: Known) -> None:
    """Whatever kind the last refresh was of, and whatever it took."""
    view = view_of(COUNTS, {"orders": orders})
    view.refresh()
    # Two snapshots that delete rows of all files: these are read for each.
    few, many = [range(10)], [range(0, ROWS - 100, 500)] * 2
    for changes, mode, rows in (
        (few, "incremental", FILE_ROWS),
        (many, "full", 2 * ROWS),
        (few, "incremental", FILE_ROWS),
    ):
        for removed in changes:
            orders.change([], removed)
        make_rows_dear(view)
        estimates = estimated(view)
        assert (estimates["incremental"].rows, estimates["full"].rows) == (rows, len(orders.rows))
        done = checked(view, COUNTS, {"orders": orders})
        assert (done.mode, done.rows_read) == (mode, min(rows, ROWS))


def test_the_rows_that_groups_read_again_decide_too(orders: Known) -> None:
    view = view_of(BLOCKS, {"orders": orders})
    view.refresh()
    for known in (0, FILE_ROWS):
        orders.change([], [0])
        make_rows_dear(view)
        assert estimated(view)["incremental"].rows == FILE_ROWS + known
        # The other files may have rows of the group, as far as the manifests tell, but not by what they say themselves.
        done = checked(view, BLOCKS, {"orders": orders})
        assert (done.mode, done.rows_read) == ("incremental", 2 * FILE_ROWS)


def test_a_refresh_is_given_up_before_it_reads_more_than_a_full_one(orders: Known) -> None:
    view = view_of(SUMS, {"orders": orders})
    view.refresh()
    orders.change([], [0])
    make_rows_dear(view)
    assert estimated(view)["incremental"].rows == FILE_ROWS
    done = checked(view, SUMS, {"orders": orders})
    assert done.reason == "by changes it would read at least 12,000 rows, computed anew 9,999"
    # Those of the changes were read already.
    assert (done.mode, done.rows_read) == ("full", FILE_ROWS + ROWS)
    # The same changes would read as many again: one such refresh is doubted a little.
    orders.change([], [0])
    make_rows_dear(view)
    assert estimated(view)["incremental"].rows == FILE_ROWS + ROWS * 4 // 5
    done = checked(view, SUMS, {"orders": orders})
    assert (done.mode, done.rows_read) == ("full", ROWS)
    assert done.reason.endswith("about 2,000 rows to read for the changes of 9,998, and 8,000 for joins and groups")
    # After some that were full it is tried again: its rows may have become fewer.
    orders.change([order(number) for number in range(4)])
    for _ in range(8):
        make_rows_dear(view)
        if checked(view, SUMS, {"orders": orders}).mode == "incremental":
            break
        orders.change([order(1)])
    assert json.loads(view.into.ref.load().properties["volley.view.costs"])["last"] == "incremental"
