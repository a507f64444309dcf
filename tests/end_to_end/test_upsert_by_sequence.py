"""Upserts by sequence together with what else brings and reads changes: replays, many tables, mirrors, views."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.tiers import some
from volley import (
    Environment,
    FileSource,
    History,
    IcebergSink,
    IcebergSinkConfig,
    IcebergSource,
    IcebergSourceConfig,
    IcebergStorage,
    MaterializedView,
    MemorySource,
    TableRef,
    Upsert,
    changes_between,
    col,
    count,
    sum_,
)
from volley.iceberg import Maintenance
from volley.iceberg.upsert.tombstones import tombstone_branch

Row = dict[str, Any]
BY_VERSION = Upsert(["id"], sequence="version", op_field="op")


@pytest.fixture
def storage(tmp_path: Path) -> Any:
    return IcebergStorage.Local(str(tmp_path / "lake"))


def table_rows(ref: TableRef) -> list[Row]:
    """The rows of a table as pyiceberg reads them."""
    rows: list[Row] = ref.load().scan().to_arrow().to_pylist()
    return sorted(rows, key=lambda row: row["id"])


def write(folder: Path, name: str, *rows: Row) -> None:
    (folder / "in").mkdir(exist_ok=True)
    (folder / "in" / name).write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def test_rows_of_a_replay_settle_by_their_sequence(
    native: Environment, config: IcebergSinkConfig, tmp_path: Path
) -> None:
    sink = IcebergSink(config.with_commit_mode(BY_VERSION).with_dead_letter("bad"))

    def run(schema: str) -> Any:
        read = native.from_source(FileSource(tmp_path / "in", "json", schema))
        return read.with_column("price", col("price").cast("double")).to_sink(sink)

    write(
        tmp_path,
        "0.json",
        {"id": 1, "version": 2, "price": "1.5", "op": "u"},
        {"id": 2, "version": 2, "price": "2.5", "op": "u"},
        {"id": 3, "version": 2, "price": "3.5", "op": "u"},
        {"id": 4, "version": 2, "price": "4.5", "op": "d"},
        {"id": 3, "version": 1, "price": 3, "op": "u"},
        {"id": 4, "version": 1, "price": 4, "op": "u"},
        {"id": 5, "version": None, "price": 5, "op": "u"},
        {"id": None, "version": 1, "price": 6, "op": "u"},
    )
    run("id long, version long, price double, op string").execute("prices")
    assert table_rows(config.ref) == [
        {"id": 3, "version": 1, "price": 3.0},
        {"id": 4, "version": 1, "price": 4.0},
    ]
    errors = [
        letter["error"]
        for letter in config.ref.beside("bad").load().scan().to_arrow().to_pylist()
        if letter["column"] != "price"
    ]
    assert sorted(errors) == [
        "key column 'id' has 1 nulls: such rows can't be told apart",
        "sequence column 'version' has 1 nulls: whether such a row is the later one can't be told",
    ]
    write(
        tmp_path,
        "1.json",
        {"id": 1, "version": 3, "price": 10, "op": "u"},
        {"id": 2, "version": 3, "price": None, "op": "d"},
    )
    run("id long, version long, price double, op string").execute("prices")
    job = run("id long, version long, price string, op string").replay("prices")
    assert (job.progress.replayed, job.progress.rejected) == (4, 2)
    assert table_rows(config.ref) == [
        {"id": 1, "version": 3, "price": 10.0},
        {"id": 3, "version": 2, "price": 3.5},
    ]


def test_many_tables_by_sequence_with_letters(native: Environment, storage: Any) -> None:
    config = IcebergSinkConfig(namespace="db", table="{shop}", storage=storage)
    rows = [
        {"shop": "oslo", "id": 1, "version": 2, "op": "u", "price": 1},
        {"shop": "oslo", "id": 1, "version": 1, "op": "u", "price": 2},
        {"shop": "bergen", "id": 1, "version": 3, "op": "d", "price": 3},
        {"shop": "bergen", "id": 1, "version": 1, "op": "u", "price": 4},
        {"shop": "bergen", "id": 2, "version": None, "op": "u", "price": 5},
        {"shop": "oslo", "id": None, "version": 1, "op": "u", "price": 6},
        {"shop": "oslo", "id": 2, "version": 5, "op": "u", "price": 7},
        {"shop": "oslo", "id": 2, "version": 5, "op": "d", "price": 8},
        {"shop": "oslo", "id": 2, "version": 4, "op": "u", "price": 9},
        {"shop": "bergen", "id": 3, "version": 1, "op": "u", "price": 10},
    ]
    source = MemorySource(rows, "shop string, id long, version long, op string, price long", rows_per_epoch=1)
    sink = IcebergSink(config.with_commit_mode(BY_VERSION).with_dead_letter("bad")).routed(omit=["shop"])
    job = native.from_source(source).to_sink(sink).execute("shops")
    assert table_rows(TableRef("db", "oslo", storage)) == [{"id": 1, "version": 2, "price": 1}]
    assert table_rows(TableRef("db", "bergen", storage)) == [{"id": 3, "version": 1, "price": 10}]
    bad = TableRef("db", "bad", storage).load().scan().to_arrow().to_pylist()
    assert sorted(json.loads(letter["payload"])["price"] for letter in bad) == [5, 6]
    assert job.progress.rejected == 2


def test_the_histories_of_many_tables_with_letters(native: Environment, storage: Any) -> None:
    """A truncate has no key, also in a table that is not there yet; a row without one is a bad row."""
    config = IcebergSinkConfig(namespace="db", table="{shop}", storage=storage)
    rows = [
        {"shop": "oslo", "id": None, "version": 4, "op": "t", "price": None},
        {"shop": "oslo", "id": 1, "version": 3, "op": "u", "price": 3},
        {"shop": "oslo", "id": 1, "version": 1, "op": "u", "price": 1},
        {"shop": "bergen", "id": None, "version": 1, "op": "u", "price": 5},
        {"shop": "bergen", "id": 1, "version": 2, "op": "u", "price": 2},
        {"shop": "oslo", "id": 1, "version": None, "op": "u", "price": 6},
    ]
    source = MemorySource(rows, "shop string, id long, version long, op string, price long", rows_per_epoch=2)
    mode = History("id", sequence="version", op_field="op")
    sink = IcebergSink(config.with_commit_mode(mode).with_dead_letter("bad")).routed(omit=["shop"])
    job = native.from_source(source).to_sink(sink).execute("shops")
    found = {
        shop: [(row["price"], row["valid_from"], row["valid_to"]) for row in table_rows(TableRef("db", shop, storage))]
        for shop in ("oslo", "bergen")
    }
    assert {shop: sorted(rows) for shop, rows in found.items()} == {
        "oslo": [(1, 1, 3), (3, 3, 4)],
        "bergen": [(2, 2, None)],
    }
    assert job.progress.rejected == 2


CHANGES = [
    {"id": 1, "version": 2, "op": "u", "price": 1},
    {"id": 2, "version": 2, "op": "u", "price": 2},
    {"id": 1, "version": 1, "op": "u", "price": 3},
    {"id": 2, "version": 4, "op": "d", "price": 0},
    {"id": 2, "version": 3, "op": "u", "price": 4},
    {"id": 3, "version": 9, "op": "d", "price": 0},
    {"id": 3, "version": 8, "op": "u", "price": 5},
    {"id": 1, "version": 5, "op": "u", "price": 0},
    {"id": 4, "version": 1, "op": "u", "price": 7},
    {"id": 4, "version": 1, "op": "u", "price": 6},
    {"id": 4, "version": 1, "op": "u", "price": 9},
    {"id": 5, "version": 1, "op": "u", "price": 1},
    {"id": 5, "version": 1, "op": "d", "price": 1},
    {"id": 6, "version": 1, "op": "u", "price": 1},
]
FINAL = [
    {"id": 1, "version": 5, "price": 0},
    {"id": 4, "version": 1, "price": 9},
    {"id": 6, "version": 1, "price": 1},
]
SCHEMA = "id long, version long, op string, price long"


def mirrored(environment: Environment, source: TableRef, name: str, mode: Upsert, often: Maintenance) -> TableRef:
    """Copy the changes of a table since the last call into another one, a snapshot an epoch."""
    into = IcebergSinkConfig.from_table(source.beside(name)).with_commit_mode(mode).with_maintenance(often)
    read = IcebergSourceConfig(source).with_changes("follow", keys=["id"]).with_max_rows_per_epoch(1)
    dropped = [column for column in ("_snapshot", "_committed_at") if column not in mode.sequence_fields]
    changes = environment.from_source(IcebergSource(read)).drop(*dropped)
    changes.to_sink(IcebergSink(into)).execute(name)
    return into.ref


@pytest.mark.parametrize("strategy", some(["merge_on_read", "copy_on_write"]))
def test_a_mirror_of_a_mirror(native: Environment, config: IcebergSinkConfig, strategy: Any) -> None:
    """All three are by sequence, compacted and rid of old snapshots meanwhile; views and changes see rows only."""
    often = Maintenance(every="1ms", commits=1, budget=1.0)
    mode = Upsert(["id"], sequence="version", op_field="op", strategy=strategy)
    follow = Upsert(["id"], sequence="version", op_field="_change", strategy=strategy)
    sink = IcebergSink(config.with_commit_mode(mode).with_maintenance(often))
    query = native.from_source(IcebergSource(IcebergSourceConfig(config.ref.beside("mirror"))))
    view = MaterializedView(
        "totals",
        query.key_by().aggregate(rows=count(), price=sum_("price")),
        into=IcebergSinkConfig.from_table(config.ref.beside("totals")),
    )
    for end in range(5, len(CHANGES) + 5, 5):
        source = MemorySource(CHANGES[:end], SCHEMA, rows_per_epoch=1)
        native.from_source(source).to_sink(sink).execute("first")
        mirror = mirrored(native, config.ref, "mirror", follow, often)
        copy = mirrored(native, mirror, "copy", follow, often)
        rows = table_rows(config.ref)
        assert table_rows(mirror) == table_rows(copy) == rows
        view.refresh("full" if end == 5 else "incremental")
        (total,) = view.into.ref.load().scan().to_arrow().select(["rows", "price"]).to_pylist()
        assert total == {"rows": len(rows), "price": sum(row["price"] for row in rows)}
    assert rows == FINAL
    for table in (config.ref, mirror, copy):
        state: dict[int, Row] = {}
        for batch in changes_between(table, None, keys="id").batches():
            for row in batch.to_pylist():
                values = {name: row[name] for name in ("id", "version", "price")}
                if row["_change"] in ("delete", "update_before"):
                    assert state.pop(row["id"]) == values
                else:
                    state[row["id"]] = values
        assert sorted(state.values(), key=lambda row: row["id"]) == FINAL
        assert tombstone_branch("main") in table.load().metadata.refs


def test_a_mirror_by_the_time_of_commits(native: Environment, config: IcebergSinkConfig) -> None:
    """What a row was before an update is no change of its own: it has the time of the update, too."""
    rows = [{"id": 1, "price": 9}, {"id": 2, "price": 9}, {"id": 1, "price": 5}, {"id": 1, "price": 1}]
    mode = Upsert(["id"], sequence="_committed_at", op_field="_change")
    for end in (2, 4):
        source = MemorySource(rows[:end], "id long, price long", rows_per_epoch=1)
        native.from_source(source).to_sink(IcebergSink(config.with_commit_mode(Upsert(["id"])))).execute("first")
        mirror = mirrored(native, config.ref, "mirror", mode, Maintenance())
    assert [(row["id"], row["price"]) for row in table_rows(mirror)] == [(1, 1), (2, 9)]
