"""Compaction: the rows stay for every reader, also those that others write and delete while it runs."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform

from tests import maintenance
from tests.drivers import Drivers
from tests.iceberg import tables
from tests.iceberg.snapshots import disturb, lost, never_sent
from tests.tiers import some
from volley import CommitConflictError, CommitStateUnknownError, LayoutChangedError, SourceContext, col
from volley.iceberg import (
    IcebergSource,
    IcebergSourceConfig,
    IcebergTable,
    Incremental,
    orphan_files,
    remove_orphan_files,
)
from volley.iceberg.catalogs.answers import ATTEMPTS
from volley.iceberg.maintain import compaction
from volley.iceberg.read.entries import read_manifest
from volley.task.failpoints import COMPACTION_POINTS

SCHEMA = pa.schema({"id": pa.int64(), "part": pa.string()})


class Lake(tables.Lake):
    """A table of files with ten rows each, and its readers."""

    def __init__(
        self, folder: Path, schema: pa.Schema = SCHEMA, spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC
    ) -> None:
        super().__init__(folder, schema, spec)

    def append(self, *firsts: int, part: str = "a") -> list[DataFile]:
        self.files.table.refresh()
        made = [self.files.data([{"id": first + n, "part": part} for n in range(10)]) for first in firsts]
        self.commit(made)
        return made

    def live(self) -> list[str]:
        """The data files, oldest first."""
        tasks = self.files.ref.load().inspect.data_files()
        return sorted(tasks["file_path"].to_pylist())

    def deletes(self) -> int:
        return int(self.files.ref.load().inspect.delete_files().num_rows)

    def ids(self) -> list[int]:
        """As this library reads them, in order."""
        return list(self.view.to_arrow()["id"].to_pylist())

    def check(self, expected: set[int], *, equality: bool = False) -> None:
        """Assert that Volley, pyiceberg and DuckDB read these ids."""
        assert sorted(self.ids()) == sorted(expected)
        self.check_others(expected, equality=equality)

    def totals(self) -> tuple[int, int, int]:
        snapshot = self.files.ref.load().current_snapshot()
        assert snapshot is not None
        assert snapshot.summary is not None
        names = ("total-data-files", "total-delete-files", "total-records")
        return tuple(int(snapshot.summary.additional_properties[name]) for name in names)  # type: ignore[return-value]

    def no_orphans(self) -> bool:
        """True if no file of a compaction is left over; the tests' own writer leaves some."""
        names = (Path(path).name for path in orphan_files(self.files.ref, 0))
        return not [name for name in names if name.startswith("compact-") and name.endswith(".parquet")]


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    made = Lake(tmp_path / "lake")
    yield made
    made.close()


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Lets others write at a failpoint: at each time it is reached, the next of some actions."""

    def at(point: str, *actions: Callable[[], Any]) -> None:
        left = list(actions)

        def reached(name: str, number: int) -> None:
            if name == point and left:
                left.pop(0)()

        monkeypatch.setattr(compaction, "reach", reached)

    return at


def test_rows_that_others_delete_meanwhile_stay_deleted(lake: Lake, meanwhile: Callable[..., None]) -> None:
    first, second, _, _ = lake.append(0, 10, 20, 30)
    lake.commit([], [lake.files.positions((second, 1), (second, 4))])

    def others() -> None:
        both = lake.files.positions((first, 7), (second, 9), (second, 1))
        lake.commit([lake.files.data([{"id": 100, "part": "a"}])], [both])
        lake.commit([], [lake.files.positions((first, 0))])

    meanwhile("after-rewrite", others)
    done = lake.view.compact()
    assert (done.files_before, done.files_after, done.rows, done.rows_deleted_meanwhile) == (4, 1, 38, 3)
    lake.check({*range(40), 100} - {0, 7, 11, 14, 19})
    assert lake.no_orphans()
    assert done.delete_files_removed == 2


def test_rows_that_others_delete_by_key_meanwhile_stay_deleted(lake: Lake, meanwhile: Callable[..., None]) -> None:
    first, second = lake.append(0, 10)
    lake.commit([], [lake.files.keys(["id"], [{"id": 3}], first)])
    # The row is there again: the old delete does not apply to it.
    lake.commit([lake.files.data([{"id": 3, "part": "b"}])])
    meanwhile(
        "after-rewrite",
        lambda: lake.commit([], [lake.files.keys(["id"], [{"id": 15}], second), lake.files.positions((first, 9))]),
    )
    done = lake.view.compact()
    assert (done.files_before, done.files_after, done.rows) == (3, 1, 20)
    lake.check({*range(20)} - {9, 15}, equality=True)


def test_many_small_files_become_one_in_their_order_and_a_second_run_does_nothing(lake: Lake) -> None:
    for first in range(0, 60, 10):
        lake.append(first)
    planned = lake.view.compact(dry_run=True)
    assert (planned.dry_run, planned.files_before, planned.files_after, planned.rows) == (True, 6, 1, 60)
    assert len(lake.live()) == 6
    done = lake.view.compact()
    assert (done.files_before, done.files_after, done.rows, len(done.snapshots)) == (6, 1, 60, 1)
    assert str(done).startswith(f"6 data files ({done.bytes_before:,} bytes) of table db.t were replaced by 1 (")
    assert lake.ids() == list(range(60))
    lake.check(set(range(60)))
    snapshot = lake.view.snapshots()[-1]
    assert (snapshot.operation, lake.totals()) == ("replace", (1, 0, 60))
    again = lake.view.compact()
    assert (again.files_before, again.snapshots, len(lake.view.snapshots())) == (0, (), 7)


def test_deleted_rows_are_written_out_from_a_share_on(lake: Lake) -> None:
    (file,) = lake.append(0)
    lake.commit([], [lake.files.positions((file, 2))])
    assert lake.view.compact().files_before == 0
    lake.commit([], [lake.files.positions((file, 3))])
    done = lake.view.compact()
    assert (done.files_before, done.files_after, done.rows, done.delete_files_removed) == (1, 1, 8, 2)
    lake.check({*range(10)} - {2, 3})
    assert lake.totals() == (1, 0, 8)


def test_a_file_without_rows_left_goes(lake: Lake) -> None:
    (file,) = lake.append(0)
    lake.commit([], [lake.files.positions(*((file, position) for position in range(10)))])
    done = lake.view.compact()
    assert (done.files_before, done.files_after, done.rows) == (1, 0, 0)
    assert (lake.ids(), lake.totals()) == ([], (0, 0, 0))


def test_an_answer_that_is_lost(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.append(0, 10)
    calls = disturb(monkeypatch, lost)
    done = lake.view.compact()
    assert (len(calls), done.files_before, done.files_after, len(done.snapshots)) == (1, 2, 1, 1)
    lake.check(set(range(20)))
    assert (len(lake.live()), lake.no_orphans()) == (1, True)


def test_no_answer_at_all_deletes_nothing(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.append(0, 10)
    disturb(monkeypatch, *[never_sent] * ATTEMPTS)
    with pytest.raises(CommitStateUnknownError, match="compaction"):
        lake.view.compact()
    # An attempt may still land: its file is kept, as an orphan.
    assert not lake.no_orphans()
    lake.check(set(range(20)))
    assert lake.view.compact().files_after == 1
    lake.check(set(range(20)))
    remove_orphan_files(lake.files.ref, 0)
    lake.check(set(range(20)))


def test_an_empty_table_and_a_missing_branch(lake: Lake) -> None:
    assert lake.view.compact().files_before == 0
    lake.append(0, 10)
    with pytest.raises(Exception, match="audit"):
        IcebergTable(lake.files.ref.with_branch("audit")).compact()


@pytest.fixture
def parted(tmp_path: Path) -> Iterator[Lake]:
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "part"))
    made = Lake(tmp_path / "lake", spec=spec)
    yield made
    made.close()


def test_a_group_whose_file_is_gone_stays_and_the_others_are_replaced(
    parted: Lake, meanwhile: Callable[..., None]
) -> None:
    gone, _ = parted.append(0, 10, part="a")
    parted.append(20, 30, part="b")
    parted.append(40, part="c")
    meanwhile("after-rewrite", lambda: parted.commit([parted.files.data([{"id": 50, "part": "a"}])], [], [gone]))
    done = parted.view.compact()
    assert (done.files_before, done.files_after, done.dropped) == (2, 1, 1)
    parted.check({*range(10, 41), *range(41, 51)})
    assert parted.no_orphans()


def test_only_some_partitions(parted: Lake) -> None:
    parted.append(0, 10, part="a")
    parted.append(20, 30, part="b")
    done = parted.view.compact(where=col("part") == "b")
    assert (done.files_before, len(parted.live())) == (2, 3)
    done = parted.view.compact("part = 'a'")
    assert (done.files_before, len(parted.live())) == (2, 2)
    parted.check(set(range(40)))


def test_another_commit_at_the_last_moment(lake: Lake, meanwhile: Callable[..., None]) -> None:
    """The first attempt is refused: the second one has what came in between, and the delete files of its own."""
    first, second = lake.append(0, 10)
    meanwhile(
        "before-replacement",
        lambda: lake.commit([], [lake.files.positions((first, 1))]),
        lambda: lake.commit([lake.files.data([{"id": 20, "part": "a"}])], [lake.files.positions((second, 5))]),
    )
    done = lake.view.compact()
    assert (done.files_before, done.files_after, done.rows_deleted_meanwhile) == (2, 1, 2)
    lake.check({*range(21)} - {1, 15})
    assert lake.no_orphans()


def test_a_conflict_at_every_attempt_leaves_nothing(lake: Lake, meanwhile: Callable[..., None]) -> None:
    lake.append(0, 10)
    meanwhile("before-replacement", *[lambda: lake.append(100)] * 50)
    with pytest.raises(CommitConflictError, match="compaction"):
        lake.view.compact()
    assert lake.no_orphans()
    assert {snapshot.operation for snapshot in lake.view.snapshots()} == {"append"}


def test_a_deletion_that_is_taken_back_meanwhile(lake: Lake, meanwhile: Callable[..., None]) -> None:
    first, _ = lake.append(0, 10)
    before = lake.view.snapshots()[-1].id
    lake.commit([], [lake.files.positions((first, 1))])
    meanwhile(
        "after-rewrite",
        lambda: lake.files.ref.load().manage_snapshots().rollback_to_snapshot(before).commit(),
    )
    done = lake.view.compact()
    assert (done.files_before, done.dropped) == (0, 1)
    lake.check(set(range(20)))


def test_a_schema_that_changes_meanwhile(lake: Lake, meanwhile: Callable[..., None]) -> None:
    lake.append(0, 10)
    meanwhile("after-rewrite", lambda: lake.files.ref.load().update_schema().rename_column("id", "number").commit())
    with pytest.raises(LayoutChangedError):
        lake.view.compact()
    assert lake.no_orphans()


def test_values_stay_bit_for_bit(tmp_path: Path) -> None:
    places = pa.list_(pa.struct({"x": pa.int32(), "tags": pa.list_(pa.string())}))
    schema = pa.schema({"id": pa.int64(), "f": pa.float64(), "day": pa.date32(), "places": places})
    table = Lake(tmp_path / "lake", schema)
    numbers = [math.nan, -0.0, 0.0, 5e-324, None, -math.inf]
    nested = [None, [], [None], [{"x": None, "tags": None}], [{"x": 1, "tags": [None, ""]}], [{"x": 2, "tags": []}]]
    for at, (number, each) in enumerate(zip(numbers, nested, strict=True)):
        table.commit([table.files.data([{"id": at, "f": number, "day": at, "places": each}])])
    update = table.files.ref.load().update_schema()
    update.rename_column("places", "spots").delete_column("day").commit()
    before = table.view.to_arrow().sort_by("id")
    assert table.view.compact().files_after == 1
    after = table.view.to_arrow()
    assert after.schema == before.schema
    assert after["spots"].to_pylist() == nested == before["spots"].to_pylist()
    bits = [
        [None if each is None else struct.pack("<d", each) for each in one["f"].to_pylist()] for one in (before, after)
    ]
    assert bits[0] == bits[1]
    table.check(set(range(6)))
    table.close()


def test_files_of_an_older_partition_spec_stay_and_are_counted(lake: Lake) -> None:
    lake.append(0, 10)
    with lake.files.ref.load().update_spec() as update:
        update.add_identity("part")
    lake.append(20)
    lake.append(30)
    done = lake.view.compact()
    assert (done.files_before, done.files_after, done.skipped) == (2, 1, 2)
    lake.check(set(range(40)))


def test_a_stream_passes_over_it(lake: Lake, tmp_path: Path) -> None:
    lake.append(0, 10)
    source = IcebergSource(IcebergSourceConfig(lake.files.ref).with_mode(Incremental(0.001)))
    reader = source.open(SourceContext(str(tmp_path / "state")))
    start = reader.latest_offset(reader.initial_offset(), None, None)
    lake.view.compact()
    lake.append(20)
    lake.view.compact()
    end, read = start, reader.split_reader()
    rows: list[int] = []
    while (after := reader.latest_offset(end, None, None)) != end:
        batches = (batch for split in reader.splits(end, after) for batch in read.read(split))
        rows += [row for batch in batches for row in batch["id"].to_pylist()]
        end = after
    assert sorted(rows) == list(range(20, 30))


@pytest.mark.parametrize("point", some(COMPACTION_POINTS))
def test_a_compaction_that_dies_loses_nothing(lake: Lake, point: str) -> None:
    first, _ = lake.append(0, 10)
    lake.commit([], [lake.files.positions((first, 3))])
    Drivers().die(f"{point}@0", maintenance.compact, lake.files.ref)
    lake.check({*range(20)} - {3})
    lake.view.compact()
    assert len(lake.live()) == 1
    remove_orphan_files(lake.files.ref, 0)
    lake.check({*range(20)} - {3})


def test_a_delete_file_that_stays_keeps_the_data_file_it_refers_to(parted: Lake) -> None:
    """Some engines name it in version 2 too, and then need not open the delete file."""
    (kept,) = parted.append(0, part="a")
    parted.append(10, 20, part="b")
    (gone,) = parted.append(30, part="b")
    made = [parted.files.positions((file, 3)) for file in (kept, gone)]
    for deletes, file in zip(made, (kept, gone), strict=True):
        deletes._data += [None, file.file_path, None, None]
    parted.commit([], made)
    done = parted.view.compact()
    assert (done.files_before, done.delete_files_removed) == (3, 1)
    table = parted.files.ref.load()
    head = table.current_snapshot()
    assert head is not None
    entries = [entry for each in head.manifests(table.io) for entry in read_manifest(table.io, each) if entry.content]
    assert [entry.referenced_file for entry in entries if entry.is_live] == [kept.file_path]
    parted.check({*range(40)} - {3, 33})


def test_no_manifest_stays_that_was_merged_into_another(lake: Lake) -> None:
    lake.files.table.refresh()
    with lake.files.table.transaction() as transaction:
        transaction.set_properties({"commit.manifest-merge.enabled": "true", "commit.manifest.min-count-to-merge": "2"})
    for first in range(0, 40, 10):
        lake.append(first)
    # The tests' own writer leaves some.
    before = set(orphan_files(lake.files.ref, 0))
    assert lake.view.compact().files_before == 4
    assert set(orphan_files(lake.files.ref, 0)) == before
    lake.check(set(range(40)))
