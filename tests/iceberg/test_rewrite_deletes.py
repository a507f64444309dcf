"""Rewriting of delete files: the rows stay for every reader, also those that others delete and replace meanwhile."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform

from tests import maintenance
from tests.drivers import Drivers
from tests.iceberg.test_compaction import SCHEMA, Lake, lake
from tests.tiers import some
from volley import CommitConflictError, StorageError, WriteResult
from volley.iceberg import DeleteRewrite, orphan_files, remove_orphan_files
from volley.iceberg.maintain import deletes as rewriting
from volley.iceberg.maintain.rewrites import format_of
from volley.iceberg.pyiceberg_private.snapshots import add_snapshot
from volley.iceberg.write.vectors import write_deletes
from volley.task.failpoints import DELETE_POINTS

assert lake

Task = Callable[[], WriteResult]


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Lets others write at a failpoint: at each time it is reached, the next of some actions."""

    def at(point: str, *actions: Callable[[], Any]) -> None:
        left = list(actions)
        monkeypatch.setattr(rewriting, "reach", lambda name, _: left.pop(0)() if name == point and left else None)

    return at


def no_orphans(lake: Lake) -> bool:
    return not [path for path in orphan_files(lake.files.ref, 0) if "/deletes-" in path]


def counts(done: DeleteRewrite) -> tuple[int, ...]:
    return done.data_files, done.files_before, done.files_after, done.rows


@pytest.mark.format_2
def test_the_delete_files_of_a_data_file_become_one(lake: Lake) -> None:
    first, second = lake.append(0, 10)
    for position in (1, 4, 7):
        lake.commit([], [lake.files.positions((first, position))])
    # One that names two data files, and a row that is deleted already.
    lake.commit([], [lake.files.positions((first, 4), (second, 5))])
    (third,) = lake.append(20)
    lake.commit([], [lake.files.positions((third, 9))])
    planned = lake.view.rewrite_position_deletes(dry_run=True)
    assert counts(planned) == (2, 4, 2, 0)
    done = lake.view.rewrite_position_deletes()
    assert counts(done) == (2, 4, 2, 4)
    assert (done.equality_files, done.dropped, done.left) == (0, 0, 0)
    assert lake.deletes() == 3
    lake.check(set(range(30)) - {1, 4, 7, 15, 29})
    (last,) = [snapshot for snapshot in lake.view.snapshots() if snapshot.id == done.snapshot_id]
    assert (last.operation, last.summary["volley.maintenance"]) == ("replace", "deletes")
    names = ("total-delete-files", "total-position-deletes", "total-records", "total-data-files")
    assert [last.summary[name] for name in names] == ["3", "5", "30", "3"]
    assert str(done).startswith("4 delete files (")
    assert lake.view.rewrite_position_deletes().snapshot_id is None


def test_deletes_without_effect_are_dropped(lake: Lake) -> None:
    first, second = lake.append(0, 10)
    lake.commit([], [lake.files.positions((first, 1), (second, 1))])
    lake.commit([], [lake.files.positions((first, 2))])
    # The delete file of both stays, as the writer of another engine leaves it.
    lake.commit([], [], [first])
    done = lake.view.rewrite_position_deletes()
    assert (done.data_files, done.files_before, done.files_after) == (1, 1, 1)
    lake.check(set(range(10, 20)) - {11})
    (third,) = lake.append(20)
    lake.commit([], [lake.files.positions((second, 3))])
    lake.commit([], [lake.files.positions((third, 0), (second, 9))])
    lake.commit([], [], [second])
    lake.commit([], [], [third])
    done = lake.view.rewrite_position_deletes()
    assert (done.data_files, done.files_before, done.files_after) == (0, 1, 0)
    assert lake.deletes() == 0
    lake.check(set())


@pytest.mark.format_2
def test_equality_deletes_become_positions(lake: Lake) -> None:
    first, second = lake.append(0, 10)
    lake.commit([], [lake.files.keys(["id"], [{"id": 3}, {"id": 14}, {"id": 99}], first)])
    lake.commit([], [lake.files.positions((first, 7))])
    lake.append(99)
    assert lake.view.rewrite_position_deletes().snapshot_id is None
    done = lake.view.rewrite_position_deletes(convert_equality=True)
    assert (*counts(done), done.equality_files) == (2, 2, 2, 3, 1)
    # pyiceberg can read the table now; rows that came after the delete stay.
    lake.check({*range(20), *range(99, 109)} - {3, 7, 14})
    assert second.file_path in lake.live()


@pytest.mark.format_2
def test_rows_that_others_delete_meanwhile_stay_deleted(lake: Lake, meanwhile: Callable[..., None]) -> None:
    first, second, third = lake.append(0, 10, 20)
    for file in (first, second, third):
        lake.commit([], [lake.files.positions((file, 1))])
        lake.commit([], [lake.files.positions((file, 2))])
    lake.commit([], [lake.files.positions((first, 3), (second, 3), (third, 3))])

    def others() -> None:
        lake.commit([], [lake.files.positions((first, 8))])
        lake.commit([], [lake.files.keys(["id"], [{"id": 19}], second)])
        lake.commit([lake.files.data([{"id": 21, "part": "a"}])], [], [third])

    meanwhile("after-delete-merge", others)
    done = lake.view.rewrite_position_deletes()
    assert (done.data_files, done.dropped) == (2, 1)
    lake.check({*range(20), 21} - {1, 2, 3, 11, 12, 13, 8, 19}, equality=True)
    assert no_orphans(lake)


def test_a_vector_that_others_add_meanwhile_is_not_replaced(lake: Lake, meanwhile: Callable[..., None]) -> None:
    first, _ = lake.append(0, 10)
    lake.commit([], [lake.files.keys(["id"], [{"id": 9}], first)])
    lake.view.upgrade(3)
    lake.files.table.refresh()

    def others() -> None:
        format = format_of(lake.files.table, lake.files.ref)
        (vector,) = write_deletes(format, [(first, np.array([2, 9], np.uint64))])
        lake.commit([], [vector.data_file])

    meanwhile("after-delete-merge", others)
    done = lake.view.rewrite_position_deletes(convert_equality=True)
    assert (done.data_files, done.snapshot_id) == (0, None)
    lake.check({*range(20)} - {2, 9}, equality=True)
    lake.view.rewrite_position_deletes(convert_equality=True)
    lake.check({*range(20)} - {2, 9})
    assert no_orphans(lake)


def test_a_delete_file_that_a_new_data_file_needs_stays(lake: Lake, meanwhile: Callable[..., None]) -> None:
    """A compaction by others adds files under an old sequence number, to which the delete applies."""
    (first,) = lake.append(0)
    lake.commit([], [lake.files.keys(["id"], [{"id": 3}, {"id": 30}], first)])

    def others() -> None:
        lake.files.table.refresh()
        with lake.files.table.transaction() as transaction:
            add_snapshot(
                transaction,
                added=[lake.files.data([{"id": 30, "part": "a"}, {"id": 31, "part": "a"}])],
                deletes=[],
                removed=[],
                snapshot_id=1,
                summary={},
                branch="main",
                rewritten_at=1,
            )

    meanwhile("after-delete-merge", others)
    done = lake.view.rewrite_position_deletes(convert_equality=True)
    assert (done.files_before, done.files_after, done.snapshot_id) == (0, 0, None)
    assert no_orphans(lake)
    lake.check({*range(10), 31} - {3}, equality=True)
    assert lake.view.rewrite_position_deletes(convert_equality=True).files_before == 1
    lake.check({*range(10), 31} - {3})


def test_only_the_deletes_of_some_rows(lake: Lake) -> None:
    first, second = *lake.append(0, part="a"), *lake.append(10, part="b")
    for file in (first, second):
        for position in (1, 2):
            lake.commit([], [lake.files.positions((file, position))])
    assert lake.view.rewrite_position_deletes("id < 10", dry_run=True).data_files in (1, 2)
    done = lake.view.rewrite_position_deletes(max_time="1ms", run=late)
    assert (done.data_files, done.left, done.snapshot_id) == (0, 2, None)
    lake.check(set(range(20)) - {1, 2, 11, 12})


def late(tasks: Sequence[Task]) -> list[WriteResult]:
    return [replace(task, until=0.0)() for task in tasks]  # type: ignore[type-var]


def test_a_task_that_fails_leaves_no_file(lake: Lake) -> None:
    spoil(lake)

    def run(tasks: Sequence[Task]) -> list[WriteResult]:
        pickle.loads(pickle.dumps(tasks[0]))()
        raise StorageError("an executor is gone", hint="none")

    with pytest.raises(StorageError, match="gone"):
        lake.view.rewrite_position_deletes(run=run)
    assert no_orphans(lake)


def test_tasks_that_run_twice_leave_one_file(lake: Lake) -> None:
    expected = spoil(lake)

    def run(tasks: Sequence[Task]) -> list[WriteResult]:
        return [(task(), replace(task(), attempt=1))[1] for task in tasks]

    assert lake.view.rewrite_position_deletes(run=run).files_after == 2
    assert no_orphans(lake)
    lake.check(expected, equality=True)


def test_conflicts_leave_the_table_as_it_was(lake: Lake, meanwhile: Callable[..., None]) -> None:
    expected = spoil(lake)
    meanwhile("before-delete-commit", *[lambda: lake.append(100)] * 50)
    with pytest.raises(CommitConflictError):
        lake.view.rewrite_position_deletes()
    assert expected <= set(lake.ids())
    assert no_orphans(lake)


def test_an_empty_table(lake: Lake) -> None:
    assert lake.view.rewrite_position_deletes().files_before == 0


@pytest.mark.parametrize("point", some(DELETE_POINTS))
def test_a_rewrite_that_dies_loses_nothing(lake: Lake, point: str) -> None:
    expected = spoil(lake)
    Drivers().die(f"{point}@0", maintenance.rewrite_deletes, lake.files.ref)
    assert lake.deletes() == (2 if point == "after-delete-commit" else 5)
    lake.view.rewrite_position_deletes(convert_equality=True)
    remove_orphan_files(lake.files.ref, 0)
    lake.check(expected)


def spoil(lake: Lake) -> set[int]:
    """Two data files with delete files of every kind; what their rows are."""
    first, second = lake.append(0, 10)
    for position in (1, 2):
        lake.commit([], [lake.files.positions((first, position))])
        lake.commit([], [lake.files.positions((first, position + 4), (second, position))])
    lake.commit([], [lake.files.keys(["id"], [{"id": 2}], first)])
    return set(range(20)) - {1, 2, 5, 6, 11, 12}


DELETES = st.lists(
    st.one_of(
        st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), min_size=1, max_size=4),
        st.sets(st.integers(0, 50), min_size=1, max_size=3),
        # A data file that another writer removes.
        st.integers(0, 3),
    ),
    max_size=6,
)


@pytest.mark.format_2
@given(before=DELETES, later=DELETES, partitioned=st.booleans(), convert=st.booleans(), compacted=st.booleans())
def test_rows_equal_a_model(
    tmp_path_factory: pytest.TempPathFactory,
    before: list[Any],
    later: list[Any],
    partitioned: bool,
    convert: bool,
    compacted: bool,
) -> None:
    """Random deletes of every kind, before and meanwhile; then a compaction."""
    spec = (
        PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "part"))
        if partitioned
        else UNPARTITIONED_PARTITION_SPEC
    )
    lake = Lake(tmp_path_factory.mktemp("model") / "lake", SCHEMA, spec)
    files = [lake.files.data([{"id": 10 * file + n, "part": "ab"[file % 2]} for n in range(10)]) for file in range(4)]
    lake.commit(files)
    model, live = set(range(40)), dict(enumerate(files))

    def delete(change: Any) -> None:
        if isinstance(change, int):
            if change in live:
                lake.commit([], [], [live.pop(change)])
                model.difference_update(range(10 * change, 10 * change + 10))
        elif isinstance(change, set):
            # Of one partition; DuckDB applies it to others, too.
            keys = {key for key in change if not partitioned or key // 10 % 2 == 0}
            if keys:
                lake.commit([], [lake.files.keys(["id"], [{"id": key} for key in keys], files[0])])
                model.difference_update(keys)
        else:
            for parity in (0, 1):
                named = [(files[file], row) for file, row in change if file % 2 == parity and file in live]
                lake.commit([], [lake.files.positions(*named)] if named else [])
            model.difference_update(10 * file + row for file, row in change)

    for change in before:
        delete(change)
    todo = list(later)

    def others(point: str, _: int) -> None:
        while point == "after-delete-merge" and todo:
            delete(todo.pop(0))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rewriting, "reach", others)
        lake.view.rewrite_position_deletes(convert_equality=convert)
    has_keys = any(isinstance(change, set) for change in (*before, *later))
    lake.check(model, equality=has_keys)
    lake.view.rewrite_position_deletes(convert_equality=True)
    lake.check(model)
    assert no_orphans(lake)
    if compacted:
        lake.view.compact(rewrite_all=True)
        lake.check(model)
    lake.close()


@pytest.mark.format_2
def test_the_new_files_name_their_data_file(lake: Lake) -> None:
    """So that readers of other data files need not read them."""
    spoil(lake)
    lake.view.rewrite_position_deletes(convert_equality=True)
    bounds = {
        (str(file["lower_bounds"]), str(file["upper_bounds"]))
        for file in lake.files.ref.load().inspect.delete_files().to_pylist()
    }
    assert len(bounds) == 2


def test_a_limit_or_a_filter_does_not_keep_a_shared_delete_file_forever(lake: Lake) -> None:
    files = lake.append(0, 10, 20)
    lake.commit([], [lake.files.keys(["id"], [{"id": 3}, {"id": 13}, {"id": 23}], files[0])])
    lake.commit([], [lake.files.positions(*((file, 5) for file in files))])
    done = lake.view.rewrite_position_deletes("id < 5", convert_equality=True, max_bytes=1)
    assert (done.files_before, done.files_after, done.left) == (2, 3, 0)
    lake.check(set(range(30)) - {3, 5, 13, 15, 23, 25})
    assert lake.view.rewrite_position_deletes(convert_equality=True).snapshot_id is None
