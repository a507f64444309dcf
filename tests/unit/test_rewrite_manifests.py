"""Rewriting of manifests: the same files and rows for every reader, in manifests that queries can tell apart."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from duckdb_extensions import import_extension
from pyiceberg.exceptions import ForbiddenError
from pyiceberg.expressions import EqualTo
from pyiceberg.manifest import DataFile, ManifestContent, ManifestEntry, ManifestFile
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.transforms import IdentityTransform, UnknownTransform
from pyiceberg.typedef import Record
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

from tests.unit.manifests import IO, data_file, write_manifest
from tests.unit.planned_tables import PlannedTable
from tests.unit.snapshots import AT_ONCE, Commit, disturb, lost, never_sent
from tests.upserts.lake import Lake
from volley import (
    CatalogAuthError,
    CommitConflictError,
    CommitStateUnknownError,
    ConfigError,
    SnapshotNotFoundError,
    SourceContext,
)
from volley.iceberg import (
    IcebergSource,
    IcebergSourceConfig,
    IcebergStorage,
    IcebergTable,
    Incremental,
    Partitioning,
    SnapshotManager,
    TableRef,
    Upsert,
    orphan_files,
    publish_branch,
)
from volley.iceberg.catalogs.retry import ATTEMPTS
from volley.iceberg.pyiceberg_private.entries import live_entries
from volley.iceberg.pyiceberg_private.manifests import RewrittenDeletesWriter
from volley.iceberg.pyiceberg_private.snapshots import add_snapshot
from volley.iceberg.read.entries import FileEntry, read_manifest

SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "key", LongType()))
BY_KEY = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "key"))


class Events:
    """A local table whose writers leave many manifests."""

    def __init__(
        self, folder: Path, spec: PartitionSpec = BY_KEY, schema: Schema = SCHEMA, version: str = "2", **properties: str
    ) -> None:
        self.ref = TableRef("db", "events", IcebergStorage.Local(str(folder / "lake")))
        self.events = IcebergTable(self.ref)
        self.catalog: Any = self.ref.load_catalog()
        self.catalog.create_namespace("db")
        values = {"format-version": version, **{name.replace("_", "."): value for name, value in properties.items()}}
        self.catalog.create_table("db.events", schema, partition_spec=spec, properties=values)

    def table(self) -> Table:
        table: Table = self.catalog.load_table("db.events")
        return table

    def append(self, *rows: tuple[int, int | None], branch: str = "main") -> None:
        """One snapshot with one manifest: the ids and keys."""
        columns = {"id": pa.array([row[0] for row in rows], pa.int64()), "key": [row[1] for row in rows]}
        self.table().append(pa.table(columns, pa.schema({"id": pa.int64(), "key": pa.int64()})), branch=branch)

    def name_files(self, partitions: Sequence[Sequence[Any]], removed: Sequence[DataFile] = ()) -> None:
        """One snapshot of files that only manifests know, one for each partition."""
        table = self.table()
        number = len(table.snapshots())
        files = [
            data_file(f"{table.location()}/data/{number:03}-{index:05}.parquet", table.spec(), Record(*partition))
            for index, partition in enumerate(partitions)
        ]
        with table.transaction() as transaction:
            add_snapshot(
                transaction,
                **{"added": files, "deletes": (), "removed": removed},
                **{"snapshot_id": number + 1, "summary": {}, "branch": "main"},
            )

    def snapshot(self, branch: str = "main") -> Snapshot:
        snapshot = self.table().snapshot_by_name(branch)
        assert snapshot is not None
        return snapshot

    def manifests(self, branch: str = "main") -> list[ManifestFile]:
        return self.snapshot(branch).manifests(self.table().io)

    def entries(self, branch: str = "main") -> list[FileEntry]:
        """The live entries, with all that they say but their status."""
        read = (entry for manifest in self.manifests(branch) for entry in read_manifest(self.table().io, manifest))
        return sorted((entry._replace(status=0) for entry in read if entry.is_live), key=lambda entry: entry.path)

    def rows(self) -> list[tuple[int, int | None]]:
        """As pyiceberg reads them."""
        read = self.table().scan().to_arrow()
        return sorted(zip(read["id"].to_pylist(), read["key"].to_pylist(), strict=True), key=repr)

    def duckdb_rows(self) -> list[tuple[int, int | None]]:
        with duckdb.connect() as connection:
            for extension in ("avro", "parquet", "iceberg"):
                import_extension(extension, con=connection)
                connection.load_extension(extension)
            query = f"select id, key from iceberg_scan('{self.table().metadata_location}')"
            return sorted(connection.sql(query).fetchall(), key=repr)

    def avro_files(self) -> set[str]:
        folder = Path(self.table().location().removeprefix("file://"))
        return {path.name for path in folder.rglob("*.avro")}

    def planned_manifests(self, key: int) -> int:
        """The number of manifests that pyiceberg reads for one key."""
        read: list[str] = []
        fetch = ManifestFile.fetch_manifest_entry

        def counted(manifest: ManifestFile, *args: Any, **kwargs: Any) -> list[ManifestEntry]:
            read.append(manifest.manifest_path)
            return fetch(manifest, *args, **kwargs)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ManifestFile, "fetch_manifest_entry", counted)
            list(self.table().scan(row_filter=EqualTo("key", key)).plan_files())
        return len(read)


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
        **{"entries-processed": str(len(entries))},
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


@pytest.mark.parametrize("seed", range(6))
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


def test_each_spec_has_manifests_of_its_own(make: Make) -> None:
    events = make()
    for number in range(3):
        events.append((number, number))
    with events.table().update_spec() as spec:
        spec.add_field("id", IdentityTransform(), "id")
    for number in range(3, 6):
        events.append((number, number))
    rows, entries = events.rows(), events.entries()
    assert events.events.rewrite_manifests().manifests_after == 2
    assert {each.partition_spec_id: each.existing_files_count for each in events.manifests()} == {0: 3, 1: 3}
    assert events.entries() == entries
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
    writer = RewrittenDeletesWriter(BY_KEY, SCHEMA, IO.new_output(str(tmp_path / "new.avro")), 70, "gzip")
    with writer:
        writer.existing(entry)
    (again,) = read_manifest(IO, writer.to_manifest_file())
    assert again == read_manifest(IO, manifest)[0]._replace(referenced_file="file:/data/one.parquet")


# Refusals


def changed(events: Events, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
    """The table's metadata, as if another engine had changed it."""
    metadata = events.table().metadata.model_copy(update=changes)
    opened = TableRef.load

    def load(ref: TableRef) -> Table:
        table = opened(ref)
        table.metadata = metadata
        return table

    monkeypatch.setattr(TableRef, "load", load)


def test_what_can_not_be_written_is_refused(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    events = make()
    for number in range(2):
        events.append((number, number))
    unknown = PartitionSpec(PartitionField(2, 1000, UnknownTransform("zorder[2]"), "key"))
    gone = PartitionSpec(PartitionField(99, 1000, IdentityTransform(), "key"))
    for message, changes in {
        "format version is 3": {"format_version": 3},
        "has UnknownTransform.*zorder": {"partition_specs": [unknown]},
        "no schema of the table has all columns of partition spec 0": {"partition_specs": [gone]},
        "has no partition spec 0": {"partition_specs": []},
    }.items():
        with monkeypatch.context() as patch:
            changed(events, patch, **changes)
            with pytest.raises(ConfigError, match=message) as refused:
                events.events.rewrite_manifests(dry_run=True)
            assert refused.value.hint


def test_an_encrypted_manifest_is_refused(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    events = make()
    events.append((1, 1))
    (manifest,) = events.manifests()
    manifest._data[14] = b"key"
    monkeypatch.setattr("volley.iceberg.maintain.manifests.manifests_of", lambda *_: [manifest])
    with pytest.raises(ConfigError, match="is encrypted"):
        events.events.rewrite_manifests()


def test_a_table_or_branch_without_snapshots_is_refused(make: Make) -> None:
    events = make()
    with pytest.raises(SnapshotNotFoundError, match="no snapshot yet"):
        events.events.rewrite_manifests()
    with pytest.raises(SnapshotNotFoundError, match="no branch or tag 'raw'"):
        IcebergTable(events.ref.with_branch("raw")).rewrite_manifests()
    events.append((1, 1))
    SnapshotManager(events.ref).create_tag("audited")
    with pytest.raises(ConfigError, match="'audited' is a tag"):
        IcebergTable(events.ref.with_branch("audited")).rewrite_manifests()


# Other writers, faults


def test_rows_that_others_append_meanwhile_are_kept(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    events = make()
    for number in range(3):
        events.append((number, number))

    def other_first(commit: Commit) -> Any:
        events.append((9, 9))
        return commit()

    calls = disturb(monkeypatch, other_first)
    assert events.events.rewrite_manifests().entries == 4
    assert calls == ["commit"] * 2
    assert events.rows() == events.duckdb_rows() == [(0, 0), (1, 1), (2, 2), (9, 9)]
    assert [path for path in orphan_files(events.ref, AT_ONCE) if path.endswith(".avro")] == []


def test_an_answer_that_is_lost(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    events = make()
    for number in range(3):
        events.append((number, number))
    calls = disturb(monkeypatch, lost)
    done = events.events.rewrite_manifests()
    assert calls == ["commit"]
    assert (done.manifests_after, done.snapshot_id) == (1, events.snapshot().snapshot_id)
    assert events.rows() == events.duckdb_rows() == [(0, 0), (1, 1), (2, 2)]
    assert orphan_files(events.ref, AT_ONCE) == []


def test_an_outcome_that_is_not_known(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    events = make()
    for number in range(3):
        events.append((number, number))
    before, files = events.snapshot(), events.avro_files()
    disturb(monkeypatch, *[never_sent] * ATTEMPTS)
    with pytest.raises(CommitStateUnknownError, match="rewriting manifests may or may not have changed table"):
        events.events.rewrite_manifests()
    assert events.snapshot() == before
    assert events.avro_files() >= files


def test_conflicts_in_every_attempt_leave_no_manifest(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    events = make()
    events.append((0, 0))
    events.append((1, 1))
    left: list[set[str]] = []

    def other_first(commit: Commit) -> Any:
        before = events.avro_files()
        events.append((2, 2))
        left.append(events.avro_files() - before)
        return commit()

    files = events.avro_files()
    disturb(monkeypatch, *[other_first] * ATTEMPTS)
    with pytest.raises(CommitConflictError, match="rewriting manifests failed"):
        events.events.rewrite_manifests()
    assert events.avro_files() == files.union(*left)
    assert len(events.manifests()) == 2 + ATTEMPTS


def test_a_refusal_leaves_no_manifest(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    events = make()
    events.append((0, 0))
    events.append((1, 1))
    files = events.avro_files()

    def refused(commit: Commit) -> Any:
        raise ForbiddenError("read only")

    disturb(monkeypatch, refused)
    with pytest.raises(CatalogAuthError):
        events.events.rewrite_manifests()
    assert events.avro_files() == files
    assert all(each.content == ManifestContent.DATA for each in events.manifests())
