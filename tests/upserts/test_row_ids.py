"""The ids of rows in tables of format version 3: a row keeps its id while it is updated, and no id is given twice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product
from operator import itemgetter
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from tests.duck import query
from tests.tiers import some
from tests.upserts.lake import Lake
from volley.iceberg import History, IcebergTable, Upsert
from volley.iceberg.modes import Strategy
from volley.iceberg.upsert import replace as replace_module

SCHEMA = pa.schema({"id": pa.int64(), "name": pa.string(), "more": pa.string(), "at": pa.int64(), "op": pa.string()})
STRATEGIES: list[Strategy] = ["merge_on_read", "copy_on_write", "auto"]


class Stored(NamedTuple):
    """What lineage tells of a row."""

    row_id: int
    changed: int


Rows = Mapping[Any, Stored]


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    lake = Lake(tmp_path, Upsert(["id"]), SCHEMA)
    lake.config = lake.config.with_table_properties({"format-version": "3"})
    yield lake
    lake.close()


def change(number: int, at: int, op: str = "u", name: str | None = None, more: str | None = None) -> dict[str, Any]:
    return {"id": number, "name": name, "more": more, "at": at, "op": op}


def stored(lake: Lake, *keys: str) -> Rows:
    """By DuckDB, for each row what lineage tells of it."""
    columns = f"{', '.join(keys)}, _row_id, _last_updated_sequence_number"
    rows = query(f"select {columns} from iceberg_scan('{lake.table().metadata_location}')").fetchall()
    found = {row[:-2] if len(keys) > 1 else row[0]: Stored(*row[-2:]) for row in rows}
    assert len(found) == len(rows)
    return found


class Ids:
    """What is known of the ids that a table has given."""

    def __init__(self) -> None:
        self.rows: Rows = {}
        self._owners: dict[int, Any] = {}

    def check(self, now: Rows, same: set[Any], changed: set[Any]) -> None:
        """Check that some rows are those of before, and all others are new ones.

        Args:
            changed: The rows that have been changed since, or are new.
        """
        before = self.rows
        assert {key: now[key].row_id for key in same} == {key: before[key].row_id for key in same}
        assert not {now[key].row_id for key in now.keys() - same} & {row.row_id for row in before.values()}
        unchanged = same - changed
        assert {key: now[key].changed for key in unchanged} == {key: before[key].changed for key in unchanged}
        last = max((row.changed for row in before.values()), default=0)
        assert all(now[key].changed > last for key in changed)
        # No id is of two rows, at whatever time.
        assert all(self._owners.setdefault(row.row_id, key) == key for key, row in now.items())
        self.rows = now


def maintain(lake: Lake, rng: Random) -> None:
    view = IcebergTable(lake.config.ref)
    action = rng.choice(["compact", "sort", "deletes", "manifests", "nothing", "nothing"])
    if action == "compact":
        view.compact(rewrite_all=True)
    elif action == "sort":
        view.compact(rewrite_all=True, sort_by=["name desc", "id"])
    elif action == "deletes":
        view.rewrite_position_deletes()
    elif action == "manifests":
        view.rewrite_manifests()


MODES: dict[str, Upsert] = {
    "in_order": Upsert(["id"], op_field="op"),
    "by_column": Upsert(["id"], op_field="op", order_by="at"),
    "some_columns": Upsert(["id"], op_field="op", update_columns=["name", "at"]),
    "without_nulls": Upsert(["id"], op_field="op", ignore_nulls=True),
}


def in_order(lake: Lake, rng: Random, steps: int, keys: int = 30) -> None:
    """Upsert and maintain in turn; a row that comes after a deletion of its key is another one."""
    ids, alive = Ids(), set[int]()
    for step in range(steps):
        sent = [
            change(rng.randrange(keys), 100 * step + number, rng.choice("uuuuud"), rng.choice([f"n{step}", None]), "x")
            for number in range(rng.choice([3, 25]))
        ]
        lake.epoch(sent[:10], sent[10:])
        ended = {row["id"] for row in sent if row["op"] == "d"}
        last = {row["id"]: row["op"] for row in sent}
        before, alive = alive, (alive | last.keys()) - {key for key, op in last.items() if op == "d"}
        now = stored(lake, "id")
        assert now.keys() == alive
        ids.check(now, (alive & before) - ended, alive & last.keys())
        maintain(lake, rng)
        ids.check(stored(lake, "id"), alive, set())


@pytest.mark.parametrize("case", some(product(MODES, STRATEGIES), by=itemgetter(0)))
def test_an_updated_row_keeps_its_id(lake: Lake, case: tuple[str, Strategy]) -> None:
    name, strategy = case
    lake.config = lake.config.with_commit_mode(replace(MODES[name], strategy=strategy))
    in_order(lake, Random(f"{name}{strategy}"), 6)


@pytest.mark.nightly
@pytest.mark.parametrize("name", MODES)
def test_ids_stay_over_a_hundred_upserts_and_compactions_in_turn(lake: Lake, name: str) -> None:
    lake.config = lake.config.with_commit_mode(MODES[name])
    in_order(lake, Random(name), 100)


@pytest.mark.parametrize("case", some(product([False, True], STRATEGIES), by=itemgetter(0)))
def test_by_sequence_the_row_of_a_life_keeps_its_id(lake: Lake, case: tuple[bool, Strategy]) -> None:
    incomplete, strategy = case
    mode = Upsert(["id"], op_field="op", sequence="at", ignore_nulls=incomplete, strategy=strategy)
    lake.config = lake.config.with_commit_mode(mode)
    rng, ids = Random(f"{incomplete}{strategy}"), Ids()
    moments = rng.sample(range(1000), 200)
    model, deletions = dict[int, int](), dict[int, list[int]]()
    for step in range(8):
        sent = [
            change(rng.randrange(20), moments.pop(), rng.choice("uuud"), f"n{step}") for _ in range(rng.choice([3, 20]))
        ]
        lake.epoch(sent[:10], sent[10:])
        before = dict(model)
        for row in sent:
            if row["op"] == "d":
                deletions.setdefault(row["id"], []).append(row["at"])
            else:
                model[row["id"]] = max(model.get(row["id"], -1), row["at"])
        model = {key: at for key, at in model.items() if at > max(deletions.get(key, [-1]))}
        now = stored(lake, "id")
        assert now.keys() == model.keys()
        same = {
            key
            for key in model.keys() & before.keys()
            if not any(before[key] < at < model[key] for at in deletions.get(key, []))
        }
        changed = {key for key, at in model.items() if before.get(key) != at}
        # A value of a column that is older than its row may come late.
        late = {key for key in now if incomplete and key in same and now[key].changed != ids.rows[key].changed}
        ids.check(now, same, changed | late)
        maintain(lake, rng)
        ids.check(stored(lake, "id"), {*model}, set())


@pytest.mark.parametrize("strategy", some(STRATEGIES))
def test_a_version_of_a_history_keeps_its_id_when_it_ends(lake: Lake, strategy: Strategy) -> None:
    lake.config = lake.config.with_commit_mode(History("id", sequence="at", op_field="op", strategy=strategy))
    rng, ids, before = Random(strategy), Ids(), dict[tuple[int, int], tuple[Any, ...]]()
    moments = rng.sample(range(1000), 200)
    for _ in range(8):
        sent = [
            change(rng.randrange(8), moments.pop(), rng.choice("uuud"), rng.choice("ab"))
            for _ in range(rng.choice([3, 20]))
        ]
        lake.epoch(sent[:10], sent[10:])
        versions = {
            (row["id"], row["valid_from"]): tuple(row.values())
            for row in IcebergTable(lake.config.ref).to_arrow().to_pylist()
        }
        changed = {key for key, row in versions.items() if before.get(key) != row}
        ids.check(stored(lake, "id", "valid_from"), {*versions} & {*before}, changed)
        before = versions
        maintain(lake, rng)
        ids.check(stored(lake, "id", "valid_from"), {*versions}, set())


def test_a_truncation_ends_all_rows(lake: Lake) -> None:
    mode = Upsert(["id"], op_field="op", order_by="at", write_order=False)
    lake.config = lake.config.with_commit_mode(mode)
    lake.epoch([change(number, number) for number in range(4)])
    lake.epoch([change(1, 10), change(0, 11, "t"), change(1, 12), change(2, 13)])
    assert stored(lake, "id").keys() == {1, 2}
    assert min(row.row_id for row in stored(lake, "id").values()) >= 4


def test_a_task_that_fails_leaves_no_file_of_ids(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.config = lake.config.with_commit_mode(MODES["in_order"])
    lake.epoch([change(1, 1), change(2, 2)])
    ids, driver = stored(lake, "id"), lake.driver()
    driver.last_epoch(lake.query)
    written = lake.write(driver, 1, [change(1, 3)])
    before = lake.files()
    # The disk fails after the task has written the ids.
    with monkeypatch.context() as patched:
        patched.setattr(replace_module, "write_deletes", failing)
        with pytest.raises(OSError, match="no space left"):
            driver.commit(*written)
    assert lake.files() == before
    driver.abort(*written)
    lake.epoch([change(1, 3)])
    assert stored(lake, "id")[1].row_id == ids[1].row_id


def failing(*_: Any) -> Any:
    raise OSError("no space left")


def test_new_rows_alone_are_written_without_columns_of_ids(lake: Lake) -> None:
    lake.config = lake.config.with_commit_mode(MODES["in_order"])
    lake.epoch([change(1, 1), change(2, 2)])
    lake.epoch([change(3, 3)])
    sizes = lake.table().inspect.files()["readable_metrics"].to_pylist()
    assert [*sizes[0]] == ["id", "name", "more", "at"]
    assert {row.row_id for row in stored(lake, "id").values()} == {0, 1, 2}
