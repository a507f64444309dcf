"""A copy that follows a table is right again after a rollback, and after another history took the table's place."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pytest
from pyiceberg.table import Table
from pyiceberg.table.update import AssertRefSnapshotId, RemoveSnapshotRefUpdate

from tests.tiers import some
from tests.upserts.lake import Lake, shipped
from volley import ConfigError, SnapshotExpiredError, SnapshotRolledBackError, SourceContext
from volley.contracts.source import Reader
from volley.iceberg import IcebergSource, IcebergSourceConfig, IcebergTable, Incremental, SnapshotManager, Upsert
from volley.iceberg.pyiceberg_private.access import commit_once, stage
from volley.iceberg.source_config import OnRollback

SCHEMA = pa.schema({"id": pa.int64(), "v": pa.string(), "op": pa.string()})
Strategy = Literal["copy_on_write", "merge_on_read"]


class Copy:
    """A copy by key of a table, as a job keeps it; a change that does not fit it is an error."""

    def __init__(self, lake: Lake, folder: Path, on_rollback: OnRollback = "undo", rows: int | None = None) -> None:
        config = IcebergSourceConfig(lake.config.ref).with_mode(Incremental(0.001)).with_changes("follow", "id")
        self._config = config.with_on_rollback(on_rollback).with_max_rows_per_epoch(rows)
        self._folder, self._limit = folder, rows
        self.rows: dict[int, str] = {}
        self.times: list[Any] = []
        self.restart()
        self._offset = self._reader.initial_offset()

    def restart(self) -> None:
        """Go on in another process, which has only what is in the checkpoint."""
        self._reader: Reader = IcebergSource(self._config).open(SourceContext(str(self._folder)))

    def epoch(self, dies: bool = False) -> bool:
        """One epoch; False if there was nothing to read.

        Args:
            dies: The driver dies after it has planned the epoch, which is read again as it was planned.
        """
        end = json.loads(json.dumps(self._reader.latest_offset(self._offset, self._limit, None)))
        if end == self._offset:
            return False
        changes = self._changes(end)
        if dies:
            self.restart()
            assert self._changes(end) == changes
        for change in changes:
            self._apply(change)
        self._offset = end
        self._reader.committed(end)
        assert self._reader.lag(end) is not None
        return True

    def _changes(self, end: dict[str, Any]) -> list[dict[str, Any]]:
        read, splits = shipped(self._reader.split_reader()), shipped(self._reader.splits(self._offset, end))
        return [row for split in splits for batch in read.read(split) for row in batch.to_pylist()]

    def _apply(self, change: dict[str, Any]) -> None:
        kind, key = change["_change"], change["id"]
        self.times.append(change["_committed_at"])
        if kind in ("delete", "update_before"):
            assert self.rows.pop(key) == change["v"]
        else:
            assert key not in self.rows
            self.rows[key] = change["v"]

    def catch_up(self) -> dict[int, str]:
        while self.epoch():
            pass
        return self.rows


@pytest.fixture(params=["copy_on_write", "merge_on_read"])
def lake(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Lake]:
    strategy: Strategy = request.param
    made = Lake(tmp_path, Upsert(["id"], op_field="op", strategy=strategy), SCHEMA)
    yield made
    made.close()


def upsert(lake: Lake, **rows: str | None) -> int:
    """Change rows, by id; None deletes. Returns the snapshot."""
    ids = [(int(name.removeprefix("r")), value) for name, value in rows.items()]
    lake.epoch([{"id": key, "v": value, "op": "u" if value else "d"} for key, value in ids])
    return head(lake)


def head(lake: Lake) -> int:
    snapshot = lake.table().current_snapshot()
    assert snapshot is not None
    return snapshot.snapshot_id


def set_to(lake: Lake, snapshot: int) -> None:
    lake.table().manage_snapshots().set_current_snapshot(snapshot).commit()


def replace(lake: Lake, rows: dict[int, str]) -> None:
    """What `create or replace table … as select` does: a first snapshot again, in the same table."""
    table = set_to_nothing(lake)
    table.append(pa.table({"id": list(rows), "v": list(rows.values())}, schema=pa.schema(list(SCHEMA)[:2])))


def set_to_nothing(lake: Lake) -> Table:
    table = lake.table()
    transaction = table.transaction()
    stage(transaction, RemoveSnapshotRefUpdate.model_validate({"ref-name": "main"}))
    current = AssertRefSnapshotId.model_validate({"ref": "main", "snapshot-id": table.metadata.current_snapshot_id})
    commit_once(table, transaction, current)
    assert table.current_snapshot() is None
    return table


def rows_of(lake: Lake) -> dict[int, str]:
    """As pyiceberg reads the table."""
    return {row["id"]: row["v"] for row in lake.rows()}


def test_what_was_rolled_back_is_taken_back(lake: Lake, tmp_path: Path) -> None:
    first = upsert(lake, r1="a", r2="b", r3="c")
    copy = Copy(lake, tmp_path / "state")
    upsert(lake, r2="B", r3=None, r4="d")
    upsert(lake, r2="BB", r1=None, r5="e")
    assert copy.catch_up() == rows_of(lake) == {2: "BB", 4: "d", 5: "e"}
    SnapshotManager(lake.config).rollback_to(first)
    assert copy.catch_up() == rows_of(lake) == {1: "a", 2: "b", 3: "c"}
    upsert(lake, r3="C", r6="f")
    assert copy.catch_up() == rows_of(lake) == {1: "a", 2: "b", 3: "C", 6: "f"}
    assert not copy.epoch()


def test_rolled_back_and_written_to_before_the_copy_looks(lake: Lake, tmp_path: Path) -> None:
    first = upsert(lake, r1="a", r2="b")
    copy = Copy(lake, tmp_path / "state")
    second = upsert(lake, r1=None, r3="c")
    copy.catch_up()
    set_to(lake, first)
    upsert(lake, r1="A")
    assert copy.catch_up() == rows_of(lake) == {1: "A", 2: "b"}
    # Back to the history that had been left.
    set_to(lake, second)
    assert copy.catch_up() == rows_of(lake) == {2: "b", 3: "c"}
    # The times don't go back: a sink may order rows by them.
    assert copy.times == sorted(copy.times)


def test_rolled_back_while_the_first_snapshot_is_read(lake: Lake, tmp_path: Path) -> None:
    """Of some of its files only: what is left of them is read first, then taken back."""
    for number in range(4):
        upsert(lake, **{f"r{number}": f"{number}"})
    second = lake.table().snapshots()[1].snapshot_id
    copy = Copy(lake, tmp_path / "state", rows=1)
    copy.epoch()
    assert len(copy.rows) == 1
    set_to(lake, second)
    upsert(lake, r1="B")
    assert copy.catch_up() == rows_of(lake) == {0: "0", 1: "B"}


def test_a_table_that_was_replaced(lake: Lake, tmp_path: Path) -> None:
    upsert(lake, r1="a", r2="b")
    upsert(lake, r1="A", r2=None, r3="c")
    copies = [Copy(lake, tmp_path / f"state{rows}", rows=rows) for rows in (None, 1)]
    for copy in copies:
        copy.catch_up()
    replace(lake, {1: "x", 9: "y"})
    for copy in copies:
        assert copy.catch_up() == rows_of(lake) == {1: "x", 9: "y"}


def test_a_table_that_was_set_back_to_nothing(lake: Lake, tmp_path: Path) -> None:
    upsert(lake, r1="a", r2="b")
    copy = Copy(lake, tmp_path / "state")
    copy.catch_up()
    set_to_nothing(lake)
    assert copy.catch_up() == rows_of(lake) == {}
    upsert(lake, r3="c")
    assert copy.catch_up() == rows_of(lake) == {3: "c"}


@pytest.mark.parametrize("seed", some(range(4)))
def test_histories_by_chance(seed: int, lake: Lake, tmp_path: Path) -> None:
    """Epochs of one snapshot or of all, drivers that die, compactions, and a table that changes between any of them."""
    chance = random.Random(seed)
    upsert(lake, **{f"r{key}": "first" for key in range(8)})
    copies = [Copy(lake, tmp_path / f"state{rows}", rows=rows) for rows in (None, 1)]
    for step in range(12):
        if chance.random() < 0.35:
            set_to(lake, chance.choice(lake.table().snapshots()).snapshot_id)
        if chance.random() < 0.15:
            IcebergTable(lake.config).compact(rewrite_all=True)
        if chance.random() < 0.1:
            replace(lake, dict.fromkeys(range(chance.randrange(4)), f"new {step}"))
        keys = chance.sample(range(12), 3)
        upsert(lake, **{f"r{key}": chance.choice([None, f"{step}", "same"]) for key in keys})
        for copy in copies:
            for _ in range(chance.randrange(3)):
                copy.epoch(dies=chance.random() < 0.5)
    for copy in copies:
        assert copy.catch_up() == rows_of(lake)


def test_without_the_setting_the_job_stops_and_names_it(lake: Lake, tmp_path: Path) -> None:
    first = upsert(lake, r1="a")
    copy = Copy(lake, tmp_path / "state", "fail")
    upsert(lake, r2="b")
    copy.catch_up()
    set_to(lake, first)
    with pytest.raises(SnapshotRolledBackError) as caught:
        copy.epoch()
    assert 'with_on_rollback("undo")' in str(caught.value.hint)
    assert "swap" not in str(caught.value.hint)


def test_what_has_expired_cannot_be_taken_back(lake: Lake, tmp_path: Path) -> None:
    first = upsert(lake, r1="a")
    copy = Copy(lake, tmp_path / "state")
    second = upsert(lake, r2="b")
    upsert(lake, r3="c")
    copy.catch_up()
    set_to(lake, first)
    lake.table().maintenance.expire_snapshots().by_ids([second]).commit()
    with pytest.raises(SnapshotExpiredError, match="can't be taken back"):
        copy.epoch()
    assert copy.rows == {1: "a", 2: "b", 3: "c"}


def test_a_stream_of_rows_reads_the_table_again(lake: Lake, tmp_path: Path) -> None:
    first = upsert(lake, r1="a")
    config = IcebergSourceConfig(lake.config.ref).with_changes("added_rows").with_on_rollback("rescan")
    reader = IcebergSource(config).open(SourceContext(str(tmp_path / "state")))

    def read(start: Any) -> tuple[Any, list[int]]:
        end = reader.latest_offset(start, None, None)
        batches = [batch for split in reader.splits(start, end) for batch in reader.read(split)]
        return end, sorted(key for batch in batches for key in batch["id"].to_pylist())

    offset, _ = read(reader.initial_offset())
    upsert(lake, r2="b")
    offset, keys = read(offset)
    assert keys == [2]
    set_to(lake, first)
    upsert(lake, r3="c")
    offset, keys = read(offset)
    assert keys == [1, 3]
    assert read(offset)[1] == []


def test_settings_that_contradict_each_other_are_refused() -> None:
    from volley.iceberg import IcebergStorage, TableRef

    config = IcebergSourceConfig(TableRef("db", "events", IcebergStorage.Local("/tmp/lake")))
    with pytest.raises(ConfigError, match="on_rollback='undo' does not go with changes='fail'"):
        config.with_on_rollback("undo")
    with pytest.raises(ConfigError, match="on_rollback='rescan' does not go with changes='follow'"):
        config.with_changes("follow").with_on_rollback("rescan")
