"""Tables are read in one line: now, then, filtered; as Arrow, polars and DuckDB, with the nulls that are there."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.table import Table

from tests.upserts.lake import Lake
from volley import (
    ConfigError,
    IcebergSink,
    IcebergSinkConfig,
    IcebergStorage,
    SnapshotNotFoundError,
    SourceContext,
    StorageError,
    col,
)
from volley.iceberg import Append, Delete, IcebergTable, Insert, TimeTravelQuery
from volley.iceberg.read import whole

SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "name": pa.string(),
        "places": pa.list_(pa.struct({"x": pa.int32(), "tags": pa.list_(pa.string())})),
        "by": pa.map_(pa.string(), pa.float64()),
    }
)
PLACES = [{"x": 1, "tags": None}, None, {"x": None, "tags": [None, ""]}]
ROWS: list[dict[str, Any]] = [
    {"id": 1, "name": "a", "places": PLACES, "by": [("k", None)]},
    {"id": 2, "name": None, "places": None, "by": None},
    {"id": 3, "name": "", "places": [], "by": []},
]


@pytest.fixture
def config(tmp_path: Path) -> IcebergSinkConfig:
    return IcebergSinkConfig(namespace="db", table="events", storage=IcebergStorage.Local(str(tmp_path / "lake")))


@pytest.fixture
def written(config: IcebergSinkConfig, tmp_path: Path) -> Table:
    """A table of three snapshots: two rows, then a third one, then without that; the second one has a tag."""
    # By Volley's writer: pyiceberg's makes null lists of structs empty.
    lake = Lake(tmp_path, Append(), SCHEMA)
    lake.epoch(ROWS[:2])
    lake.epoch(ROWS[2:])
    lake.close()
    table = config.ref.load()
    table.delete("id = 3")
    table.manage_snapshots().create_tag(table.metadata.snapshots[1].snapshot_id, "all").commit()
    return table


def test_nulls_are_where_they_were(config: IcebergSinkConfig, written: Table) -> None:
    table = IcebergTable(config)
    assert table.to_arrow().to_pylist() == ROWS[:2]
    assert table.at("all").to_arrow().sort_by("id").to_pylist() == ROWS
    assert table.to_arrow().schema.equals(SCHEMA)
    frame = table.at("all").to_polars().sort("id")
    assert frame["places"].to_list() == [row["places"] for row in ROWS]
    relation = table.at("all").select("places", "id").to_duckdb().order("id")
    assert relation.fetchall() == [(row["places"], row["id"]) for row in ROWS]
    connection = duckdb.connect()
    assert table.at("all").to_arrow(2).num_rows == table.at("all").head(2).num_rows == 2
    assert table.rows.to_pandas(1)["id"].tolist() in ([1], [2])
    assert table.rows.to_duckdb(connection).aggregate("sum(id)").fetchall() == [(3,)]


def test_a_sink_shows_what_its_table_has(config: IcebergSinkConfig, written: Table) -> None:
    sink = IcebergSink(config)
    assert sink.to_arrow().sort_by("id").to_pylist() == ROWS[:2]
    assert sink.to_polars(1).height == sink.head(1).num_rows == 1
    assert sink.to_duckdb().aggregate("sum(id)").fetchall() == [(3,)]


def test_versions_and_times(config: IcebergSinkConfig, written: Table) -> None:
    table, (_, first, second) = IcebergTable(config), written.metadata.snapshots
    then = datetime.fromtimestamp(first.timestamp_ms / 1000, UTC)
    assert table.at(first.snapshot_id).to_arrow().num_rows == table.as_of(then).to_arrow().num_rows == 3
    assert table.at(second.snapshot_id).to_arrow().num_rows == 2
    assert [snapshot.id for snapshot in table.snapshots()] == [each.snapshot_id for each in written.metadata.snapshots]
    with pytest.raises(SnapshotNotFoundError):
        table.as_of("2020-01-01").to_arrow()
    with pytest.raises(SnapshotNotFoundError, match=r"no branch or tag 'alll'[\s\S]*did you mean 'all'"):
        table.at("alll").to_arrow()


def test_filters_and_columns(config: IcebergSinkConfig, written: Table) -> None:
    rows = IcebergTable(config).at("all")
    assert rows.filter("id >= 2").select("id").to_arrow().to_pydict() in ({"id": [2, 3]}, {"id": [3, 2]})
    assert rows.select("name").filter(col("name").is_null()).to_arrow().to_pydict() == {"name": [None]}
    assert rows.filter("id > 99").to_arrow().schema.equals(SCHEMA)
    for nested in ("places is null", col("by").is_null()):
        assert rows.filter(nested).select("id").to_arrow().to_pydict() == {"id": [2]}
    assert sum(batch.num_rows for batch in rows.to_batches()) == 3
    with pytest.raises(ConfigError, match="filter already"):
        rows.filter("id = 1").filter("id = 2")
    with pytest.raises(ConfigError, match="did you mean 'name'"):
        rows.select("nmae").to_arrow()


def test_rows_are_read_ahead_a_little_and_come_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    def read(split: range) -> Iterator[pa.RecordBatch]:
        for number in split:
            made.append(number)
            yield pa.record_batch({"x": [number]})

    monkeypatch.setattr(whole, "_READ_AHEAD_BYTES", 1)
    splits: Any = [range(100), range(100, 103), range(103, 103), range(103, 104)]
    batches = whole._in_parallel(read, splits, threads=2)  # type: ignore[arg-type]
    first = [next(batches)["x"][0].as_py() for _ in range(50)]
    # One batch of each of two splits is ahead of the consumer.
    assert len(made) <= 50 + 2
    assert [*first, *(batch["x"][0].as_py() for batch in batches)] == list(range(104))


def test_changes(config: IcebergSinkConfig, written: Table) -> None:
    table, first = IcebergTable(config), written.metadata.snapshots[1].snapshot_id
    assert list(table.changes(first)) == [Delete(ROWS[2])]
    assert list(table.changes(None, first)) == [Insert(row) for row in ROWS]
    assert list(TimeTravelQuery(config).changes_between(first)) == [Delete(ROWS[2])]


def test_a_query_gives_sources(config: IcebergSinkConfig, written: Table, tmp_path: Path) -> None:
    query, first = TimeTravelQuery(config.ref), written.metadata.snapshots[1]
    then = datetime.fromtimestamp(first.timestamp_ms / 1000, UTC)
    for number, source in enumerate([query.as_of_version(first.snapshot_id), query.as_of_timestamp(then)]):
        reader = source.open(SourceContext(str(tmp_path / f"state{number}")))
        start = reader.initial_offset()
        splits = reader.splits(start, reader.latest_offset(start, None, None))
        rows = [row for split in splits for batch in reader.read(split) for row in batch.to_pylist()]
        assert sorted(rows, key=lambda row: row["id"]) == ROWS


def test_a_damaged_start_is_named(config: IcebergSinkConfig, written: Table, tmp_path: Path) -> None:
    source = TimeTravelQuery(config).as_of_version("all")
    state = tmp_path / "checkpoint" / "volley" / "source-0"
    source.open(SourceContext(str(state)))
    for damaged in (b"", b"{", b"{}", b"[]"):
        (state / "initial-offset.json").write_bytes(damaged)
        with pytest.raises(StorageError, match=r"initial-offset\.json is damaged"):
            source.open(SourceContext(str(state)))


def test_an_empty_table_has_its_columns(config: IcebergSinkConfig) -> None:
    catalog = config.ref.load_catalog()
    catalog.create_namespace("db")
    catalog.create_table("db.events", SCHEMA)
    assert IcebergTable(config).to_arrow().equals(SCHEMA.empty_table())
    assert list(IcebergTable(config).changes(None)) == []


def test_what_is_no_table_is_refused() -> None:
    for wrong in (IcebergTable, TimeTravelQuery):
        with pytest.raises(ConfigError, match="table is 'events'"):
            wrong("events")  # type: ignore[arg-type]
