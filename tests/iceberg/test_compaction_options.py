"""Compaction in groups and several commits, with limits, orders, older specs and schemas: the rows always stay."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.table.sorting import NullOrder, SortDirection
from pyiceberg.transforms import IdentityTransform

from tests import maintenance
from tests.drivers import Drivers
from tests.iceberg.test_compaction import SCHEMA, Lake, lake, meanwhile, parted
from volley import CommitConflictError, ConfigError, SourceError, StorageError, WriteResult
from volley.iceberg import remove_orphan_files
from volley.iceberg.maintain import compaction
from volley.iceberg.maintain.rewriting import z_values
from volley.task.failpoints import COMPACTION_POINTS

assert lake, meanwhile and parted

Task = Callable[[], WriteResult]


def size_of(lake: Lake) -> int:
    """The size of the largest data file."""
    return int(max(lake.files.ref.load().inspect.data_files()["file_size_in_bytes"].to_pylist()))


def rows_of(path: str) -> list[int]:
    return list(pq.read_table(path.removeprefix("file://"))["id"].to_pylist())


def pair(lake: Lake) -> dict[str, Any]:
    """Options that make groups of two files."""
    return {"group_size": 2 * size_of(lake) + 100}


def test_large_partitions_are_cut_into_groups(lake: Lake, meanwhile: Callable[..., None]) -> None:
    """A file that another writer removes costs its group, not the whole table's."""
    gone, *_ = lake.append(*range(0, 60, 10))
    meanwhile("after-rewrite", lambda: lake.commit([], [], [gone]))
    done = lake.view.compact(**pair(lake))
    assert (done.files_before, done.files_after, done.dropped, len(done.snapshots)) == (4, 2, 1, 1)
    lake.check(set(range(60)) - set(lost(gone)))
    assert lake.no_orphans()


def lost(file: DataFile) -> list[int]:
    return rows_of(file.file_path)


def test_several_commits(lake: Lake) -> None:
    lake.append(*range(0, 60, 10))
    done = lake.view.compact(**pair(lake), max_commits=2)
    assert (done.files_before, done.files_after, len(done.snapshots)) == (6, 3, 2)
    lake.check(set(range(60)))
    assert [s.summary["volley.maintenance"] for s in lake.view.snapshots() if s.operation == "replace"] == [
        "compaction",
        "compaction",
    ]


def test_a_commit_that_fails_leaves_the_earlier_ones(lake: Lake, meanwhile: Callable[..., None]) -> None:
    lake.append(*range(0, 60, 10))
    meanwhile("before-replacement", lambda: None, *[lambda: lake.append(100)] * 50)
    with pytest.raises(CommitConflictError):
        lake.view.compact(**pair(lake), max_commits=3)
    assert [snapshot.operation for snapshot in lake.view.snapshots()].count("replace") == 1
    assert lake.no_orphans()
    assert set(range(60)) <= set(lake.ids())


def test_a_file_that_is_gone_at_the_second_commit(lake: Lake, meanwhile: Callable[..., None]) -> None:
    lake.append(*range(0, 60, 10))
    gone = Path(lake.live()[-1].removeprefix("file://"))
    meanwhile("after-replacement", lambda: gone.rename(lake.folder / "away"))
    with pytest.raises(SourceError, match=gone.name):
        lake.view.compact(**pair(lake), max_commits=3, z_order=["id", "part"])
    (lake.folder / "away").rename(gone)
    assert {snapshot.operation for snapshot in lake.view.snapshots()} == {"append", "replace"}
    lake.check(set(range(60)))
    assert lake.no_orphans()


def test_limits_of_bytes_and_time_leave_the_rest_for_later(lake: Lake) -> None:
    for first in range(0, 60, 10):
        lake.append(first)
    limit = 4 * size_of(lake) + 100
    planned = lake.view.compact(**pair(lake), max_bytes=limit, dry_run=True)
    assert (planned.files_before, planned.left) == (4, 2)
    done = lake.view.compact(**pair(lake), max_bytes=limit)
    assert (done.files_before, done.left) == (4, 2)
    assert str(done).endswith("2 data files are left for the next run")
    # The oldest come first.
    assert sorted(rows_of(path)[0] for path in lake.live()) == [0, 20, 40, 50]
    done = lake.view.compact(max_time="1ms", run=late)
    assert (done.files_before, done.left, done.snapshots) == (0, 4, ())
    assert lake.no_orphans()
    lake.check(set(range(60)))


def test_small_files_wait_for_others_of_their_size(lake: Lake) -> None:
    """However often it runs, each row is rewritten a logarithmic number of times, and the files stay few."""
    commits, rewritten, most = 64, 0, 0
    for number in range(commits):
        lake.append(10 * number)
        rewritten += lake.view.compact(least_files=4).rows
        most = max(most, len(lake.live()))
    assert 10 * commits <= rewritten <= 10 * commits * math.log2(commits)
    assert most <= 4 + math.log2(commits)
    lake.check(set(range(10 * commits)))


def test_files_of_some_bytes_are_not_small(lake: Lake) -> None:
    lake.append(0, 10)
    size = size_of(lake)
    assert lake.view.compact(small_bytes=size - 100).files_before == 0
    assert lake.view.compact(small_bytes=size + 100).files_before == 2


def late(tasks: Sequence[Task]) -> list[WriteResult]:
    time.sleep(0.01)
    return [task() for task in tasks]


def test_a_large_file_is_split(lake: Lake) -> None:
    lake.commit([lake.files.data([{"id": n, "part": str(n)} for n in range(20_000)])])
    size = size_of(lake)
    assert lake.view.compact(target_size=size).files_before == 0
    done = lake.view.compact(target_size=size // 4)
    assert done.files_before == 1
    assert 4 <= done.files_after <= 8
    assert lake.ids() == list(range(20_000))
    assert lake.view.compact(target_size=size // 4).files_before <= 2


def test_files_of_an_older_schema(lake: Lake) -> None:
    lake.append(0)
    lake.files.ref.load().update_schema().rename_column("part", "p").commit()
    assert lake.view.compact().files_before == 0
    assert lake.view.compact(old_schemas=True).files_before == 1
    assert lake.view.compact(old_schemas=True).files_before == 0
    lake.check(set(range(10)))


def test_files_of_an_older_spec_are_divided_by_the_new_one(lake: Lake, meanwhile: Callable[..., None]) -> None:
    rows = [{"id": n, "part": "ab"[n % 2]} for n in range(10)]
    lake.commit([made := lake.files.data(rows)])
    with lake.files.table.update_spec() as update:
        update.add_identity("part")
    lake.append(20, part="b")
    meanwhile("after-rewrite", lambda: lake.commit([], [lake.files.positions((made, 3), (made, 8))]))
    done = lake.view.compact(old_specs=True)
    assert (done.files_before, done.files_after, done.skipped, done.rows_deleted_meanwhile) == (1, 2, 0, 2)
    lake.check({*range(10), *range(20, 30)} - {3, 8})
    assert lake.no_orphans()
    assert {entry["part"] for entry in lake.files.ref.load().inspect.files()["partition"].to_pylist()} == {"a", "b"}


def test_a_delete_of_one_partition_keeps_files_of_older_specs(lake: Lake, meanwhile: Callable[..., None]) -> None:
    """It does not apply to them, but would apply to what is written in their place."""
    lake.append(0)
    with lake.files.table.update_spec() as update:
        update.add_identity("part")
    (other,) = lake.append(20, part="a")
    meanwhile("after-rewrite", lambda: lake.commit([], [lake.files.keys(["id"], [{"id": 3}, {"id": 21}], other)]))
    done = lake.view.compact(old_specs=True)
    assert (done.files_before, done.dropped) == (0, 1)
    lake.check({*range(10), *range(20, 30)} - {21}, equality=True)


@pytest.mark.parametrize("options", [{"sort_by": "id desc"}, {"z_order": ["part", "id"]}])
def test_deletes_meanwhile_are_carried_to_sorted_files(
    lake: Lake, meanwhile: Callable[..., None], options: dict[str, Any]
) -> None:
    first, second, third = lake.append(20, 0, 10)
    lake.commit([], [lake.files.positions((second, 1), (second, 4))])

    def others() -> None:
        both = lake.files.positions((first, 7), (second, 9), (second, 1))
        lake.commit([lake.files.data([{"id": 100, "part": "a"}])], [both])
        lake.commit([], [lake.files.keys(["id"], [{"id": 15}], third)])

    meanwhile("after-rewrite", others)
    done = lake.view.compact(**options)
    assert (done.files_before, done.files_after, done.rows, done.rows_deleted_meanwhile) == (3, 1, 28, 2)
    lake.check({*range(30), 100} - {1, 4, 27, 9, 15}, equality=True)
    assert lake.no_orphans()


def test_sorted_by_the_tables_order(lake: Lake) -> None:
    with pytest.raises(ConfigError, match="no sort order"):
        lake.view.compact(sort_by=True)
    lake.append(10, 0, 20)
    with lake.files.table.update_sort_order() as update:
        update.desc("id", IdentityTransform(), NullOrder.NULLS_LAST)
    done = lake.view.compact(sort_by=True)
    assert done.files_after == 1
    assert [path.partition("/data/")[2][:8] for path in lake.live()] == ["compact-"]
    assert lake.ids() == list(range(29, -1, -1))
    table = lake.files.ref.load()
    assert table.inspect.files()["sort_order_id"].to_pylist() == [table.sort_order().order_id]
    assert table.sort_order().fields[0].direction == SortDirection.DESC
    # An order that the table does not have counts as none.
    lake.view.compact(sort_by=["part", "id"], rewrite_all=True)
    assert lake.ids() == list(range(30))
    assert lake.files.ref.load().inspect.files()["sort_order_id"].to_pylist() == [None]
    lake.check(set(range(30)))


def test_a_z_order_keeps_the_values_of_each_file_near_each_other(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake", pa.schema({"id": pa.int64(), "x": pa.int64(), "y": pa.string()}))
    rows = [{"id": n, "x": None if n == 7 else n * 7919 % 4096, "y": f"{n * 104_729 % 4099:05}"} for n in range(4096)]
    lake.commit([lake.files.data(rows[:2000]), lake.files.data(rows[2000:])])
    size = size_of(lake)
    done = lake.view.compact(z_order=["x", "y"], target_size=size // 8, small_below=0.9, rewrite_all=True)
    assert done.files_after >= 8
    lake.check(set(range(4096)))
    spans = []
    for path in lake.live():
        table = pq.read_table(path.removeprefix("file://"))
        xs = [value for value in table["x"].to_pylist() if value is not None]
        ys = sorted(map(int, table["y"].to_pylist()))
        spans.append((max(xs) - min(xs)) * (ys[-1] - ys[0]))
    # Unsorted, each file spans nearly all values of both.
    assert sum(spans) / len(spans) < 0.4 * 4096 * 4096
    lake.close()


def test_z_values_are_the_interleaved_bits_of_ranks() -> None:
    """Four rows in a square: the curve visits them in the order of a Z."""
    x, y = pa.chunked_array([[0, 1, 0, 1]]), pa.chunked_array([["a", "a", "b", "b"]])
    places = z_values([y, x]).to_pylist()
    assert sorted(range(4), key=places.__getitem__) == [0, 1, 2, 3]
    assert z_values([pa.chunked_array([[None, 5]]), pa.chunked_array([[None, 1.5]])]).to_pylist()[0] == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sort_by": "nix"}, "no column 'nix'"),
        ({"z_order": ["id", "nix"]}, "no column 'nix'"),
        ({"z_order": ["id"]}, "two to 16"),
        ({"z_order": ["id", "id"]}, "two to 16"),
        ({"z_order": ["id", "part"], "sort_by": "id"}, "both"),
        ({"run": 5}, "task_runner"),
        ({"large_above": 1.0}, "large_above"),
    ],
)
def test_wrong_options(lake: Lake, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        lake.view.compact(**options)


def test_a_task_that_fails_leaves_no_file(lake: Lake) -> None:
    lake.append(*range(0, 60, 10))

    def run(tasks: Sequence[Task]) -> list[WriteResult]:
        tasks[0]()
        raise StorageError("an executor is gone", hint="none")

    with pytest.raises(StorageError, match="gone"):
        lake.view.compact(**pair(lake), run=run)
    assert lake.no_orphans()
    lake.check(set(range(60)))


def test_tasks_that_run_twice_leave_one_file(lake: Lake) -> None:
    import pickle
    from dataclasses import replace

    lake.append(*range(0, 60, 10))

    def run(tasks: Sequence[Task]) -> list[WriteResult]:
        first = [pickle.loads(pickle.dumps(task))() for task in tasks]
        assert len(first) == 3
        return [replace(task(), attempt=1) for task in tasks]

    done = lake.view.compact(**pair(lake), run=run, sort_by="id")
    assert (done.files_after, lake.no_orphans()) == (3, True)
    lake.check(set(range(60)))


@pytest.mark.parametrize("at", ["in-rewrite@0", *(f"{point}@1" for point in COMPACTION_POINTS[1:])])
def test_a_compaction_of_several_commits_that_dies_loses_nothing(lake: Lake, at: str) -> None:
    first, *_ = lake.append(*range(0, 60, 10))
    lake.commit([], [lake.files.positions((first, 3))])
    expected = set(range(60)) - {rows_of(first.file_path)[3]}
    Drivers().die(at, partial(maintenance.compact_in_commits, lake.files.ref, **pair(lake)))
    replaced = [snapshot.operation for snapshot in lake.view.snapshots()].count("replace")
    assert replaced == {"in-rewrite@0": 0, "after-replacement@1": 2}.get(at, 1)
    lake.check(expected)
    lake.view.compact(rewrite_all=True)
    remove_orphan_files(lake.files.ref, 0)
    lake.check(expected)


DELETES = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9)), max_size=8)


@given(
    before=DELETES,
    later=DELETES,
    keys=st.sets(st.integers(0, 70), max_size=4),
    spec=st.sampled_from(["none", "partitioned", "older"]),
    options=st.sampled_from([{}, {"sort_by": "id desc"}, {"sort_by": ["part", "id"]}, {"z_order": ["id", "part"]}]),
    commits=st.integers(1, 3),
    appended=st.booleans(),
)
def test_rows_equal_a_model(
    tmp_path_factory: pytest.TempPathFactory,
    before: list[tuple[int, int]],
    later: list[tuple[int, int]],
    keys: set[int],
    spec: str,
    options: dict[str, Any],
    commits: int,
    appended: bool,
) -> None:
    """Random deletes by position and by key, before and meanwhile."""
    by_part = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "part"))
    first = by_part if spec == "partitioned" else UNPARTITIONED_PARTITION_SPEC
    lake = Lake(tmp_path_factory.mktemp("model") / "lake", SCHEMA, first)
    # Each file is of one partition if the table has some from the start.
    step = 0 if spec == "partitioned" else 1
    rows = [[{"id": 10 * file + n, "part": "ab"[(file + step * n) % 2]} for n in range(10)] for file in range(6)]
    files = [lake.files.data(each) for each in rows]
    lake.commit(files)
    model = set(range(60))

    def delete(positions: list[tuple[int, int]]) -> None:
        if positions:
            # A delete file is of one partition.
            for parity in (0, 1):
                named = [(files[f], n) for f, n in positions if f % 2 == parity]
                lake.commit([], [lake.files.positions(*named)] if named else [])
            model.difference_update(10 * f + n for f, n in positions)

    def others() -> None:
        delete(later)
        if appended:
            lake.commit([lake.files.data([{"id": 60, "part": "a"}])])
            model.add(60)
        # DuckDB applies a delete by key to rows of other partitions, too: it has only keys of its own.
        named = {key for key in keys if spec != "partitioned" or key // 10 % 2 == 0}
        if named:
            lake.commit([], [lake.files.keys(["id"], [{"id": key} for key in named], files[0])])
            model.difference_update(named)

    delete(before)
    if spec == "older":
        with lake.files.table.update_spec() as update:
            update.add_identity("part")
    todo = [others]
    size = 2 * size_of(lake) + 100
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            compaction, "reach", lambda point, number: todo.pop()() if todo and point == "after-rewrite" else None
        )
        done = lake.view.compact(**options, group_size=size, max_commits=commits, old_specs=True, rewrite_all=True)
    assert done.files_before == 6
    assert not todo
    lake.check(model, equality=bool(keys))
    assert lake.no_orphans()
    lake.view.compact(old_specs=True)
    lake.check(model, equality=bool(keys))
    lake.close()
