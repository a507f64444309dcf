"""An epoch that adds data files to very many partitions."""

from __future__ import annotations

import random
from pathlib import Path

import fastavro
import pyarrow as pa
import pytest
from pyiceberg.expressions.parser import parse

from tests.tiers import some
from tests.upserts.lake import Lake
from volley.iceberg import Append, Partitioning, Upsert
from volley.iceberg.modes import CommitMode
from volley.iceberg.read.planning import plan

SCHEMA = pa.schema({"key": pa.float64(), "value": pa.int64()})
PARTITIONS = 1_100


@pytest.mark.parametrize("mode", some([Append(), Upsert(["value"])]), ids=["append", "upsert"])
def test_manifests_are_divided_by_partition(mode: CommitMode, tmp_path: Path) -> None:
    lake = Lake(tmp_path, mode, SCHEMA)
    lake.config = lake.config.with_partitioning(Partitioning.identity("key"))
    keys = [None, float("nan"), -0.0, *(number / 2 for number in range(1, PARTITIONS - 2))]
    random.Random(3).shuffle(keys)
    rows = [{"key": key, "value": number} for number, key in enumerate(keys)]
    # An upsert of a row that is there removes its file: that snapshot is written in another way.
    lake.epoch([rows[0]])
    lake.epoch(rows if isinstance(mode, Upsert) else rows[1:])

    table = lake.table()
    snapshot = table.current_snapshot()
    assert snapshot is not None
    new = [each for each in snapshot.manifests(table.io) if each.added_files_count]
    assert sum(each.added_snapshot_id == snapshot.snapshot_id for each in new) == 2
    by_value = {row["value"]: row["key"] for row in table.scan().to_arrow().to_pylist()}
    assert repr([by_value[row["value"]] for row in rows]) == repr(keys)
    for row_filter in ("key = 7.5", "key is null"):
        found = plan(table.io, table.metadata, snapshot, parse(row_filter))
        assert (len(found.files), found.skipped_manifests > 0) == (1, True)


def test_a_block_of_a_manifest_has_many_entries(tmp_path: Path) -> None:
    lake = Lake(tmp_path, Append(), SCHEMA)
    lake.config = lake.config.with_partitioning(Partitioning.identity("key"))
    lake.epoch([{"key": float(number), "value": number} for number in range(300)])

    table = lake.table()
    snapshot = table.current_snapshot()
    assert snapshot is not None
    (manifest,) = snapshot.manifests(table.io)
    with open(manifest.manifest_path.removeprefix("file://"), "rb") as file:
        blocks = [block.num_records for block in fastavro.block_reader(file)]
    assert blocks == [128, 128, 44]
    assert Path(manifest.manifest_path.removeprefix("file://")).stat().st_size == manifest.manifest_length
    assert sorted(table.scan().to_arrow()["value"].to_pylist()) == list(range(300))
