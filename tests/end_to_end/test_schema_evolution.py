"""A stream or its table changes between two runs of a job, or while it runs: no row is lost, doubled or misfiled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyiceberg.types import StringType

import volley.engine.epochs
from volley import (
    Environment,
    FileSource,
    IcebergSink,
    IcebergSinkConfig,
    Job,
    LayoutChangedError,
    MemorySource,
    SchemaMismatchError,
)

Load = Callable[[], Table]
Rows = Callable[[], list[dict[str, Any]]]

DETAIL = pa.struct({"size": pa.int32()})
BEFORE = pa.schema({"id": pa.int32(), "label": pa.string(), "detail": DETAIL, "note": pa.string()})
AFTER = pa.schema(
    {"id": pa.int64(), "name": pa.string(), "detail": pa.struct({"color": pa.string(), "size": pa.int64()})}
)


def add_file(folder: Path, rows: list[dict[str, Any]], schema: pa.Schema) -> None:
    """One more file, which is one more epoch."""
    (folder / "in").mkdir(exist_ok=True)
    number = len(list((folder / "in").iterdir()))
    pq.write_table(pa.Table.from_pylist(rows, schema), folder / "in" / f"{number}.parquet")


def run(environment: Environment, folder: Path, config: IcebergSinkConfig, schema: pa.Schema) -> Job:
    source = FileSource(str(folder / "in"), format="parquet", schema=schema, max_files_per_epoch=1)
    return environment.from_source(source).to_sink(IcebergSink(config)).execute("evolving")


def test_a_job_goes_on_from_its_checkpoint_with_another_stream(
    environment: Environment, config: IcebergSinkConfig, tmp_path: Path, rows: Rows, load: Load
) -> None:
    add_file(tmp_path, [{"id": i, "label": "a", "detail": {"size": i}, "note": "x"} for i in (1, 2)], BEFORE)
    run(environment, tmp_path, config, BEFORE)

    add_file(tmp_path, [{"id": 2**40, "name": "b", "detail": {"color": "red", "size": 2**40}}], AFTER)
    full = config.with_schema_evolution("full", renames={"label": "name"}, drops=["note"])
    run(environment, tmp_path, full, AFTER)
    add_file(tmp_path, [{"id": 3, "name": "c"}], pa.schema(list(AFTER)[:2]))
    run(environment, tmp_path, config.with_schema_evolution("strict"), pa.schema(list(AFTER)[:2]))
    assert rows() == [
        {"id": 1, "name": "a", "detail": {"size": 1, "color": None}},
        {"id": 2, "name": "a", "detail": {"size": 2, "color": None}},
        {"id": 3, "name": "c", "detail": None},
        {"id": 2**40, "name": "b", "detail": {"size": 2**40, "color": "red"}},
    ]
    assert [s.schema_id for s in load().snapshots()] == [0, 1, 1]


Meddle = Callable[[Callable[[int], Any]], None]


@pytest.fixture
def meddle(monkeypatch: pytest.MonkeyPatch) -> Meddle:
    """Has something happen each time when the files of an epoch are written and not yet committed."""

    def arrange(happens: Callable[[int], Any]) -> None:
        written = iter(range(100))

        def reach(point: str, epoch: int) -> None:
            if point == "after-files":
                happens(next(written))

        monkeypatch.setattr(volley.engine.epochs, "reach", reach)

    return arrange


def add_column(table: Table, name: str) -> None:
    with table.update_schema() as update:
        update.add_column(name, StringType())


@pytest.mark.parametrize("change", ["schema", "spec"])
def test_an_epoch_is_written_anew_when_another_client_changes_the_table(
    change: str, environment: Environment, config: IcebergSinkConfig, rows: Rows, load: Load, meddle: Meddle
) -> None:
    events = [{"id": i, "name": f"n {i}"} for i in range(6)]

    def changed(write: int) -> None:
        if write == 1 and change == "schema":
            add_column(load(), "other")
        elif write == 1:
            with load().update_spec() as update:
                update.add_field("id", "bucket[2]", "by_id")

    meddle(changed)
    source = MemorySource(events, rows_per_epoch=2)
    job = environment.from_source(source).to_sink(IcebergSink(config)).execute("anew")
    assert [{name: row[name] for name in ("id", "name")} for row in rows()] == events
    assert job.metrics.records_written == 6
    assert job.metrics.records_failed == 0
    assert [s.summary["volley.epoch"] for s in load().snapshots() if s.summary] == ["0", "1", "2"]
    assert load().scan(row_filter="id = 3").to_arrow().num_rows == 1
    named = {path.rpartition("/")[2] for path in load().inspect.all_files()["file_path"].to_pylist()}
    assert {path.name for path in Path(load().location().removeprefix("file://")).rglob("*.parquet")} == named


def test_a_table_that_changes_each_time_stops_the_job_with_the_reason(
    native: Environment, config: IcebergSinkConfig, load: Load, meddle: Meddle
) -> None:
    meddle(lambda write: add_column(load(), f"other_{write}"))
    with pytest.raises(LayoutChangedError, match=r"db\.events changed between write and commit"):
        native.from_source(MemorySource([{"id": 1}])).to_sink(IcebergSink(config)).execute("never")
    assert load().snapshots() == []
    assert len(load().schemas()) == 5
    assert not list(Path(load().location().removeprefix("file://")).rglob("*.parquet"))


def test_a_table_that_the_stream_no_longer_fits_stops_the_job(
    native: Environment, config: IcebergSinkConfig, load: Load, meddle: Meddle
) -> None:
    def renamed(write: int) -> None:
        with load().update_schema() as update:
            update.rename_column("name", "label")

    meddle(renamed)
    strict = IcebergSink(config.with_schema_evolution("strict"))
    with pytest.raises(SchemaMismatchError, match="'name': the table has no such column"):
        native.from_source(MemorySource([{"id": 1, "name": "a"}])).to_sink(strict).execute("stopped")
    assert load().snapshots() == []
    assert not list(Path(load().location().removeprefix("file://")).rglob("*.parquet"))


def test_several_sinks_and_dead_letters_have_each_row_once(
    native: Environment, config: IcebergSinkConfig, tmp_path: Path, load: Load, meddle: Meddle
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "lake").mkdir()
    catalog = SqlCatalog("volley", uri=f"sqlite:///{tmp_path}/lake/catalog.db")
    (tmp_path / "in" / "0.json").write_text('{"id": 1}\nbroken\n{"id": 2}\n')

    def changed(write: int) -> None:
        if write == 0:
            add_column(catalog.load_table("db.second"), "other")

    meddle(changed)
    source = FileSource(tmp_path / "in", format="json", schema="id long")
    stream = native.from_source(source).to_sink(IcebergSink(config.with_dead_letter("letters")))
    for name in ("second", "third"):
        stream = stream.to_sink(IcebergSink(replace(config, table=name)))
    job = stream.execute("several")
    for name in ("events", "second", "third"):
        table = catalog.load_table(f"db.{name}")
        assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [1, 2]
        assert len(table.snapshots()) == 1
    assert catalog.load_table("db.letters").scan().to_arrow()["payload"].to_pylist() == ["broken"]
    assert (job.metrics.records_written, job.metrics.records_failed) == (6, 1)
    catalog.close()
