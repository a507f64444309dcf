"""What jobs, views and maintenance tell of themselves, as an endpoint gets it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.lineage.receiver import Receiver
from volley import (
    Environment,
    FileSink,
    FileSource,
    FinishedEpoch,
    IcebergSink,
    IcebergSinkConfig,
    IcebergSource,
    IcebergSourceConfig,
    IcebergStorage,
    MaterializedView,
    MemorySink,
    MemorySource,
    Restart,
    TableNotFoundError,
    VolleyError,
    col,
    count,
)
from volley.engine import lineage
from volley.iceberg import IcebergTable, Maintenance, SnapshotManager, Upsert
from volley.lineage.emitter import configured_emitter


@pytest.fixture
def config(tmp_path: Path) -> IcebergSinkConfig:
    """A table in a local lake."""
    return IcebergSinkConfig(namespace=["db"], table="events", storage=IcebergStorage.Local(str(tmp_path / "lake")))


def table(config: IcebergSinkConfig, name: str) -> IcebergSinkConfig:
    """Another table of the lake."""
    return IcebergSinkConfig(namespace=["db"], table=name, storage=config.storage)


def load_columns(config: IcebergSinkConfig, name: str) -> list[str]:
    """The columns of another table of the lake, by pyiceberg."""
    found: list[str] = config.ref.load_catalog().load_table(f"db.{name}").schema().column_names
    return found


def parts(event: dict[str, Any], side: str) -> dict[str, dict[str, Any]]:
    """The inputs or outputs by the last part of their names."""
    return {dataset["name"].rpartition("/")[2]: dataset for dataset in event[side]}


def origins(dataset: dict[str, Any]) -> dict[str, list[tuple[str, str, str]]]:
    """For each column of an output, the columns of inputs that it comes from, and how."""
    return {
        name: [
            (column["name"].rpartition("/")[2], column["field"], way["subtype"])
            for column in field["inputFields"]
            for way in column["transformations"]
        ]
        for name, field in dataset["facets"]["columnLineage"]["fields"].items()
    }


def test_a_job_from_files_to_a_table(
    environment: Environment, receiver: Receiver, config: IcebergSinkConfig, tmp_path: Path
) -> None:
    (tmp_path / "in.json").write_text('{"id": 1, "price": 2.5}\n{"id": 2, "price": 3}\n{"id": "none"}\n')
    stream = environment.from_source(FileSource(tmp_path / "in.json", schema="id long, price double"))
    doubled = stream.filter(col("price") > 0).select("id", (col("price") * 2).alias("twice"))
    letters = FileSink(tmp_path / "bad", format="json")
    doubled.to_sink(IcebergSink(config), dead_letter=letters).execute("orders", progress=False)
    events = receiver.events("COMPLETE")
    assert [event["eventType"] for event in events] == ["START", "RUNNING", "COMPLETE"]
    assert len({event["run"]["runId"] for event in events}) == 1
    start, _, complete = events
    for event in (start, complete):
        (source,) = event["inputs"]
        assert (source["namespace"], source["name"]) == ("file", f"{tmp_path}/in.json")
        assert [(field["name"], field["type"]) for field in source["facets"]["schema"]["fields"]] == [
            ("id", "long"),
            ("price", "double"),
        ]
        table = parts(event, "outputs")["events"]
        assert (table["namespace"], table["name"]) == ("file", f"{tmp_path}/lake/db/events")
        (link,) = table["facets"]["symlinks"]["identifiers"]
        assert (link["name"], link["namespace"]) == ("db.events", f"sqlite:///{tmp_path}/lake/catalog.db")
        assert origins(table) == {
            "id": [("in.json", "id", "IDENTITY")],
            "twice": [("in.json", "price", "TRANSFORMATION")],
        }
        assert [(field["name"], field["type"]) for field in table["facets"]["schema"]["fields"]] == [
            ("id", "long"),
            ("twice", "double"),
        ]
        assert event["job"]["facets"]["jobType"]["processingType"] == "BATCH"
    assert complete["inputs"][0]["inputFacets"]["inputStatistics"]["rowCount"] == 3
    written = parts(complete, "outputs")
    statistics = written["events"]["outputFacets"]["outputStatistics"]
    (file,) = (tmp_path / "lake" / "db" / "events" / "data").rglob("*.parquet")
    assert (statistics["rowCount"], statistics["fileCount"], statistics["size"]) == (2, 1, file.stat().st_size)
    assert written["bad"]["outputFacets"]["outputStatistics"]["rowCount"] == 1
    assert "filter col('price')" in complete["job"]["facets"]["sourceCode"]["sourceCode"]


def test_each_run_of_a_job_has_an_id_of_its_own_and_an_epoch_is_told_in_one(
    environment: Environment, receiver: Receiver, config: IcebergSinkConfig, tmp_path: Path
) -> None:
    source = FileSource(tmp_path / "in", format="json", schema="id long", max_files_per_epoch=1)
    (tmp_path / "in").mkdir()
    for number in range(2):
        (tmp_path / "in" / f"{number}.json").write_text(f'{{"id": {number}}}\n')
        environment.from_source(source).to_sink(IcebergSink(config)).execute("orders", progress=False)
    ends = [event for event in receiver.events("COMPLETE", times=2) if event["eventType"] == "COMPLETE"]
    assert len({event["run"]["runId"] for event in ends}) == 2
    told = [{tag["key"]: tag["value"] for tag in event["run"]["facets"]["tags"]["tags"]} for event in ends]
    assert [(tags["volley.first_epoch"], tags["volley.last_epoch"]) for tags in told] == [("0", "0"), ("1", "1")]
    assert [parts(event, "outputs")["events"]["outputFacets"]["outputStatistics"]["rowCount"] for event in ends] == [
        1,
        1,
    ]


def fail(row: dict[str, Any]) -> dict[str, Any]:
    """A step that can't process its row."""
    raise ValueError("no such row: https://bot:hunter2hunter2@shop.example.com/")


def test_a_job_that_fails(environment: Environment, receiver: Receiver) -> None:
    """The error is told, without secrets; restarts are told of, too."""
    failing = environment.from_source(MemorySource([{"id": 1}])).map(fail).to_sink(MemorySink("out"))
    with pytest.raises(VolleyError):
        failing.execute("failing", progress=False, restart=Restart(limit=1, backoff=0.01))
    events = receiver.events("FAIL")
    assert [event["eventType"] for event in events] == ["START", "RUNNING", "RUNNING", "FAIL"]
    facet = events[-1]["run"]["facets"]["errorMessage"]
    assert "no such row" in facet["message"]
    assert facet["programmingLanguage"] == "PYTHON"
    assert "no such row" in events[1]["run"]["facets"]["errorMessage"]["message"]
    assert "hunter2" not in json.dumps(events)


def test_a_job_that_cannot_start(environment: Environment, receiver: Receiver) -> None:
    stream = environment.from_source(MemorySource([{"id": 1}])).select("nothing")
    with pytest.raises(VolleyError):
        stream.to_sink(MemorySink("out")).execute("wrong", progress=False)
    events = receiver.events("FAIL")
    assert [event["eventType"] for event in events] == ["START", "FAIL"]
    assert "nothing" in events[-1]["run"]["facets"]["errorMessage"]["message"]


def test_a_job_that_is_stopped(environment: Environment, receiver: Receiver, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    source = FileSource(tmp_path / "in", format="json", schema="id long", bounded=False)
    job = environment.from_source(source).to_sink(MemorySink("out")).start("endless", progress=False)
    receiver.events("START")
    job.stop()
    events = receiver.events("ABORT")
    assert events[0]["job"]["facets"]["jobType"]["processingType"] == "STREAMING"
    assert "errorMessage" not in events[-1]["run"]["facets"]


def test_a_dead_endpoint_changes_nothing(
    environment: Environment, monkeypatch: pytest.MonkeyPatch, config: IcebergSinkConfig
) -> None:
    monkeypatch.setenv("OPENLINEAGE_URL", "http://127.0.0.1:9")
    job = (
        environment.from_source(MemorySource([{"id": 1}])).to_sink(IcebergSink(config)).execute("dead", progress=False)
    )
    assert job.progress.rows == 1


def test_a_table_that_is_joined(
    environment: Environment, receiver: Receiver, config: IcebergSinkConfig, tmp_path: Path
) -> None:
    shops, rows = IcebergSink(config), [{"shop": 1, "town": "Bonn"}]
    environment.from_source(MemorySource(rows)).to_sink(shops).execute("shops", progress=False)
    (tmp_path / "in.json").write_text('{"id": 1, "shop": 1}\n')
    orders = environment.from_source(FileSource(tmp_path / "in.json", schema="id long, shop long"))
    joined = orders.join(IcebergTable(shops.config.ref), on="shop")
    joined.to_sink(FileSink(tmp_path / "out", format="json")).execute("joined", progress=False)
    end = receiver.events("COMPLETE", "joined")[-1]
    assert set(parts(end, "inputs")) == {"in.json", "events"}
    out = parts(end, "outputs")["out"]
    assert origins(out)["town"] == [("events", "town", "IDENTITY")]
    rows_depend = {
        (column["field"], column["transformations"][0]["subtype"])
        for column in out["facets"]["columnLineage"]["dataset"]
    }
    assert rows_depend == {("shop", "JOIN")}


def test_a_view(environment: Environment, receiver: Receiver, config: IcebergSinkConfig) -> None:
    rows = [{"id": number, "shop": number % 2, "price": 1.0} for number in range(4)]
    environment.from_source(MemorySource(rows)).to_sink(IcebergSink(config)).execute("orders", progress=False)
    source = environment.from_source(IcebergSource(IcebergSourceConfig(config.ref)))
    query = source.key_by("shop").aggregate(total=col("price").sum(), n=count())
    view = MaterializedView("per_shop", query, table(config, "per_shop"))
    assert view.refresh().mode == "full"
    events = receiver.events("COMPLETE", "per_shop")
    assert view.refresh().mode == "none"
    assert [event["eventType"] for event in receiver.events(job="per_shop")] == ["START", "COMPLETE"]
    assert events[-1]["job"]["facets"]["jobType"]["jobType"] == "VIEW"
    assert set(parts(events[0], "inputs")) == {"events"}
    out = parts(events[-1], "outputs")["per_shop"]
    assert origins(out) == {
        "shop": [("events", "shop", "IDENTITY")],
        "total": [("events", "price", "AGGREGATION")],
        "n": [],
    }
    assert out["outputFacets"]["outputStatistics"]["rowCount"] == 2


def test_a_view_that_cannot_be_refreshed(
    environment: Environment, receiver: Receiver, config: IcebergSinkConfig
) -> None:
    source = environment.from_source(IcebergSource(IcebergSourceConfig(config.ref)))
    view = MaterializedView("lost", source.key_by("shop").aggregate(n=count()), table(config, "lost"))
    with pytest.raises(VolleyError):
        view.refresh()
    events = receiver.events("FAIL", "lost")
    assert "events" in events[-1]["run"]["facets"]["errorMessage"]["message"]


def test_maintenance_is_told_if_it_did_something(
    environment: Environment, receiver: Receiver, config: IcebergSinkConfig
) -> None:
    for number in range(2):
        stream = environment.from_source(MemorySource([{"id": number}]))
        stream.to_sink(IcebergSink(config)).execute(f"part-{number}", progress=False)
    IcebergTable(config.ref).compact()
    IcebergTable(config.ref).compact()
    events = receiver.events("COMPLETE", "db.events.compaction")
    assert [event["eventType"] for event in events] == ["START", "COMPLETE"]
    assert events[-1]["job"]["facets"]["jobType"]["jobType"] == "MAINTENANCE"
    assert [list(parts(events[-1], side)) for side in ("inputs", "outputs")] == [["events"], ["events"]]
    SnapshotManager(config.ref).expire_snapshots("0s")
    assert receiver.events("COMPLETE", "db.events.expiry")


def test_maintenance_in_a_job_is_a_part_of_it(
    environment: Environment, receiver: Receiver, config: IcebergSinkConfig, tmp_path: Path
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for number in range(12):
        (folder / f"{number:02}.json").write_text(f'{{"id": {number}}}\n')
    source = FileSource(folder, format="json", schema="id long", max_files_per_epoch=1, bounded=False)
    sink = IcebergSink(config.with_maintenance(Maintenance(commits=10, every="1h")))
    with environment.from_source(source).to_sink(sink).start("kept", progress=False):
        events = receiver.events("COMPLETE", "db.events.compaction")
    (run,) = {event["run"]["runId"] for event in receiver.events("ABORT", "kept")}
    parent = events[-1]["run"]["facets"]["parent"]
    assert (parent["job"]["name"], parent["run"]["runId"]) == ("kept", run)


def test_maintenance_that_fails(receiver: Receiver, config: IcebergSinkConfig) -> None:
    with pytest.raises(TableNotFoundError):
        IcebergTable(config.ref).compact()
    assert "db.events" in receiver.events("FAIL")[-1]["run"]["facets"]["errorMessage"]["message"]


def test_a_sink_of_many_tables(environment: Environment, receiver: Receiver, config: IcebergSinkConfig) -> None:
    rows = [{"id": 1, "kind": "click"}, {"id": 2, "kind": "view"}, {"id": 3, "kind": "view"}]
    sink = IcebergSink(config).routed("{kind}s")
    environment.from_source(MemorySource(rows)).to_sink(sink).execute("routed", progress=False)
    written = parts(receiver.events("COMPLETE")[-1], "outputs")
    assert {name: part["outputFacets"]["outputStatistics"]["rowCount"] for name, part in written.items()} == {
        "clicks": 1,
        "views": 2,
    }


def test_a_column_that_a_table_does_not_get_is_not_told(
    environment: Environment, receiver: Receiver, config: IcebergSinkConfig
) -> None:
    """Those that name a table, or say that a row is gone."""
    rows = MemorySource([{"id": 1, "kind": "click", "gone": False}])
    sink = IcebergSink(config.with_commit_mode(Upsert("id", op_field="gone"))).routed(
        "{kind}s", key_fields=["id"], omit=["kind"]
    )
    environment.from_source(rows).to_sink(sink).execute("narrow", progress=False)
    end = receiver.events("COMPLETE")[-1]
    (table,) = end["outputs"]
    written = [name for name in load_columns(config, "clicks") if not name.startswith("_")]
    assert [field["name"] for field in table["facets"]["schema"]["fields"]] == written
    assert list(table["facets"]["columnLineage"]["fields"]) == written
    assert "kind" not in written


def test_epochs_are_told_with_the_sums_of_the_run(
    environment: Environment, receiver: Receiver, config: IcebergSinkConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once a minute; here each of them."""
    monkeypatch.setattr(lineage, "_EVERY_SECONDS", 0.0)
    source = MemorySource([{"id": number} for number in range(3)], rows_per_epoch=1)

    def arrived(epoch: FinishedEpoch) -> None:
        emitter = configured_emitter()
        assert emitter is not None
        assert emitter.flush(20)

    stream = environment.from_source(source)
    stream.to_sink(IcebergSink(config)).execute("summed", on_epoch=arrived, progress=False)
    running = [event for event in receiver.events("COMPLETE") if event["eventType"] == "RUNNING"]
    written = [event["outputs"][0]["outputFacets"]["outputStatistics"] for event in running]
    assert [(part["rowCount"], part["fileCount"]) for part in written] == [(1, 1), (2, 2), (3, 3)]
    assert "schema" not in running[0]["outputs"][0]["facets"]


def test_expectations_are_assertions_of_the_inputs(
    environment: Environment, receiver: Receiver, config: IcebergSinkConfig, tmp_path: Path
) -> None:
    (tmp_path / "in.json").write_text('{"id": 1, "price": 2.5}\n{"id": 2, "price": -3}\n')
    stream = environment.from_source(FileSource(tmp_path / "in.json", schema="id long, price double"))
    checked = stream.expect("price is not negative", col("price") >= 0, on_fail="drop").expect("id", col("id") > 0)
    checked.to_sink(IcebergSink(config)).execute("checked", progress=False)
    (source,) = receiver.events("COMPLETE")[-1]["inputs"]
    assertions = source["inputFacets"]["dataQualityAssertions"]["assertions"]
    assert [(part["name"], part["success"], part["column"], part["actual"]) for part in assertions] == [
        ("price is not negative", False, "price", "1 of 2 rows failed"),
        ("id", True, "id", "0 of 1 rows failed"),
    ]
    assert [(part["severity"], part["content"]) for part in assertions] == [
        ("warn", "col('price') >= lit(0)"),
        ("warn", "col('id') > lit(0)"),
    ]
