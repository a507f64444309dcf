"""Tables of format version 3: every reader sees the rows, and rows keep their ids while they stay."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFileContent
from pyiceberg.table.metadata import TableMetadataV3

from tests.duck import query
from tests.recovery.lake import disturb
from tests.tiers import some
from tests.upserts.lake import QUERY, Lake, do
from volley import ConfigError, Epoch, IcebergSink, LayoutChangedError, Metrics, SinkContext
from volley.iceberg import Append, IcebergTable, Upsert, orphan_files, publish_branch
from volley.iceberg.commit import epochs, loop
from volley.iceberg.commit.probes import table_probes
from volley.iceberg.maintain import compaction, deletes
from volley.iceberg.modes import Strategy

SCHEMA = pa.schema({"id": pa.int64(), "name": pa.string(), "op": pa.string()})


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Any]:
    lakes: list[Lake] = []

    def opened(strategy: Strategy = "auto", version: str = "3") -> Lake:
        lakes.append(Lake(tmp_path / str(len(lakes)), Upsert(["id"], op_field="op", strategy=strategy), SCHEMA))
        lakes[-1].config = lakes[-1].config.with_table_properties({"format-version": version})
        return lakes[-1]

    yield opened
    for lake in lakes:
        lake.close()


def row(number: int, name: str = "a", op: str = "u") -> dict[str, Any]:
    return {"id": number, "name": name, "op": op}


def ids(lake: Lake) -> dict[int, int]:
    """By DuckDB, for each key the id of its row."""
    found = query(f"select id, _row_id from iceberg_scan('{lake.table().metadata_location}')").fetchall()
    assert len(dict(found)) == len(found)
    return dict(found)


def next_row_id(lake: Lake) -> int:
    metadata = lake.table().metadata
    assert isinstance(metadata, TableMetadataV3)
    assert metadata.next_row_id is not None
    return metadata.next_row_id


def check(lake: Lake, expected: dict[int, str]) -> None:
    rows = sorted(({"id": number, "name": name} for number, name in expected.items()), key=repr)
    assert lake.rows() == rows
    assert lake.duckdb_rows() == rows
    assert sorted(IcebergTable(lake.config.ref).to_arrow().to_pylist(), key=repr) == rows


def vectors(lake: Lake) -> list[str]:
    """The Puffin files of its deletion vectors."""
    files = lake.table().inspect.delete_files()
    return [path for path in files["file_path"].to_pylist() if path.endswith(".puffin")]


@pytest.mark.parametrize("strategy", ["auto", "merge_on_read", "copy_on_write"])
@pytest.mark.parametrize("seed", some([0, 2, 1], by=lambda seed: seed == 2))
def test_rows_and_ids_equal_a_model(opened: Any, strategy: Strategy, seed: int) -> None:
    rng = Random(f"{strategy}{seed}")
    upgraded = seed == 2
    lake: Lake = opened(strategy, "2" if upgraded else "3")
    view, model = IcebergTable(lake.config.ref), dict[int, str]()
    before, given = dict[int, int](), dict[int, int]()
    for step in range(14):
        deleted = set[int]()
        action = rng.choice(["epoch", "epoch", "epoch", "compact", "sort", "deletes", "manifests"])
        if action == "epoch" or step == 0:
            rows = [
                row(rng.randrange(40), f"n{step}", rng.choice("uuud")) for _ in range(20 if rng.random() < 0.6 else 3)
            ]
            lake.epoch(rows)
            for each in rows:
                if each["op"] == "d":
                    deleted.add(each["id"])
                model.pop(each["id"], None)
                if each["op"] != "d":
                    model[each["id"]] = each["name"]
        elif action == "compact":
            view.compact(rewrite_all=True)
        elif action == "sort":
            view.compact(rewrite_all=True, sort_by=["name desc", "id"])
        elif action == "deletes":
            view.rewrite_position_deletes()
        else:
            view.rewrite_manifests()
        check(lake, model)
        if upgraded and step == 6:
            assert view.upgrade(3) == 2
            check(lake, model)
            lake.epoch([row(100)])
            model[100] = "a"
        if lake.table().format_version == 3:
            now = ids(lake)
            kept = now.keys() & before.keys() - deleted
            assert {key: now[key] for key in kept} == {key: before[key] for key in kept}, action
            # A row that comes after a deletion is another one.
            assert not {now[key] for key in now.keys() - kept} & {*before.values()} - {None}
            # No id is of two keys, at whatever time.
            assert all(given.setdefault(row_id, key) == key for key, row_id in now.items())
            assert max(now.values(), default=-1) < next_row_id(lake)
            before = now


def test_a_snapshot_tells_how_many_ids_it_has_used(opened: Any) -> None:
    lake: Lake = opened()
    lake.epoch([row(1), row(2)], [row(3)])
    lake.epoch([row(4)])
    assert [(each.first_row_id, each.added_rows) for each in lake.table().snapshots()] == [(0, 3), (3, 1)]
    assert next_row_id(lake) == 4


@pytest.mark.parametrize("strategy", ["merge_on_read", "copy_on_write"])
def test_a_table_is_made_for_a_branch(opened: Any, strategy: Strategy) -> None:
    """A branch begins at a snapshot: the table gets an empty one, which takes no ids."""
    lake: Lake = opened(strategy)
    config = lake.config
    lake.config = config.with_branch("audit")
    lake.epoch([row(1), row(2)])
    lake.epoch([row(1, "b"), row(3)])
    assert [(each.first_row_id, each.added_rows) for each in lake.table().snapshots()][:2] == [(0, 0), (0, 2)]
    assert IcebergTable(config.ref).to_arrow().num_rows == 0
    read = IcebergTable(lake.config.ref).rows.include("row_id").to_arrow().sort_by("id").to_pylist()
    assert [(each["id"], each["name"]) for each in read] == [(1, "b"), (2, "a"), (3, "a")]
    assert {each["_row_id"] for each in read[:2]} == {0, 1}
    assert len({each["_row_id"] for each in read}) == 3
    publish_branch(lake.config)
    lake.config = config
    check(lake, {1: "b", 2: "a", 3: "a"})
    assert ids(lake) == {each["id"]: each["_row_id"] for each in read}


def test_a_check_commits_and_leaves_no_trace(opened: Any) -> None:
    lake: Lake = opened("merge_on_read")
    lake.epoch([row(1), row(2)])
    lake.epoch([row(1, op="d")])
    before, used = ids(lake), next_row_id(lake)
    *_, commit = table_probes(lake.config, SCHEMA, commits=True)
    assert "committed and removed" in commit.run()
    assert (ids(lake), next_row_id(lake), len(lake.table().snapshots())) == (before, used, 2)
    lake.epoch([row(3)])
    check(lake, {2: "a", 3: "a"})
    assert ids(lake) == {**before, 3: used}
    assert list(orphan_files(lake.config.ref, 0)) == []


@pytest.mark.parametrize("version", ["1", "2", "3"])
def test_a_job_that_starts_over_deletes_its_dead_letters_alone(opened: Any, version: str) -> None:
    """One file has rows of both jobs, one of them deleted already, another file those of one."""
    lake: Lake = opened("auto", version)
    config, schema = lake.config.with_commit_mode(Append()), pa.schema({"job": pa.string(), "id": pa.int64()})
    jobs = {
        name: IcebergSink(config).open(SinkContext(name, schema, Metrics(), do, shared=True)) for name in ("a", "b")
    }

    def letters(job: str, number: int, *ids: int) -> None:
        committer, epoch = jobs[job], Epoch(str(uuid.uuid5(uuid.NAMESPACE_OID, job)), number)
        committer.last_epoch(epoch.query_id)
        task = committer.writer(epoch).open(0)
        task.write(pa.RecordBatch.from_pylist([{"job": job, "id": id} for id in ids], schema))
        committer.commit(epoch, [task.close()])

    letters("a", 0, 1, 2, 3)
    letters("b", 0, 4, 5)
    view = IcebergTable(config.ref)
    view.compact(rewrite_all=True)
    letters("a", 1, 6)
    letters("b", 1, 7)
    before = ids(lake) if version == "3" else {}
    for _ in range(2):
        jobs["a"].clear()
        assert lake.rows() == lake.duckdb_rows() == [{"job": "b", "id": id} for id in (4, 5, 7)]
        assert len(lake.table().inspect.data_files()) == 2
        assert version != "3" or ids(lake) == {id: before[id] for id in (4, 5, 7)}
    letters("a", 2, 8)
    jobs["b"].clear()
    assert lake.rows() == lake.duckdb_rows() == [{"job": "a", "id": 8}]
    letters("b", 2, 9)
    assert sorted(view.to_arrow()["id"].to_pylist()) == [8, 9]
    if version == "3":
        assert not {*ids(lake).values()} & {*before.values()}


def test_a_data_file_has_one_vector_with_all_its_deletes(opened: Any) -> None:
    lake: Lake = opened("merge_on_read")
    lake.epoch([row(number) for number in range(10)])
    for number in range(5):
        lake.epoch([row(number, op="d")])
        assert len(vectors(lake)) == 1
    check(lake, dict.fromkeys(range(5, 10), "a"))
    (head,) = [each.summary for each in lake.table().snapshots()][-1:]
    assert head is not None
    assert (head["total-delete-files"], head["total-position-deletes"]) == ("1", "5")


def test_the_vectors_of_a_task_share_a_file(opened: Any) -> None:
    lake: Lake = opened("merge_on_read")
    lake.config = lake.config.with_max_records(10)
    lake.epoch([row(number) for number in range(30)])
    files = [pq.read_table(path)["id"].to_pylist() for path in lake.files()]
    lake.epoch([row(keys[0], op="d") for keys in files])
    assert len(vectors(lake)) == len(files) == 3
    assert len({*vectors(lake)}) == 1
    # One of them goes with its data file; those of other files stay.
    lake.epoch([row(number, op="d") for number in files[0]])
    assert len(vectors(lake)) == 2
    lake.epoch([row(files[1][1], op="d")])
    check(lake, dict.fromkeys([*files[1][2:], *files[2][1:]], "a"))


def test_position_deletes_of_before_an_upgrade_become_vectors(opened: Any) -> None:
    lake: Lake = opened("merge_on_read", "2")
    lake.epoch([row(number) for number in range(10)])
    lake.epoch([row(1, op="d")])
    lake.epoch([row(2, op="d")])
    view = IcebergTable(lake.config.ref)
    view.upgrade(3)
    assert set(ids(lake).values()) == {None}
    check(lake, {number: "a" for number in range(10) if number not in (1, 2)})
    lake.epoch([row(3, op="d")])
    files = lake.table().inspect.delete_files()
    assert files["content"].to_pylist() == [DataFileContent.POSITION_DELETES.value]
    assert len(vectors(lake)) == 1
    check(lake, {number: "a" for number in range(10) if number not in (1, 2, 3)})
    assert len({*ids(lake).values()} & {*range(10)}) == 7


def test_position_deletes_of_before_an_upgrade_are_merged_by_hand(opened: Any) -> None:
    lake: Lake = opened("merge_on_read", "2")
    lake.epoch([row(number) for number in range(10)])
    lake.epoch([row(1, op="d")])
    view = IcebergTable(lake.config.ref)
    view.upgrade(3)
    done = view.rewrite_position_deletes()
    assert (done.files_before, done.files_after, len(vectors(lake))) == (1, 1, 1)
    check(lake, {number: "a" for number in range(10) if number != 1})
    assert view.rewrite_position_deletes().snapshot_id is None


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Lets others act once, when a failpoint of a module is reached."""

    def at(module: Any, point: str, act: Callable[[], Any]) -> None:
        todo = [act]
        monkeypatch.setattr(module, "reach", lambda name, _: todo.pop()() if name == point and todo else None)

    return at


def test_an_upsert_written_before_an_upgrade_is_written_again(opened: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers ignore position-delete files beside a vector of the same file."""
    lake: Lake = opened("merge_on_read", "2")
    lake.epoch([row(number) for number in range(10)])
    todo = [IcebergTable(lake.config.ref).upgrade]
    write = loop.write_manifests

    def upgraded(*arguments: Any) -> None:
        if todo:
            todo.pop()(3)
        write(*arguments)

    monkeypatch.setattr(epochs, "write_manifests", upgraded)
    epoch = [row(1, op="d"), row(3, "b")]
    with pytest.raises(LayoutChangedError, match="upgraded to format version 3 between write and commit"):
        lake.epoch(epoch)
    check(lake, dict.fromkeys(range(10), "a"))
    lake.epoch(epoch)
    check(lake, {number: "b" if number == 3 else "a" for number in range(10) if number != 1})
    assert len(vectors(lake)) == len(lake.table().inspect.delete_files()) == 1


def test_a_merge_of_deletes_beside_an_upgrade_adds_no_position_deletes(opened: Any, at: Callable[..., None]) -> None:
    lake: Lake = opened("merge_on_read", "2")
    lake.epoch([row(number) for number in range(10)])
    for number in (1, 3):
        lake.epoch([row(number, op="d")])
    view = IcebergTable(lake.config.ref)
    at(deletes, "after-delete-merge", lambda: view.upgrade(3))
    with pytest.raises(LayoutChangedError, match="run the maintenance again"):
        view.rewrite_position_deletes()
    view.rewrite_position_deletes()
    check(lake, dict.fromkeys({*range(10)} - {1, 3}, "a"))
    assert len(vectors(lake)) == len(lake.table().inspect.delete_files()) == 1


@pytest.mark.parametrize("version", ["2", "3"])
def test_rows_that_are_deleted_beside_a_compaction_stay_so(opened: Any, at: Callable[..., None], version: str) -> None:
    lake: Lake = opened("merge_on_read", version)
    for start in range(0, 30, 10):
        lake.epoch([row(number) for number in range(start, start + 10)])
    lake.epoch([row(1, op="d"), row(11, op="d")])
    view, found = IcebergTable(lake.config.ref), []

    def others() -> None:
        view.upgrade(3)
        lake.epoch([row(2, op="d"), row(12, op="d"), row(13, "b")])
        found.append(ids(lake))

    at(compaction, "after-rewrite", others)
    # Files whose rows got ids meanwhile are left to the next run.
    assert bool(view.compact().snapshots) == (version == "3")
    view.compact()
    check(lake, {number: "b" if number == 13 else "a" for number in range(30) if number not in (1, 2, 11, 12)})
    assert ids(lake) == found[0]
    assert len(vectors(lake)) == len(lake.table().inspect.delete_files())


def test_a_table_is_upgraded_once_and_never_back(opened: Any) -> None:
    lake: Lake = opened(version="1")
    lake.epoch([row(1)])
    view = IcebergTable(lake.config.ref)
    assert [view.upgrade(2), view.upgrade(3), view.upgrade(3)] == [1, 2, 3]
    with pytest.raises(ConfigError, match="has format version 3: it can't become 2"):
        view.upgrade(2)
    with pytest.raises(ConfigError, match="format_version is 4"):
        view.upgrade(4)
    lake.epoch([row(2)])
    check(lake, {1: "a", 2: "a"})
    assert sorted(ids(lake).values()) == [0, 1]


def test_columns_with_the_names_of_row_ids_are_refused(tmp_path: Path) -> None:
    schema = pa.schema({"id": pa.int64(), "_row_id": pa.int64(), "op": pa.string()})
    for version in ("2", "3"):
        lake = Lake(tmp_path / version, Upsert(["id"], op_field="op"), schema)
        lake.config = lake.config.with_table_properties({"format-version": version})
        try:
            change: Callable[[], Any] = partial(lake.epoch, [{"id": 1, "_row_id": 5, "op": "u"}])
            if version == "2":
                change()
                change = partial(IcebergTable(lake.config.ref).upgrade, 3)
            with pytest.raises(ConfigError, match="column _row_id has a name that format version 3 has for itself"):
                change()
        finally:
            lake.close()


def upgraded_without_ids(opened: Any, strategy: Strategy) -> tuple[Lake, IcebergTable]:
    """A table of two files that was upgraded, and not changed since: its rows get their ids by the next commit."""
    lake: Lake = opened(strategy, "2")
    for start in (0, 10):
        lake.epoch([row(number) for number in range(start, start + 10)])
    view = IcebergTable(lake.config.ref)
    view.upgrade(3)
    assert set(ids(lake).values()) == {None}
    return lake, view


def test_ids_given_beside_a_compaction_stay(opened: Any, at: Callable[..., None]) -> None:
    lake, view = upgraded_without_ids(opened, "merge_on_read")
    found = list[dict[int, int]]()

    def others() -> None:
        lake.epoch([row(20)])
        found.append(ids(lake))

    at(compaction, "after-rewrite", others)
    assert view.compact(rewrite_all=True).dropped == 1
    assert ids(lake) == found[0]
    assert view.compact(rewrite_all=True).files_before == 3
    assert ids(lake) == found[0]
    check(lake, dict.fromkeys(range(21), "a"))


def test_ids_given_beside_an_upsert_stay(opened: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    lake, _ = upgraded_without_ids(opened, "copy_on_write")
    found = list[dict[int, int]]()
    other = lake.config.with_commit_mode(Append())

    def faster(commit: Callable[[], Any]) -> Any:
        rows = pa.RecordBatch.from_pylist([row(30)], SCHEMA.remove(2))
        driver = IcebergSink(other).open(SinkContext("another", rows.schema, Metrics()))
        epoch = Epoch("0b6f8a5e-0000-0000-0000-000000000000", 0)
        task = driver.writer(epoch).open(0)
        task.write(rows)
        driver.commit(epoch, [task.close()])
        found.append(ids(lake))
        return commit()

    driver = lake.driver()
    driver.last_epoch(QUERY)
    disturb(monkeypatch, driver, faster)
    driver.commit(*lake.write(driver, 2, [row(1, "b")]))
    now = ids(lake)
    assert {key: now[key] for key in now if key != 1} == {key: found[0][key] for key in found[0] if key != 1}


def test_a_table_that_this_process_has_changed_is_upgraded(tmp_path: Path) -> None:
    """The catalog in memory keeps the metadata of its last commit; readers refuse a table without the next row's id."""
    lake = Lake(tmp_path, Upsert(["id"], op_field="op"), SCHEMA)
    lake.config = replace(lake.config, catalog_uri="memory").with_table_properties({"format-version": "2"})
    lake.epoch([row(1)])
    ref = lake.config.ref
    IcebergTable(ref).upgrade(3)
    table = ref.load()
    assert json.loads(table.io.new_input(table.metadata_location).open().read())["next-row-id"] == 0
    lake.epoch([row(2)])
    scan = f"iceberg_scan('{ref.load().metadata_location}')"
    assert sorted(query(f"select id, _row_id from {scan}").fetchall()) == [(1, 1), (2, 0)]
    lake.close()


def lineage(lake: Lake) -> dict[int, tuple[int, int]]:
    """By DuckDB, for each key the id of its row and the number of the snapshot that last changed it."""
    scan = f"iceberg_scan('{lake.table().metadata_location}')"
    found = query(f"select id, _row_id, _last_updated_sequence_number from {scan}").fetchall()
    return {key: (row_id, changed) for key, row_id, changed in found}


def test_rows_compacted_before_an_upgrade_keep_ids_and_numbers(opened: Any) -> None:
    """Their file has the sequence number of its rows, and a later one of its own."""
    lake: Lake = opened("copy_on_write", "2")
    for start in (0, 10):
        lake.epoch([row(number) for number in range(start, start + 10)])
    view = IcebergTable(lake.config.ref)
    view.compact(rewrite_all=True)
    view.upgrade(3)
    lake.epoch([row(20)])
    kept = lineage(lake)
    lake.epoch([row(1, "b")])
    updated = lineage(lake)
    assert {key for key in updated if updated[key] != kept[key]} == {1}
    head = lake.table().current_snapshot()
    assert head is not None
    assert updated[1] == (kept[1][0], head.sequence_number)
    lake.config = lake.config.with_commit_mode(Upsert(["id"], op_field="op", strategy="merge_on_read"))
    lake.epoch([row(2, op="d")])
    assert len(vectors(lake)) == 1
    del updated[2]
    assert lineage(lake) == updated
    for sort_by in (False, ["name desc", "id"]):
        view.compact(rewrite_all=True, sort_by=sort_by)
        assert lineage(lake) == updated
    check(lake, {number: "b" if number == 1 else "a" for number in range(21) if number != 2})


@pytest.mark.parametrize("strategy", ["merge_on_read", "copy_on_write"])
def test_an_upsert_beside_a_compaction_keeps_ids(opened: Any, monkeypatch: pytest.MonkeyPatch, strategy: str) -> None:
    lake: Lake = opened(strategy, "3")
    for start in (0, 10):
        lake.epoch([row(number) for number in range(start, start + 10)])
    lake.epoch([row(3, "b"), row(13, op="d")])
    before, view, attempts = ids(lake), IcebergTable(lake.config.ref), list[int]()

    def faster(commit: Callable[[], Any]) -> Any:
        attempts.append(view.compact(rewrite_all=True).files_before)
        assert ids(lake) == before
        return commit()

    driver = lake.driver()
    driver.last_epoch(QUERY)
    disturb(monkeypatch, driver, faster)
    driver.commit(*lake.write(driver, 3, [row(1, "c"), row(3, "c"), row(14, op="d"), row(13, "c"), row(30, "c")]))
    assert attempts
    now = ids(lake)
    assert {key: now[key] for key in now.keys() & before.keys()} == {key: before[key] for key in before if key != 14}
    # The two others are new rows: none has an id that was given before.
    new = [now[key] for key in (13, 30)]
    assert len({*new}) == 2
    assert min(new) > max(before.values())
    check(lake, {number: "c" if number in (1, 3, 13, 30) else "a" for number in [*range(20), 30] if number != 14})
