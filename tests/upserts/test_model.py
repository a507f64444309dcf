"""Any sequence of upserts and deletes leaves in the table what it leaves in a dict."""

from __future__ import annotations

import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tiers import examples, some
from tests.upserts.lake import Lake
from volley.iceberg import Upsert
from volley.iceberg.modes import Strategy

SCHEMA = pa.schema({"id": pa.int64(), "part": pa.string(), "value": pa.int64(), "op": pa.string()})
Row = dict[str, Any]

ROWS = st.fixed_dictionaries(
    {
        "id": st.integers(0, 12),
        "part": st.sampled_from(["a", "b"]),
        "value": st.none() | st.integers(0, 5),
        "op": st.sampled_from(["u", "u", "c", "D", "delete", None]),
    }
)
TASKS = st.lists(st.lists(ROWS, max_size=12), min_size=1, max_size=3)


def expected(epochs: list[list[list[Row]]], order_by: str | None) -> list[Row]:
    """What a dict makes of it."""
    table: dict[tuple[int, str], Row] = {}
    for tasks in epochs:
        rows = [row for task in tasks for row in task]
        if order_by:
            rows.sort(key=lambda row: (row[order_by] is not None, row[order_by] or 0))
        for row in rows:
            key = row["id"], row["part"]
            table.pop(key, None)
            if (row["op"] or "").lower() not in ("d", "delete"):
                table[key] = {name: row[name] for name in ("id", "part", "value")}
    return sorted(table.values(), key=repr)


@pytest.mark.parametrize("strategy", some(["auto", "merge_on_read", "copy_on_write"]))
@settings(max_examples=examples(0.8))
@given(epochs=st.lists(TASKS, min_size=1, max_size=5), order_by=st.sampled_from([None, "value"]))
def test_the_table_is_what_a_dict_would_be(
    strategy: Strategy, epochs: list[list[list[Row]]], order_by: str | None
) -> None:
    mode = Upsert(["id", "part"], order_by=order_by, op_field="op", strategy=strategy)
    with tempfile.TemporaryDirectory() as folder, closing(Lake(Path(folder), mode, SCHEMA)) as lake:
        for tasks in epochs:
            lake.epoch(*tasks)
        assert lake.rows() == expected(epochs, order_by)
        live = {file["file_path"].rpartition("/")[2] for file in lake.table().inspect.all_files().to_pylist()}
        assert not [path for path in lake.files() if "-changes" in path.name]
        assert {path.name for path in lake.files()} <= live
