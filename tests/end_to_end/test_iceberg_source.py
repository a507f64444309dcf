"""Tables become streams: each row of a snapshot, of new snapshots, of a time gone by, once, on both paths."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyiceberg.types import IntegerType, LongType

from tests.tiers import some
from volley import (
    CatalogError,
    ConfigError,
    Environment,
    IcebergSink,
    IcebergSinkConfig,
    IcebergSource,
    IcebergSourceConfig,
    IcebergStorage,
    Job,
    MemorySink,
    MemorySource,
    PlanError,
    SnapshotExpiredError,
    SnapshotNotFoundError,
    SnapshotRolledBackError,
    SourceError,
    TableNotFoundError,
    TableReplacedError,
    VolleyError,
    col,
    lit,
)
from volley.iceberg import Incremental, Snapshot, Upsert

from ..waiting import wait_while_it_runs

SCHEMA = pa.schema({"id": pa.int64(), "kind": pa.string(), "price": pa.float64()})


class Written:
    """A table that pyiceberg writes."""

    def __init__(self, folder: Path) -> None:
        self.storage = IcebergStorage.Local(str(folder / "lake"))
        (folder / "lake").mkdir()
        self._catalog = SqlCatalog(
            "volley", uri=f"sqlite:///{folder}/lake/catalog.db", warehouse=f"file://{folder}/lake"
        )
        self._catalog.create_tables()
        self._catalog.create_namespace("db")
        self.create()

    def create(self) -> Table:
        return self._catalog.create_table("db.events", SCHEMA)

    def drop(self) -> None:
        self._catalog.drop_table("db.events")

    @property
    def table(self) -> Table:
        return self._catalog.load_table("db.events")

    def append(self, *ids: int, **options: Any) -> int:
        rows = [{"id": id, "kind": "odd" if id % 2 else "even", "price": id / 2} for id in ids]
        self.table.append(pa.Table.from_pylist(rows, schema=SCHEMA), **options)
        return self.last

    @property
    def last(self) -> int:
        snapshot = self.table.metadata.snapshots[-1]
        return snapshot.snapshot_id

    def committed_at(self, snapshot_id: int) -> datetime:
        snapshot = self.table.metadata.snapshot_by_id(snapshot_id)
        assert snapshot is not None
        return datetime.fromtimestamp(snapshot.timestamp_ms / 1000, UTC)

    def expire(self, *snapshots: int) -> None:
        self.table.maintenance.expire_snapshots().by_ids(list(snapshots)).commit()

    @property
    def config(self) -> IcebergSourceConfig:
        return IcebergSourceConfig("events", namespace="db", storage=self.storage)


@pytest.fixture
def written(tmp_path: Path) -> Written:
    return Written(tmp_path)


def ids(sink: MemorySink) -> list[int]:
    return sorted(row["id"] for row in sink.rows())


def wait_for(job: Job, sink: MemorySink, expected: list[int]) -> None:
    wait_while_it_runs(job, lambda: ids(sink) == expected, f"the rows {expected}")


@pytest.fixture
def quick(environment: Environment) -> Environment:
    """An environment that looks for new rows all the time."""
    return replace(environment, checkpoint_interval=0)


Read = Callable[..., list[int]]


@pytest.fixture
def read(environment: Environment) -> Read:
    """Run a job that reads a source to its end; returns the new ids in order. Runs of one name go on."""
    sink = MemorySink(f"ids-{uuid.uuid4()}")

    def run(config: IcebergSourceConfig, name: str = "reading") -> list[int]:
        before = len(sink.rows())
        environment.from_source(IcebergSource(config)).select("id").to_sink(sink).execute(name)
        return sorted(row["id"] for row in sink.rows()[before:])

    return run


def test_a_batch_reads_the_table_and_the_next_run_what_came_since(written: Written, read: Read) -> None:
    written.append(1, 2, 3)
    written.append(4)
    assert read(written.config) == [1, 2, 3, 4]
    assert read(written.config) == []
    written.append(5)
    written.append(6, 7)
    assert read(written.config) == [5, 6, 7]


def test_a_table_that_is_empty_at_first(written: Written, read: Read) -> None:
    with pytest.raises(SourceError, match=r"table db\.events has no rows"):
        read(written.config)
    written.append(1)
    written.append(2)
    assert read(written.config) == [1, 2]


@pytest.mark.parametrize("limit", [{"max_files_per_epoch": 2}, {"max_rows_per_epoch": 3}])
def test_limits_divide_scans_and_increments(limit: dict[str, int], written: Written, environment: Environment) -> None:
    for first in range(0, 10, 2):
        written.append(first, first + 1)
    sink = MemorySink(f"limited-{limit}")
    config = IcebergSourceConfig(written.config.table, **limit)  # type: ignore[arg-type]

    def run() -> Job:
        return environment.from_source(IcebergSource(config)).to_sink(sink).execute("limited")

    assert run().progress.epochs == (3 if "max_files_per_epoch" in limit else 5)
    assert ids(sink) == list(range(10))
    for first in range(10, 20, 2):
        written.append(first, first + 1)
    run()
    assert ids(sink) == list(range(20))


def test_a_job_follows_the_table_until_it_is_stopped(written: Written, quick: Environment) -> None:
    written.append(0)
    sink = MemorySink("followed")
    source = IcebergSource(written.config.with_mode(Incremental(poll_interval="100ms")))
    job = quick.from_source(source).to_sink(sink).start("following")
    try:
        for number in range(4):
            wait_for(job, sink, list(range(number + 1)))
            written.append(number + 1)
        wait_for(job, sink, [0, 1, 2, 3, 4])
    finally:
        job.stop()
    assert ids(sink) == [0, 1, 2, 3, 4]


def test_the_lag_is_in_the_metrics(written: Written, environment: Environment) -> None:
    first = written.append(1)
    written.append(2, 3)
    written.append(4, 5, 6)
    source = written.config.with_mode(Incremental("1h", start_snapshot=first)).with_max_rows_per_epoch(2)
    stream = replace(environment, checkpoint_interval="1h").from_source(IcebergSource(source))
    job = stream.to_sink(MemorySink("lag")).start("lag")
    try:
        wait_while_it_runs(job, lambda: job.metrics.lags, "the first epoch's lag")
        (lag,) = job.metrics.lags.values()
        text = job.metrics.to_prometheus_format()
    finally:
        job.stop()
    assert (lag.source, lag.rows, lag.snapshots) == ("db.events", 3, 1)
    assert lag.seconds is not None
    assert lag.seconds > 0
    assert re.search(r'volley_iceberg_source_lag_rows{.*source="db.events"} 3.0', text)


def test_starts_after_a_snapshot_or_a_time(written: Written, quick: Environment) -> None:
    first = written.append(1)
    written.append(2)
    at = written.table.metadata.snapshots[0].timestamp_ms
    for name, start in {
        "snapshot": Incremental("50ms", start_snapshot=first),
        "time": Incremental("50ms", start_timestamp=datetime.fromtimestamp(at / 1000, UTC)),
        "before": Incremental("50ms", start_timestamp="2020-01-01"),
    }.items():
        sink = MemorySink(f"since-{name}")
        source = IcebergSource(written.config.with_mode(start))
        job = quick.from_source(source).to_sink(sink).start(f"since-{name}")
        try:
            expected = [1, 2] if name == "before" else [2]
            wait_for(job, sink, expected)
        finally:
            job.stop()
        assert ids(sink) == expected


def test_snapshots_branches_tags_and_times(written: Written, read: Read) -> None:
    first = written.append(1)
    at = datetime.fromtimestamp(written.table.metadata.snapshots[0].timestamp_ms / 1000, UTC)
    written.append(2)
    written.table.manage_snapshots().create_tag(first, "begin").create_branch(first, "audit").commit()
    written.append(3, branch="audit")
    config = written.config
    assert read(config.with_mode(Snapshot(first)), "snapshot") == [1]
    assert read(config.with_as_of(at), "as of") == [1]
    assert read(config.with_as_of(datetime.now(UTC) + timedelta(days=1)), "later") == [1, 2]
    ref = config.ref
    assert read(IcebergSourceConfig(ref.with_branch("begin")), "tag") == [1]
    assert read(IcebergSourceConfig(ref.with_branch("audit")), "branch") == [1, 3]
    with pytest.raises(SnapshotNotFoundError, match=r"no branch or tag 'adit'[\s\S]*did you mean 'audit'"):
        read(IcebergSourceConfig(ref.with_branch("adit")), "typo")
    with pytest.raises(SnapshotNotFoundError, match="has no snapshot 12345"):
        read(config.with_mode(Snapshot(12345)), "unknown")
    with pytest.raises(SnapshotNotFoundError, match=r"2020-01-01.* is before the first snapshot"):
        read(config.with_as_of("2020-01-01"), "early")


def test_after_a_rollback_a_time_means_what_was_current_then(written: Written, read: Read) -> None:
    first = written.append(1)
    written.append(2)
    written.table.manage_snapshots().rollback_to_snapshot(first).commit()
    at = datetime.fromtimestamp(written.table.history()[-1].timestamp_ms / 1000, UTC)
    written.append(3)
    assert read(written.config.with_as_of(at)) == [1]


def test_a_time_travel_has_the_columns_of_then(written: Written, environment: Environment) -> None:
    first = written.append(1)
    with written.table.update_schema() as update:
        update.rename_column("kind", "sort").delete_column("price")
    sink = MemorySink("then")
    environment.from_source(IcebergSource(written.config.with_mode(Snapshot(first)))).to_sink(sink).execute("then")
    assert sink.rows() == [{"id": 1, "kind": "odd", "price": 0.5}]
    now = MemorySink("now")
    environment.from_source(IcebergSource(written.config)).to_sink(now).execute("now")
    assert now.rows() == [{"id": 1, "sort": "odd"}]


@pytest.mark.parametrize(
    "predicate",
    ["id >= 4 and kind = 'even'", (col("id") >= 4) & (col("kind") == lit("even")), "price in (2.0, 3.0)"],
    ids=str,
)
def test_a_filter_reads_only_matching_rows(predicate: Any, written: Written, environment: Environment) -> None:
    written.append(1, 2, 3)
    written.append(4, 5, 6)
    sink = MemorySink(f"{uuid.uuid4()}")
    config = written.config.with_partition_filter(predicate).with_columns(["id"])
    environment.from_source(IcebergSource(config)).to_sink(sink).execute("filtered")
    assert sorted(sink.rows(), key=lambda row: row["id"]) == [{"id": 4}, {"id": 6}]


def test_files_that_a_later_filter_drops_are_not_opened(written: Written, environment: Environment) -> None:
    written.append(1, 2, 3)
    written.append(4, 5, 6)
    first = next(task.file for task in written.table.scan("id = 1").plan_files())
    Path(first.file_path.removeprefix("file://")).unlink()
    source = IcebergSource(written.config)
    sink = MemorySink(f"{uuid.uuid4()}")
    stream = environment.from_source(source)
    late = stream.filter_expr(col("id") > 3).with_column("twice", col("id") * 2).select("twice")
    late.to_sink(sink).execute("pruned")
    assert sorted(row["twice"] for row in sink.rows()) == [8, 10, 12]
    with pytest.raises(SourceError, match="is gone"):
        stream.select("id").to_sink(MemorySink("x")).execute("not pruned")


def test_explain_shows_what_is_left_out(
    written: Written, environment: Environment, capsys: pytest.CaptureFixture[str]
) -> None:
    stream = environment.from_source(IcebergSource(written.config))
    stream.explain()
    assert "IcebergSource('db.events'): no snapshot yet" in capsys.readouterr().out
    written.append(1, 2, 3)
    snapshot = written.append(4, 5, 6)
    stream.filter_expr(col("id") > 3).select("price").to_sink(MemorySink("out")).explain()
    shown = capsys.readouterr().out.splitlines()[-1]
    assert f"snapshot {snapshot}: 1 of 2 data files (0 left out by partition, 1 by statistics)" in shown
    assert "columns id, price; files pruned by GreaterThan(term=Reference(name='id'), literal=LongLiteral(3))" in shown
    written.drop()
    stream.explain()
    assert "not known yet: table db.events" in capsys.readouterr().out


def test_changed_rows_stop_the_job_unless_it_is_told_what_to_do(written: Written, read: Read) -> None:
    written.append(1, 2, 3)
    config = written.config
    for name in ("fails", "skip", "added_rows"):
        assert read(config, name) == [1, 2, 3]
    written.table.delete("id = 2")
    snapshot = written.last
    written.append(4)
    with pytest.raises(SourceError, match=f"snapshot {snapshot} of table db.events changes or deletes rows"):
        read(config, "fails")
    assert read(config.with_changes("skip"), "skip") == [4]
    # A copy-on-write delete carries 1 and 3 over.
    assert read(config.with_changes("added_rows"), "added_rows") == [1, 3, 4]
    assert read(config.with_changes("skip"), "fails") == [4]


def test_a_stream_that_falls_behind_an_expiry_goes_on_while_all_files_are_there(written: Written, read: Read) -> None:
    first = written.append(1)
    assert read(written.config) == [1]
    second, third = written.append(2), written.append(3)
    written.append(4)
    written.expire(first, second, third)
    assert read(written.config) == [2, 3, 4]
    assert read(written.config) == []


def test_a_stream_stops_where_an_expiry_hides_what_changed(written: Written, read: Read) -> None:
    first = written.append(1)
    for name in ("fail", "live_rows", "rescan"):
        assert read(written.config, name) == [1]
    second = written.append(2)
    written.table.delete("id = 1")
    third = written.last
    written.append(3)
    written.expire(first, second, third)
    with pytest.raises(SnapshotExpiredError, match="are not all there"):
        read(written.config, "fail")
    assert read(written.config.with_on_expired("live_rows"), "live_rows") == [2, 3]
    assert read(written.config.with_on_expired("rescan"), "rescan") == [2, 3]
    written.append(4)
    assert read(written.config.with_on_expired("rescan"), "rescan") == [4]


def test_a_table_that_was_rolled_back_or_made_anew_is_told_apart(written: Written, read: Read) -> None:
    first = written.append(1)
    written.append(2)
    assert read(written.config) == [1, 2]
    written.table.manage_snapshots().rollback_to_snapshot(first).commit()
    written.append(3)
    with pytest.raises(SnapshotRolledBackError):
        read(written.config)
    written.drop()
    with pytest.raises(CatalogError):
        read(written.config)
    written.create()
    written.append(1)
    with pytest.raises(TableReplacedError):
        read(written.config)


def test_another_branch_does_not_prove_what_expired(written: Written, read: Read) -> None:
    first = written.append(1)
    assert read(written.config) == [1]
    second = written.append(2)
    third = written.append(3)
    written.table.manage_snapshots().create_branch(third, "audit").commit()
    written.append(99, branch="audit")
    written.expire(first, second)
    assert read(written.config) == [2, 3]


def test_a_stream_goes_on_after_its_start_has_expired(written: Written, read: Read, environment: Environment) -> None:
    first = written.append(1)
    written.append(2)
    config = written.config.with_mode(Incremental(start_snapshot=first))
    sink = MemorySink(f"{uuid.uuid4()}")

    def follow(expected: list[int]) -> None:
        stream = replace(environment, checkpoint_interval=0).from_source(IcebergSource(config))
        job = stream.to_sink(sink).start("started")
        try:
            wait_for(job, sink, expected)
        finally:
            job.stop()

    follow([2])
    written.append(3)
    written.expire(first)
    follow([2, 3])


def test_a_table_is_copied_into_another(written: Written, environment: Environment, tmp_path: Path) -> None:
    for number in range(5):
        written.append(*range(number * 1000, number * 1000 + 1000))
    written.table.delete("id >= 100 and id < 200")
    copy = IcebergSinkConfig(namespace="db", table="copy", storage=written.storage)
    source = IcebergSource(written.config.with_max_files_per_epoch(2))
    job = environment.from_source(source).to_sink(IcebergSink(copy)).execute("copy")
    rows = copy.ref.load().scan().to_arrow().sort_by("id")
    assert rows.equals(written.table.scan().to_arrow().sort_by("id"))
    assert job.progress.epochs == 3


def test_settings_that_do_not_fit_the_table_are_refused(written: Written, environment: Environment) -> None:
    written.append(1)
    wrong: Sequence[tuple[IcebergSourceConfig, type[VolleyError], str]] = [
        (written.config.with_columns(["idd"]), ConfigError, "did you mean 'id'"),
        (written.config.with_partition_filter("nope = 1"), ConfigError, "nope"),
        (written.config.with_partition_filter("id ="), ConfigError, "is not a predicate"),
        (written.config.with_partition_filter(col("idd") > 1), ConfigError, "did you mean 'id'"),
    ]
    for config, error, text in wrong:
        with pytest.raises(error, match=text):
            environment.from_source(IcebergSource(config)).to_sink(MemorySink("wrong")).execute("wrong")


def test_another_snapshot_under_one_job_name_is_refused(written: Written, read: Read) -> None:
    first, second = written.append(1), written.append(2)
    assert read(written.config.with_mode(Snapshot(first))) == [1]
    with pytest.raises(PlanError):
        read(written.config.with_mode(Snapshot(second)))


def test_changes_are_followed(written: Written, environment: Environment) -> None:
    first = written.append(1, 2, 3)
    sink = MemorySink(f"{uuid.uuid4()}")
    config = written.config.with_changes("follow", "id")

    def run() -> list[tuple[Any, ...]]:
        before = len(sink.rows())
        environment.from_source(IcebergSource(config)).to_sink(sink).execute("changes")
        columns = "_snapshot", "_change", "id", "price"
        return sorted(tuple(row[column] for column in columns) for row in sink.rows()[before:])

    assert run() == [(first, "insert", 1, 0.5), (first, "insert", 2, 1.0), (first, "insert", 3, 1.5)]
    assert {row["_committed_at"] for row in sink.rows()} == {written.committed_at(first)}
    written.table.delete("id = 2")
    second = written.last
    third = written.append(4)
    written.table.overwrite(pa.Table.from_pylist([{"id": 3, "kind": "x", "price": 9.0}], SCHEMA), "id = 3")
    deleted, inserted = written.table.metadata.snapshots[-2:]
    changes = [
        (second, "delete", 2, 1.0),
        (third, "insert", 4, 2.0),
        (deleted.snapshot_id, "delete", 3, 1.5),
        (inserted.snapshot_id, "insert", 3, 9.0),
    ]
    assert run() == sorted(changes)
    assert run() == []


@pytest.mark.parametrize("strategy", some(["merge_on_read", "copy_on_write"]))
def test_a_copy_follows_a_table_that_is_upserted(
    strategy: Literal["copy_on_write", "merge_on_read"], written: Written, environment: Environment
) -> None:
    original = IcebergSinkConfig(namespace="db", table="original", storage=written.storage)
    original = original.with_commit_mode(Upsert(["id"], op_field="op", strategy=strategy))
    copy = IcebergSinkConfig(namespace="db", table="copy", storage=written.storage)
    copy = copy.with_commit_mode(Upsert(["id"], op_field="_change"))
    rows: list[dict[str, Any]] = [{"id": id, "name": f"a{id}", "op": "u"} for id in range(20)]
    changes = [
        [{"id": 3, "name": "b3", "op": "u"}, {"id": 30, "name": "new", "op": "u"}],
        [{"id": 4, "name": None, "op": "d"}, {"id": 30, "name": "newer", "op": "u"}],
        [{"id": id, "name": f"c{id}", "op": "u"} for id in range(0, 20, 2)],
        [{"id": 30, "name": None, "op": "d"}, {"id": 4, "name": "back", "op": "u"}],
    ]
    source = IcebergSource(IcebergSourceConfig(original.ref).with_changes("follow", "id"))
    for number, epoch in enumerate([rows, *changes]):
        environment.from_source(MemorySource(epoch)).to_sink(IcebergSink(original)).execute(f"write-{number}")
        if number != 2:
            followed = environment.from_source(source).drop("_snapshot", "_committed_at")
            followed.to_sink(IcebergSink(copy)).execute("follow")
            expected = original.ref.load().scan().to_arrow().sort_by("id")
            assert copy.ref.load().scan().to_arrow().sort_by("id").equals(expected)


def add_column(table: Table) -> None:
    table.update_schema().add_column("b", LongType()).commit()


def drop_column(table: Table) -> None:
    table.update_schema().delete_column("price").commit()


def rename_column(table: Table) -> None:
    table.update_schema().rename_column("price", "cost").commit()


def widen_column(table: Table) -> None:
    table.update_schema().update_column("size", LongType()).commit()


@pytest.mark.parametrize(
    ("changes", "change", "row"),
    [
        ("follow", add_column, {"id": 2, "price": 2.5, "size": 2, "b": 42}),
        ("added_rows", add_column, {"id": 2, "price": 2.5, "size": 2, "b": 42}),
        ("follow", drop_column, {"id": 2, "size": 2}),
        ("added_rows", rename_column, {"id": 2, "cost": 2.5, "size": 2}),
        ("follow", widen_column, {"id": 2, "price": 2.5, "size": 1 << 40}),
    ],
)
def test_a_copy_has_the_columns_that_its_table_gets_while_the_job_runs(
    changes: Literal["follow", "added_rows"],
    change: Callable[[Table], None],
    row: dict[str, Any],
    written: Written,
    quick: Environment,
) -> None:
    with written.table.update_schema() as schema:
        schema.add_column("size", IntegerType())
        schema.delete_column("kind")
    written.table.append(pa.table({"id": [1], "price": [0.5], "size": pa.array([1], pa.int32())}))
    copy = IcebergSinkConfig(namespace="db", table="copy", storage=written.storage).with_schema_evolution("full")
    copy = copy.with_commit_mode(Upsert(["id"], op_field="_change" if changes == "follow" else None))
    config = written.config.with_mode(Incremental(0.01)).with_changes(changes, *["id"][: changes == "follow"])
    stream = quick.from_source(IcebergSource(config))
    stream = stream.drop("_snapshot", "_committed_at") if changes == "follow" else stream

    def copied() -> list[dict[str, Any]]:
        try:
            rows: list[dict[str, Any]] = copy.ref.load().scan().to_arrow().sort_by("id").to_pylist()
        except TableNotFoundError:
            return []
        return rows

    job = stream.to_sink(IcebergSink(copy)).start("copying")
    try:
        wait_while_it_runs(job, lambda: len(copied()) == 1, "the first row")
        change(written.table)
        written.table.append(pa.Table.from_pylist([row], written.table.schema().as_arrow()))
        wait_while_it_runs(job, lambda: len(copied()) == 2, "the second row")
        assert {name: copied()[1][name] for name in row} == row
        assert job.metrics.restarts == 0
    finally:
        job.stop()


def test_a_column_that_the_job_does_not_use_changes_nothing(written: Written, quick: Environment) -> None:
    written.append(1)
    sink = MemorySink(f"{uuid.uuid4()}")
    config = written.config.with_mode(Incremental(0.01))
    with quick.from_source(IcebergSource(config)).select("id").to_sink(sink).start("unused") as job:
        wait_for(job, sink, [1])
        add_column(written.table)
        written.append(2)
        wait_for(job, sink, [1, 2])
