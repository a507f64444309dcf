"""The changes of a followed table have the sequence numbers of their snapshots: a copy is right in any order."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.tiers import some
from tests.upserts.lake import Lake, shipped
from volley import ConfigError, SourceContext
from volley.iceberg import IcebergSource, IcebergSourceConfig, IcebergTable, Incremental, Upsert

SCHEMA = pa.schema({"id": pa.int64(), "v": pa.string(), "op": pa.string()})
COPIED = pa.schema({"id": pa.int64(), "v": pa.string(), "_change": pa.string(), "_sequence": pa.int64()})


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with closing(Lake(tmp_path / "first", Upsert(["id"], op_field="op"), SCHEMA)) as made:
        yield made


def changes_of(lake: Lake, folder: Path) -> Iterator[list[dict[str, Any]]]:
    """The changes of a table, from its rows now to what it gets; one list each time that some are there."""
    config = IcebergSourceConfig(lake.config.ref).with_mode(Incremental(0.001))
    followed = config.with_changes("follow", "id", sequence=True).with_columns(COPIED.names)
    reader = IcebergSource(followed).open(SourceContext(str(folder)))
    offset = reader.initial_offset()
    while True:
        end = reader.latest_offset(offset, None, None)
        read, splits = shipped(reader.split_reader()), shipped(reader.splits(offset, end))
        yield [row for split in splits for batch in read.read(split) for row in batch.to_pylist()]
        offset = end


@pytest.mark.parametrize("seed", some(range(3)))
def test_a_copy_in_any_order(seed: int, lake: Lake, tmp_path: Path) -> None:
    dice, changes = random.Random(seed), list[dict[str, Any]]()
    following = changes_of(lake, tmp_path / "state")
    lake.epoch([{"id": id, "v": "first"} for id in range(8)])
    for number in range(6):
        ids = dice.sample(range(10), 4)
        lake.epoch([{"id": id, "v": f"{number}", "op": dice.choice("uud")} for id in ids])
        if number == 3:
            IcebergTable(lake.config.ref).compact()
        changes += next(following)
    assert {change["_change"] for change in changes} >= {"insert", "update_after", "delete"}
    dice.shuffle(changes)
    mode = Upsert(["id"], sequence="_sequence", op_field="_change")
    with closing(Lake(tmp_path / "copy", mode, COPIED)) as copy:
        while changes:
            copy.epoch([changes.pop() for _ in range(min(len(changes), dice.randrange(1, 9)))])
        assert [(row["id"], row["v"]) for row in copy.rows()] == [(row["id"], row["v"]) for row in lake.rows()]


def test_the_column_comes_last_and_on_request(lake: Lake, tmp_path: Path) -> None:
    lake.epoch([{"id": 1, "v": "x"}])
    config = IcebergSourceConfig(lake.config.ref).with_changes("follow", "id")
    names = [IcebergSource(each).preview(SourceContext(str(tmp_path))) for each in (config, with_numbers(config))]
    assert [schema and schema.names[2:] for schema in names] == [
        ["_change", "_snapshot", "_committed_at"],
        ["_change", "_snapshot", "_committed_at", "_sequence"],
    ]


def with_numbers(config: IcebergSourceConfig) -> IcebergSourceConfig:
    return config.with_changes("follow", "id", sequence=True)


def test_what_has_no_numbers(lake: Lake, tmp_path: Path) -> None:
    config = IcebergSourceConfig(lake.config.ref)
    with pytest.raises(ConfigError, match="sequence=True goes with"):
        config.with_changes("follow", sequence=True)
    with pytest.raises(ConfigError, match="sequence=True goes with"):
        with_numbers(config).with_on_rollback("undo")
    with closing(Lake(tmp_path / "old", Upsert(["id"]), SCHEMA.remove(2), **{"format-version": "1"})) as old:
        old.epoch([{"id": 1, "v": "x"}])
        with pytest.raises(ConfigError, match="format version 1, whose snapshots have no sequence numbers"):
            IcebergSource(with_numbers(IcebergSourceConfig(old.config.ref))).open(SourceContext(str(tmp_path)))
