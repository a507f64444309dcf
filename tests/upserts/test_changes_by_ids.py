"""Tables of format version 3 show the ids of their rows, and pair updates by them without keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from tests.tiers import some
from tests.upserts.lake import Lake
from tests.upserts.test_row_ids import STRATEGIES, change, stored
from volley import ConfigError, Environment, IcebergSource, IcebergSourceConfig
from volley.iceberg import IcebergTable, Incremental, Overwrite, Upsert, changes_between
from volley.iceberg.changes import Change, Delete, Insert, Update
from volley.iceberg.modes import Strategy
from volley.iceberg.read import lineage

SCHEMA = pa.schema({"id": pa.int64(), "name": pa.string(), "more": pa.string(), "at": pa.int64(), "op": pa.string()})
BOTH = ["row_id", "last_updated_sequence_number"]
Row = dict[str, Any]


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    lake = Lake(tmp_path, Upsert(["id"], op_field="op"), SCHEMA)
    lake.config = lake.config.with_table_properties({"format-version": "3"})
    yield lake
    lake.close()


def head(lake: Lake) -> int:
    snapshot = lake.table().current_snapshot()
    assert snapshot is not None
    return snapshot.snapshot_id


def rows_of(lake: Lake) -> dict[int, Row]:
    return {row["id"]: row for row in IcebergTable(lake.config.ref).to_arrow().to_pylist()}


def bag(changes: Iterable[Change]) -> Counter[str]:
    return Counter(map(repr, changes))


def expected(before: dict[int, Row], after: dict[int, Row], anew: set[int]) -> Counter[str]:
    """The changes between two states of a table.

    Args:
        anew: The keys whose rows are others than those of before, even if they have the same key.
    """
    changes: list[Change] = []
    for key in before.keys() | after.keys():
        old, new = before.get(key), after.get(key)
        if old == new:
            continue
        if old and new and key not in anew:
            changes.append(Update(old, new))
        else:
            changes += [*([Delete(old)] if old else []), *([Insert(new)] if new else [])]
    return bag(changes)


@pytest.mark.parametrize("strategy", some(STRATEGIES))
def test_updates_are_paired_without_keys(lake: Lake, strategy: Strategy) -> None:
    lake.config = lake.config.with_commit_mode(Upsert(["id"], op_field="op", strategy=strategy))
    rng = Random(strategy)
    lake.epoch([change(number, 0) for number in range(40)])
    for step in range(1, 8):
        before, start = rows_of(lake), head(lake)
        sent = [
            change(rng.randrange(50), step, rng.choice("uuud"), rng.choice([None, "a"]))
            for _ in range(rng.choice([3, 30]))
        ]
        lake.epoch(sent)
        after = rows_of(lake)
        anew = {row["id"] for row in sent if row["op"] == "d"}
        assert bag(changes_between(lake.config.ref, start)) == expected(before, after, anew)
        assert bag(changes_between(lake.config.ref, start, keys="id")) == expected(before, after, set())
        if step == 4:
            start = head(lake)
            IcebergTable(lake.config.ref).compact(rewrite_all=True)
            assert not [*changes_between(lake.config.ref, start)]


@pytest.mark.parametrize("version", ["2", "3"])
@pytest.mark.parametrize("strategy", some(STRATEGIES))
def test_nested_columns_change(tmp_path: Path, strategy: Strategy, version: str) -> None:
    """By ids in version 3, by the values of rows in version 2."""
    kinds = {
        **{"id": pa.int64(), "s": pa.struct({"a": pa.int64(), "deep": pa.struct({"id": pa.string()})})},
        **{"l": pa.list_(pa.struct({"id": pa.int64()})), "m": pa.map_(pa.string(), pa.list_(pa.float64()))},
    }
    lake = Lake(tmp_path, Upsert(["id"], strategy=strategy), pa.schema(kinds), **{"format-version": version})

    def row(number: int, step: int) -> Row:
        deep = {"id": None if number % 3 else f"s{step}"}
        return {
            **{"id": number, "s": None if number % 5 == 4 else {"a": step, "deep": deep}},
            **{"l": [{"id": step}, None][: number % 3], "m": [("k", [float(step), None])] if number % 2 else None},
        }

    lake.epoch([row(number, 0) for number in range(12)])
    for step in (1, 2):
        before, start = rows_of(lake), head(lake)
        lake.epoch([row(number, step * (number % 2)) for number in range(step, 9 + 3 * step)])
        after = rows_of(lake)
        assert bag(changes_between(lake.config.ref, start, keys="id")) == expected(before, after, set())
        changed = {key for key in before.keys() & after.keys() if before[key] != after[key]}
        anew = set() if version == "3" else changed
        assert bag(changes_between(lake.config.ref, start)) == expected(before, after, anew)
    lake.close()


def test_rows_that_are_written_anew_with_other_ids_do_not_change(lake: Lake) -> None:
    rows = [change(number, 0, name=f"n{number}") for number in range(10)]
    lake.epoch(rows)
    before, start, ids = rows_of(lake), head(lake), stored(lake, "id")
    lake.config = lake.config.with_commit_mode(Overwrite())
    lake.schema = pa.schema([field for field in SCHEMA if field.name != "op"])
    kept = [{name: value for name, value in row.items() if name != "op"} for row in rows]
    lake.epoch([*kept[:8], {**kept[8], "name": "other"}])
    assert not {row.row_id for row in ids.values()} & {row.row_id for row in stored(lake, "id").values()}
    assert bag(changes_between(lake.config.ref, start)) == expected(before, rows_of(lake), {8})


@pytest.mark.parametrize("spread", [lineage._MOST_SPREAD, 0], ids=["near", "far apart"])
def test_few_changed_rows_of_large_files(lake: Lake, monkeypatch: pytest.MonkeyPatch, spread: int) -> None:
    monkeypatch.setattr(lineage, "_MOST_SPREAD", spread)
    lake.config = lake.config.with_commit_mode(Upsert(["id"], op_field="op", strategy="copy_on_write"))
    lake.epoch([change(number, 0) for number in range(100_000)])
    before = rows_of(lake)
    # The second file has its ids in a column of its own.
    for sent in (
        [change(7, 1), change(99_000, 1, "d"), change(100_001, 1)],
        [change(8, 2), change(7, 2), change(5, 2, "d")],
    ):
        start = head(lake)
        lake.epoch(sent)
        after = rows_of(lake)
        assert bag(changes_between(lake.config.ref, start)) == expected(before, after, set())
        before = after


def test_rows_of_many_small_files_are_not_all_in_memory(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    used, differing = list[int](), lineage._differing
    lake.config = lake.config.with_commit_mode(Upsert(["id"], op_field="op", strategy="copy_on_write"))
    lake.epoch([change(number, 0, more=Random(number).randbytes(500).hex()) for number in range(5_000)])
    start, before = head(lake), rows_of(lake)
    lake.epoch([change(7, 1)])
    changes = expected(before, rows_of(lake), set())

    def measured(*sides: Any) -> Any:
        used.append(pa.total_allocated_bytes())
        return differing(*sides)

    monkeypatch.setattr(lineage, "_differing", measured)
    assert bag(changes_between(lake.config.ref, start)) == changes
    monkeypatch.setattr(lineage, "_FEW_BYTES", 1 << 20)
    assert bag(changes_between(lake.config.ref, start)) == changes
    whole, ids_alone = used
    assert whole - ids_alone > 8_000_000


def test_rows_show_their_ids_and_numbers(lake: Lake) -> None:
    lake.epoch([change(number, 0) for number in range(20)])
    lake.epoch([change(3, 1), change(4, 1, "d")])
    lake.epoch([change(3, 2), change(40, 1)])
    IcebergTable(lake.config.ref).compact(rewrite_all=True)
    lake.epoch([change(5, 2)])
    known = stored(lake, "id")
    rows = IcebergTable(lake.config.ref).rows.include(*BOTH)
    found = {row["id"]: row for row in rows.to_arrow().to_pylist()}
    assert {key: (row["_row_id"], row["_last_updated_sequence_number"]) for key, row in found.items()} == known
    chosen = rows.filter(f"_row_id = {known[5].row_id}").select("_row_id", "id").to_arrow()
    assert chosen.to_pylist() == [{"_row_id": known[5].row_id, "id": 5}]
    assert rows.filter("_last_updated_sequence_number = 1").to_arrow().num_rows == 17


def test_a_stream_of_changes_shows_the_ids(lake: Lake) -> None:
    lake.epoch([change(number, 0) for number in range(5)])
    ids = stored(lake, "id")
    lake.epoch([change(2, 1, name="b"), change(3, 1, "d")])
    config = IcebergSourceConfig(lake.config.ref).with_changes("follow").with_include("row_id")
    first = lake.table().snapshots()[0].snapshot_id
    stream = Environment().from_source(IcebergSource(config.with_mode(Incremental(start_snapshot=first))))
    rows = stream.to_arrow().to_pylist()
    assert sorted((row["_change"], row["id"], row["_row_id"]) for row in rows) == [
        ("delete", 3, ids[3].row_id),
        ("update_after", 2, ids[2].row_id),
        ("update_before", 2, ids[2].row_id),
    ]


def test_ids_are_refused_where_rows_have_none(tmp_path: Path) -> None:
    lake = Lake(tmp_path, Upsert(["id"], op_field="op"), SCHEMA, **{"format-version": "2"})
    try:
        lake.epoch([change(1, 0)])
        view = IcebergTable(lake.config.ref)
        with pytest.raises(ConfigError, match="has format version 2, whose rows have no ids"):
            view.rows.include("row_id").to_arrow()
        view.upgrade(3)
        assert view.rows.include("row_id").to_arrow()["_row_id"].to_pylist() == [None]
        lake.epoch([change(2, 0)])
        assert set(view.rows.include("row_id").to_arrow()["_row_id"].to_pylist()) == {0, 1}
    finally:
        lake.close()
