"""Rows by bucket come back as they were kept, from memory and from the local disk, which keeps no file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from volley import StorageError
from volley.columns.keys.buckets import Divided, divided
from volley.store.rows import RowStore, merged

ROWS = st.lists(st.tuples(st.integers(0, 3), st.none() | st.text(max_size=3)), min_size=1, max_size=6)


def batch(rows: list[tuple[int, str | None]]) -> pa.RecordBatch:
    return pa.record_batch(
        {"bucket": [row[0] for row in rows], "text": pa.array([row[1] for row in rows], pa.string())}
    )


def by_bucket(rows: pa.RecordBatch) -> Divided:
    return divided(rows, rows.column("bucket").to_numpy())


@given(
    batches=st.lists(ROWS, min_size=1, max_size=5),
    max_bytes=st.sampled_from([0, 60, 1 << 20]),
    compressed=st.booleans(),
)
def test_rows_of_a_bucket_come_back_in_their_order(batches: Any, max_bytes: int, compressed: bool) -> None:
    store = RowStore(max_bytes, by_bucket, compressed)
    for rows in batches:
        store.append(batch(rows))
    flat = [row for rows in batches for row in rows]
    assert store.size == sum(batch(rows).nbytes for rows in batches)
    assert sorted(store.buckets) == sorted({bucket for bucket, _ in flat})
    for _ in range(2):
        for bucket in range(5):
            rows = [row for piece in store.read(bucket) for row in piece.to_pylist()]
            assert [(row["bucket"], row["text"]) for row in rows] == [row for row in flat if row[0] == bucket]


def test_what_is_beyond_the_bytes_goes_to_files_without_names(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    store, rows = RowStore(8), pa.record_batch({"n": [1]})
    store.append(rows)
    assert (store.waiting, store.spilled_bytes) == ([rows], 0)
    store.append(pa.record_batch({"n": [2]}))
    assert store.spilled_bytes == 8
    assert list(tmp_path.iterdir()) == []
    assert [piece.column("n").to_pylist() for piece in store.read(0)] == [[1], [2]]


def test_a_disk_without_room_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "gone"))
    store = RowStore(0)
    store.append(pa.record_batch({"n": [1, 2]}))
    with pytest.raises(StorageError, match=rf"16 bytes of rows can't be kept in {tmp_path}/gone") as error:
        store.append(pa.record_batch({"n": [3]}))
    assert "spark.local.dir" in str(error.value.hint)


@given(runs=st.lists(st.lists(st.integers(0, 9), min_size=1), min_size=2, max_size=4), window=st.integers(1, 5))
def test_sorted_runs_are_merged_in_batches(runs: list[list[int]], window: int) -> None:
    pieces = [pa.record_batch({"n": sorted(run)}) for run in runs]
    order = np.argsort(np.concatenate([piece.column("n").to_numpy() for piece in pieces]), kind="stable")
    found = list(merged(pieces, order, window))
    assert [n for piece in found for n in piece.column("n").to_pylist()] == sorted(n for run in runs for n in run)
    assert all(piece.num_rows <= window for piece in found)
