"""Rewriting of manifests: the same files and rows for every reader, in manifests that queries can tell apart."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.manifest import ManifestFile
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    LongType,
    NestedField,
    StringType,
    TimestamptzType,
    UUIDType,
)

from tests.iceberg.events import BY_KEY, SCHEMA, Events
from tests.iceberg.manifests import IO, write_manifest
from tests.iceberg.planned_tables import PlannedTable
from tests.iceberg.snapshots import AT_ONCE
from tests.tiers import some
from tests.upserts.lake import Lake
from volley import (
    SourceContext,
)
from volley.iceberg import (
    IcebergSource,
    IcebergSourceConfig,
    IcebergTable,
    Incremental,
    Partitioning,
    SnapshotManager,
    Upsert,
    orphan_files,
    publish_branch,
)
from volley.iceberg.pyiceberg_private.entries import live_entries
from volley.iceberg.pyiceberg_private.manifests import manifest_writer
from volley.iceberg.read.entries import FileEntry, read_manifest


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Any]:
    made: list[Events] = []

    def make(*args: Any, **kwargs: Any) -> Events:
        made.append(Events(tmp_path, *args, **kwargs))
        return made[-1]

    yield make
    for events in made:
        events.catalog.close()


Make = Any


def size(manifests: Sequence[ManifestFile]) -> int:
    return sum(manifest.manifest_length for manifest in manifests)


@pytest.mark.parametrize("version", ["1", "2"])
def test_rows_and_entries_stay(make: Make, version: str) -> None:
    events = make(version=version)
    for number in range(4):
        events.append(*((number * 10 + key, key) for key in range(3)), (number * 10 + 9, None))
    events.table().delete("id = 11")
    rows, entries, files, before = events.rows(), events.entries(), events.avro_files(), events.manifests()
    planned = events.events.rewrite_manifests(dry_run=True)
    assert (events.avro_files(), len(events.table().snapshots())) == (files, 5)
    done = events.events.rewrite_manifests()
    assert events.rows() == events.duckdb_rows() == rows
    assert events.entries() == entries
    after = events.manifests()
    assert (done.manifests_before, done.manifests_after) == (len(before), len(after)) == (len(before), 1)
    assert (done.bytes_before, done.bytes_after) == tuple(
        sum(each.manifest_length for each in m) for m in (before, after)
    )
    assert (done.entries, done.replaced, done.created, done.kept) == (len(entries), len(before), 1, 0)
    assert (planned.manifests_after, planned.entries, planned.bytes_after, planned.dry_run) == (
        1,
        len(entries),
        None,
        True,
    )
    assert "would become 1, with" in str(planned)
    assert f"became 1 ({done.bytes_after:,} bytes)" in str(done)
    parent, head = (snapshot.summary for snapshot in events.table().snapshots()[-2:])
    assert (head.operation, events.snapshot().snapshot_id) == (Operation.REPLACE, done.snapshot_id)
    totals = {name: value for name, value in parent.additional_properties.items() if name.startswith("total-")}
    assert head.additional_properties == totals | {
        **{"manifests-created": "1", "manifests-replaced": str(len(before)), "manifests-kept": "0"},
        **{"entries-processed": str(len(entries)), "volley.maintenance": "manifests"},
    }
    events.append((100, 1))
    assert events.rows() == events.duckdb_rows() == sorted([*rows, (100, 1)], key=repr)


def test_a_second_call_changes_nothing(make: Make) -> None:
    events = make()
    for number in range(3):
        events.append((number, number))
    events.events.rewrite_manifests()
    location = events.table().metadata_location
    again = events.events.rewrite_manifests()
    assert events.table().metadata_location == location
    assert (again.snapshot_id, again.replaced, again.created, again.bytes_after) == (None, 0, 0, again.bytes_before)
    assert str(again) == "1 manifests of table db.events are in order"
    assert orphan_files(events.ref, AT_ONCE) == []


def test_a_query_for_one_partition_reads_one_manifest(make: Make) -> None:
    events = make()
    for _ in range(8):
        events.name_files([[key] for key in random.Random(1).sample(range(400), 400)])
    entries = events.entries()
    assert events.planned_manifests(17) == 8
    done = events.events.rewrite_manifests()
    assert (done.manifests_after, done.entries) == (6, 3200)
    assert events.planned_manifests(17) == 1
    assert events.entries() == entries
    assert {each.existing_files_count for each in events.manifests()} == {533, 534}
    assert events.events.rewrite_manifests().snapshot_id is None
    kept = {each.manifest_path for each in events.manifests()}
    # New files of one partition: only the manifest that has it is written anew.
    events.name_files([[17]] * 5)
    assert events.events.rewrite_manifests().kept == 5
    assert len(kept & {each.manifest_path for each in events.manifests()}) == 5
    assert len(events.entries()) == 3205


@pytest.mark.parametrize("seed", some(range(6)))
def test_any_history_comes_in_order_at_once(make: Make, seed: int) -> None:
    chosen = random.Random(seed)
    events = make()
    for _ in range(5):
        for _ in range(chosen.randrange(1, 5)):
            low = chosen.randrange(1000)
            events.name_files([[low + chosen.randrange(200)] for _ in range(chosen.choice((3, 300, 900)))])
        entries = events.entries()
        events.events.rewrite_manifests()
        assert events.entries() == entries
        assert events.events.rewrite_manifests(dry_run=True).replaced == 0
        ranges = sorted(
            (min(keys), max(keys), len(keys))
            for manifest in events.manifests()
            for keys in [[entry.partition[0] for entry in read_manifest(events.table().io, manifest)]]
        )
        assert all(first[1] <= second[0] for first, second in pairwise(ranges))
        assert all(count <= 768 for _, _, count in ranges)


def test_small_manifests_of_a_table_without_partitions_are_merged(make: Make) -> None:
    events = make(UNPARTITIONED_PARTITION_SPEC)
    for _ in range(5):
        events.name_files([[]] * 300)
    entries = events.entries()
    assert events.events.rewrite_manifests().manifests_after == 3
    assert events.entries() == entries
    assert events.events.rewrite_manifests().snapshot_id is None


@pytest.mark.parametrize("size", ["8000000", "9000"])
def test_commits_merge_manifests_up_to_512_entries_or_the_target_size(make: Make, size: str) -> None:
    properties = {
        "commit.manifest-merge.enabled": "true",
        "commit.manifest.min-count-to-merge": "4",
        "commit.manifest.target-size-bytes": size,
    }
    events = make(UNPARTITIONED_PARTITION_SPEC, **properties)
    for files in (200, 200, 200, 600, *(1 for _ in range(9))):
        events.name_files([[]] * files)
    manifests = events.manifests()
    counts = [(each.added_files_count or 0) + (each.existing_files_count or 0) for each in manifests]
    # The newest, few ones wait until there are four.
    expected = [1, 1, 7, 600, 200, 400] if size == "8000000" else [1, 8, 600, 200, 200, 200]
    assert counts == expected
    assert len(events.entries()) == 1_209


VALUES: dict[str, tuple[IcebergType, list[Any]]] = {
    "double": (DoubleType(), [0.0, -0.0, float("nan"), 0.1, 1e300, -1e300, float("inf"), None]),
    "float": (FloatType(), [0.5, -0.0, float("nan"), None]),
    "decimal": (DecimalType(38, 2), [Decimal("-1.50"), Decimal("99999999999999999999.99"), None]),
    "uuid": (UUIDType(), [bytes(range(16)), bytes(16), b"\xff" * 16, None]),
    "string": (StringType(), ["", "ü", "\U0001f600", None]),
    "binary": (BinaryType(), [b"", b"\xff\x00", None]),
    "date": (DateType(), [-3, 0, 20000, None]),
    "time": (TimestamptzType(), [-1, 0, 1_700_000_000_000_001, None]),
}


@pytest.mark.parametrize("case", VALUES)
def test_partition_values_stay_exact(make: Make, case: str) -> None:
    data_type, values = VALUES[case]
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "key", data_type))
    events = make(schema=schema)
    for value in values * 2:
        events.name_files([[value]])
    entries = events.entries()
    assert events.events.rewrite_manifests().manifests_after == 1
    assert [repr(entry) for entry in events.entries()] == [repr(entry) for entry in entries]


def of_two_specs(make: Make) -> Events:
    """A table with three manifests of each of two specs."""
    events: Events = make()
    for number in range(3):
        events.append((number, number))
    with events.table().update_spec() as spec:
        spec.add_field("id", IdentityTransform(), "id")
    for number in range(3, 6):
        events.append((number, number))
    return events


def test_each_spec_has_manifests_of_its_own(make: Make) -> None:
    events = of_two_specs(make)
    rows, entries = events.rows(), events.entries()
    assert events.events.rewrite_manifests().manifests_after == 2
    assert {each.partition_spec_id: each.existing_files_count for each in events.manifests()} == {0: 3, 1: 3}
    assert events.entries() == entries
    assert events.rows() == events.duckdb_rows() == rows


def test_a_limit_leaves_whole_groups_for_the_next_run(make: Make) -> None:
    events = of_two_specs(make)
    rows = events.rows()
    planned = events.events.rewrite_manifests(dry_run=True, max_bytes=1)
    first = events.events.rewrite_manifests(max_bytes=1)
    assert (first.replaced, first.manifests_after, first.left) == (planned.replaced, 4, planned.left) == (3, 4, 3)
    assert str(first).endswith("; 3 are left for the next run")
    second = events.events.rewrite_manifests(max_bytes=1 << 30)
    assert (second.replaced, second.manifests_after, second.left) == (3, 2, 0)
    assert events.rows() == events.duckdb_rows() == rows


def test_a_spec_whose_column_was_dropped(make: Make) -> None:
    events = make()
    for number in range(3):
        events.append((number, number))
    with events.table().update_spec() as spec:
        spec.remove_field("key")
    with events.table().update_schema(allow_incompatible_changes=True) as schema:
        schema.delete_column("key")
    entries = events.entries()
    assert events.events.rewrite_manifests().manifests_after == 1
    assert events.entries() == entries
    assert sorted(events.table().scan().to_arrow()["id"].to_pylist()) == [0, 1, 2]


def test_removed_files_are_no_longer_listed(make: Make) -> None:
    events = make()
    events.append((1, 1), (2, 2))
    events.append((3, 3))
    events.table().delete("key = 2")
    events.events.rewrite_manifests()
    assert [(each.existing_files_count, each.deleted_files_count) for each in events.manifests()] == [(2, 0)]
    assert events.rows() == events.duckdb_rows() == [(1, 1), (3, 3)]


def test_old_snapshots_stay_until_they_expire(make: Make) -> None:
    events = make()
    for number in range(3):
        events.append((number, number))
    first = events.table().snapshots()[0].snapshot_id
    events.events.rewrite_manifests()
    assert events.table().scan(snapshot_id=first).to_arrow()["id"].to_pylist() == [0]
    SnapshotManager(events.ref).expire_snapshots(AT_ONCE)
    assert events.rows() == events.duckdb_rows() == [(0, 0), (1, 1), (2, 2)]
    assert len(events.avro_files()) == 2
    assert orphan_files(events.ref, AT_ONCE) == []


def test_a_branch_is_rewritten_alone(make: Make) -> None:
    events = make()
    events.append((0, 0))
    manager = SnapshotManager(events.ref)
    manager.create_branch("raw", min_snapshots=3)
    for number in (1, 2):
        events.append((number, number), branch="raw")
    manager.create_branch("audit", manager.branches()[1].snapshot_id, min_snapshots=3)
    main = events.snapshot()
    branch = IcebergTable(events.ref.with_branch("audit"))
    assert branch.rewrite_manifests().manifests_after == 1
    assert len(events.manifests("audit")) == 1
    assert events.snapshot() == main
    assert [ref.min_snapshots for ref in manager.branches() if ref.name == "audit"] == [3]
    publish_branch(events.ref.with_branch("audit"))
    assert events.rows() == events.duckdb_rows() == [(0, 0), (1, 1), (2, 2)]


def rows_of(source: IcebergSource, start: Any, state: Path) -> tuple[list[int], Any]:
    """The ids that a job reads next, and the offset behind them."""
    reader = source.open(SourceContext(str(state)))
    start = start or reader.initial_offset()
    end = reader.latest_offset(start, None, None)
    batches = (batch for split in reader.splits(start, end) for batch in reader.read(split))
    return sorted(number for batch in batches for number in batch["id"].to_pylist()), end


@pytest.mark.parametrize("expire", [False, True], ids=["kept", "expired"])
def test_a_stream_goes_on_behind_a_rewrite(make: Make, tmp_path: Path, expire: bool) -> None:
    events = make()
    events.append((0, 0))
    first = events.snapshot().snapshot_id
    events.append((1, 1), (2, 2))
    source = IcebergSource(IcebergSourceConfig(events.ref).with_mode(Incremental("1ms", start_snapshot=first)))
    read, offset = rows_of(source, None, tmp_path)
    assert read == [1, 2]
    events.append((3, 1))
    assert events.events.rewrite_manifests().manifests_after == 1
    events.append((4, 2))
    if expire:
        SnapshotManager(events.ref).expire_snapshots(AT_ONCE)
    read, offset = rows_of(source, offset, tmp_path)
    assert read == [3, 4]
    assert events.events.rewrite_manifests().manifests_after == 1
    assert rows_of(source, offset, tmp_path)[0] == []


SPARSE = pa.schema({"id": pa.int64(), "key": pa.string(), "value": pa.int64()})


def test_delete_files_still_apply(tmp_path: Path) -> None:
    """Position deletes, as upserts of jobs write them."""
    lake = Lake(tmp_path, Upsert("id", strategy="merge_on_read"), SPARSE)
    lake.config = lake.config.with_partitioning(Partitioning.identity("key"))
    for number in range(4):
        lake.epoch([{"id": each, "key": "ab"[each % 2], "value": number} for each in range(number, 40)])
    table = IcebergTable(lake.config)
    rows, before = lake.rows(), deletes_of(lake.table())
    assert len(before) == 3
    done = table.rewrite_manifests()
    assert (done.manifests_after, done.replaced) == (2, done.manifests_before)
    assert lake.rows() == lake.duckdb_rows() == rows
    assert sorted(table.to_arrow().to_pylist(), key=repr) == rows
    assert deletes_of(lake.table()) == before
    assert table.rewrite_manifests().snapshot_id is None
    lake.epoch([{"id": each, "key": "ab"[each % 2], "value": 9} for each in range(40)])
    assert (
        lake.rows()
        == lake.duckdb_rows()
        == sorted(({"id": each, "key": "ab"[each % 2], "value": 9} for each in range(40)), key=repr)
    )
    lake.close()


def deletes_of(table: Table) -> list[FileEntry]:
    snapshot = table.current_snapshot()
    assert snapshot is not None
    read = [each for manifest in snapshot.manifests(table.io) for each in read_manifest(table.io, manifest)]
    return sorted((each._replace(status=0) for each in read if each.is_live and each.content), key=lambda e: e.path)


def test_the_data_file_that_a_delete_file_refers_to_stays(tmp_path: Path) -> None:
    """Other engines write it; it tells planning which data files need the delete file."""
    planned = PlannedTable(tmp_path, SCHEMA, [BY_KEY])
    manifest = write_manifest(tmp_path / "old.avro", BY_KEY, SCHEMA, [planned.positions("d", None, [5])], deletes=True)
    (entry,) = live_entries(IO, manifest)
    entry.data_file._data[17] = "file:/data/one.parquet"
    writer = manifest_writer(
        2, BY_KEY, SCHEMA, IO.new_output(str(tmp_path / "new.avro")), 70, "deflate", of_deletes=True
    )
    with writer:
        writer.existing(entry)
    (again,) = read_manifest(IO, writer.to_manifest_file())
    assert again == read_manifest(IO, manifest)[0]._replace(referenced_file="file:/data/one.parquet")
