"""Upserts and overwrites by real jobs, on both paths: the table has what a dict would have."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import Table

from volley import (
    CommitError,
    Environment,
    FileSource,
    IcebergSink,
    IcebergSinkConfig,
    MemorySource,
    SchemaMismatchError,
    SourceError,
    col,
    lit,
)
from volley.iceberg import Overwrite, Partitioning, Upsert
from volley.iceberg.modes import Strategy

from ..waiting import wait_while_it_runs

Load = Callable[[], Table]
Rows = Callable[[], list[dict[str, Any]]]

KEYS = 500


def changes(epochs: int) -> list[dict[str, Any]]:
    """Each epoch's rows: most keys more than once, some deleted, in no order."""
    return [
        {"id": (7919 * i) % KEYS, "kind": "even" if i % 2 else "odd", "value": i, "op": "d" if i % 11 == 0 else "u"}
        for i in range(epochs * KEYS)
    ]


def expected(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    table: dict[tuple[int, str], dict[str, Any]] = {}
    for row in rows:
        key = row["id"], row["kind"]
        table.pop(key, None)
        if row["op"] != "d":
            table[key] = {"id": row["id"], "kind": row["kind"], "value": 2 * row["value"]}
    return sorted(table.values(), key=lambda row: (row["id"], row["kind"]))


@pytest.mark.parametrize("strategy", ["merge_on_read", "copy_on_write"])
def test_upserts_and_deletes(
    strategy: Strategy, environment: Environment, config: IcebergSinkConfig, load: Load, rows: Rows
) -> None:
    source = MemorySource(changes(4), rows_per_epoch=KEYS)
    mode = Upsert(["id", "kind"], order_by="value", op_field="op", strategy=strategy)
    job = (
        environment.from_source(source)
        .with_column("value", col("value") * lit(2))
        .to_sink(IcebergSink(config.with_commit_mode(mode).with_batch_size(100)))
        .execute("upserts")
    )
    found = sorted(load().scan().to_arrow().to_pylist(), key=lambda row: (row["id"], row["kind"]))
    assert found == expected(changes(4))
    assert [s.summary.operation.value for s in load().snapshots() if s.summary] == ["append", *["overwrite"] * 3]
    assert job.metrics.records_written == 4 * KEYS
    assert job.progress.rows == 4 * KEYS
    # Their files are made between write and commit, and count like any other.
    made = sum(
        int(s.summary[f"added-{kind}files"] or 0)
        for s in load().snapshots()
        if s.summary
        for kind in ("data-", "delete-")
    )
    assert job.progress.files == job.metrics.files_created == made
    size = sum(int(s.summary["added-files-size"] or 0) for s in load().snapshots() if s.summary)
    assert job.progress.bytes == job.metrics.bytes_written == size


def test_a_null_key_stops_the_job_and_leaves_the_table_as_it_was(
    environment: Environment, config: IcebergSinkConfig, rows: Rows
) -> None:
    source = MemorySource(pa.table({"id": [1, None]}))
    stream = environment.from_source(source).to_sink(IcebergSink(config.with_commit_mode(Upsert("id"))))
    with pytest.raises(SchemaMismatchError, match="key column 'id' has 1 nulls"):
        stream.execute("null key")
    assert rows() == []


def test_null_keys_go_to_the_dead_letter(native: Environment, config: IcebergSinkConfig, load: Load) -> None:
    source = MemorySource(pa.table({"id": [1, None, 3]}))
    sink = IcebergSink(config.with_commit_mode(Upsert("id")).with_dead_letter("letters"))
    job = native.from_source(source).to_sink(sink).execute("dead letters")
    assert sorted(load().scan().to_arrow()["id"].to_pylist()) == [1, 3]
    assert job.progress.rejected == 1


def test_each_run_overwrites_the_whole_table_once(
    environment: Environment, config: IcebergSinkConfig, load: Load, rows: Rows, tmp_path: Path
) -> None:
    def run(*ids: int) -> None:
        for id in ids:
            (tmp_path / "new" / f"{id}.json").write_text(json.dumps({"id": id}))
        source = FileSource(str(tmp_path / "new"), format="json", schema="id long", max_files_per_epoch=1)
        environment.from_source(source).to_sink(IcebergSink(config.with_commit_mode("overwrite"))).execute("overwrite")

    (tmp_path / "new").mkdir()
    run(1, 2, 3)
    assert rows() == [{"id": 1}, {"id": 2}, {"id": 3}]
    summaries = [snapshot.summary for snapshot in load().snapshots()]
    assert [(s["added-records"], s["total-records"]) for s in summaries if s] == [("1", "1"), ("1", "2"), ("1", "3")]
    run()
    assert rows() == [{"id": 1}, {"id": 2}, {"id": 3}]
    run(4, 5)
    assert rows() == [{"id": 4}, {"id": 5}]


def test_overwriting_with_an_epoch_without_rows_changes_nothing(
    native: Environment, config: IcebergSinkConfig, load: Load, rows: Rows
) -> None:
    source = MemorySource([{"id": i} for i in range(20)], rows_per_epoch=10)
    sink = IcebergSink(config.with_commit_mode(Overwrite()))
    native.from_source(source).filter_expr(col("id") < lit(10)).to_sink(sink).execute("empty")
    assert rows() == [{"id": i} for i in range(10)]
    assert len(load().snapshots()) == 1


def test_dynamic_overwrite_of_partitions(native: Environment, config: IcebergSinkConfig, rows: Rows) -> None:
    source = MemorySource([{"id": i, "country": "NO" if i < 15 else "SE"} for i in range(30)], rows_per_epoch=10)
    mode = config.with_commit_mode(Overwrite.dynamic()).with_partitioning(Partitioning.identity("country"))
    native.from_source(source).to_sink(IcebergSink(mode)).execute("dynamic")
    assert [row["id"] for row in rows()] == [*range(30)]
    later = MemorySource([{"id": 100 + i, "country": "SE"} for i in range(20)], rows_per_epoch=10)
    native.from_source(later).to_sink(IcebergSink(mode)).execute("later")
    assert [row["id"] for row in rows()] == [*range(15), *range(100, 120)]


def test_an_endless_source_overwrites_with_each_epoch(
    native: Environment, config: IcebergSinkConfig, rows: Rows, tmp_path: Path
) -> None:
    (tmp_path / "new").mkdir()
    for id in range(3):
        (tmp_path / "new" / f"{id}.json").write_text(json.dumps({"id": id}))
    source = FileSource(str(tmp_path / "new"), format="json", schema="id long", max_files_per_epoch=1, bounded=False)
    stream = replace(native, checkpoint_interval=0).from_source(source)
    with stream.to_sink(IcebergSink(config.with_commit_mode("overwrite"))).start("endless") as job:
        wait_while_it_runs(job, lambda: job.progress.rows == 3, "all rows")
    assert rows() == [{"id": 2}]


@pytest.mark.parametrize("mode", [Overwrite(), Overwrite.dynamic(), Overwrite.partitions({"id": 0}, {"id": 1})])
def test_a_run_that_failed_goes_on_with_the_rows_that_it_has_written(
    mode: Overwrite, native: Environment, config: IcebergSinkConfig, load: Load, tmp_path: Path
) -> None:
    table = config.with_commit_mode(mode).with_partitioning(Partitioning.identity("id"))
    (tmp_path / "new").mkdir()

    def run() -> None:
        source = FileSource(str(tmp_path / "new"), format="json", schema="id long, n long", max_files_per_epoch=1)
        native.from_source(source).to_sink(IcebergSink(table)).execute("failing")

    def write(number: int, text: str) -> None:
        (tmp_path / "new" / f"{number}.json").write_text(text)

    write(0, '{"id": 0, "n": -1}\n{"id": 1, "n": -1}')
    run()
    write(1, '{"id": 0, "n": 1}')
    write(2, "not JSON at all .")
    write(3, '{"id": 0, "n": 3}')
    with pytest.raises(SourceError):
        run()
    write(2, '{"id": 0, "n": 2}')
    run()
    kept = [(1, -1)] if mode == Overwrite.dynamic() else []
    found = load().scan().to_arrow().to_pylist()
    assert sorted((row["id"], row["n"]) for row in found) == [(0, 1), (0, 2), (0, 3), *kept]


def test_a_run_that_can_not_tell_which_partitions_it_has_replaced_stops(
    native: Environment, config: IcebergSinkConfig, load: Load, tmp_path: Path
) -> None:
    table = config.with_commit_mode(Overwrite.dynamic()).with_partitioning(Partitioning.identity("id"))
    (tmp_path / "new").mkdir()
    for number, text in enumerate(['{"id": 0}', '{"id": 1}', "not JSON."]):
        (tmp_path / "new" / f"{number}.json").write_text(text)
    source = FileSource(str(tmp_path / "new"), format="json", schema="id long", max_files_per_epoch=1)
    stream = native.from_source(source).to_sink(IcebergSink(table))
    with pytest.raises(SourceError):
        stream.execute("failing")
    load().maintenance.expire_snapshots().by_id(load().snapshots()[0].snapshot_id).commit()
    (tmp_path / "new" / "2.json").write_text('{"id": 0}')
    with pytest.raises(CommitError, match="1 of 2 snapshots that this run has committed"):
        stream.execute("failing")
    assert sorted(load().scan().to_arrow()["id"].to_pylist()) == [0, 1]


@pytest.mark.parametrize("strategy", ["merge_on_read", "copy_on_write"])
def test_upserts_into_partitions_and_a_branch(
    strategy: Strategy, native: Environment, config: IcebergSinkConfig, load: Load
) -> None:
    changed = changes(3)
    source = MemorySource(changed, rows_per_epoch=KEYS)
    mode = Upsert(["id", "kind"], op_field="op", strategy=strategy)
    parts = config.with_partitioning([Partitioning.identity("kind"), Partitioning.bucket("id", n=4)])
    stream = native.from_source(source).with_column("value", col("value") * lit(2))
    stream.to_sink(IcebergSink(parts.with_commit_mode(mode))).execute("upserts")
    key = ["id", "kind"]
    assert sorted(load().scan().to_arrow().to_pylist(), key=lambda row: (row["id"], row["kind"])) == expected(changed)

    audit = parts.with_commit_mode(Upsert(key, strategy=strategy)).with_branch("audit")
    late = MemorySource([{"id": 1, "kind": "even", "value": -1}, {"id": -7, "kind": "odd", "value": -1}])
    native.from_source(late).to_sink(IcebergSink(audit)).execute("audit")
    main = {(row["id"], row["kind"]): row["value"] for row in load().scan().to_arrow().to_pylist()}
    found = load().scan().use_ref("audit").to_arrow().to_pylist()
    assert {(row["id"], row["kind"]): row["value"] for row in found} == {**main, (1, "even"): -1, (-7, "odd"): -1}
    assert len(found) == len({(row["id"], row["kind"]) for row in found})
