"""What is wrong with a pipeline is found before Spark starts, where it can be."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext
from tenacity import wait_none

from tests.services.lakes import driver
from volley import (
    DataStream,
    Environment,
    FileSink,
    FileSource,
    IcebergSink,
    IcebergSinkConfig,
    IcebergStorage,
    KafkaSource,
    MemorySink,
    MemorySource,
    Pipeline,
    VolleyError,
    col,
)
from volley.iceberg import Overwrite, Partitioning, Upsert
from volley.iceberg.catalogs.answers import commit_retry

MEMORY = MemorySource([{"id": 1, "at": datetime(2024, 1, 1)}])
KAFKA = KafkaSource("nowhere:9092", "t", schema="id long", include=["key"])


@pytest.fixture
def nothing_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a user's process begins; should Spark be started after all, the test says so."""
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    # A catalog that does not answer is asked as often, without the pauses.
    monkeypatch.setitem(commit_retry.keywords, "wait", wait_none())

    def start(master: str | None, modules: set[str]) -> Any:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("volley.spark.session.open_context", start)


def table(folder: Path, **settings: Any) -> IcebergSinkConfig:
    return IcebergSinkConfig(namespace="db", table="t", storage=IcebergStorage.Local(str(folder)), **settings)


def existing(folder: Path, **settings: Any) -> IcebergSinkConfig:
    driver(table(folder))
    return table(folder, **settings)


Draw = Callable[[Environment, Path], DataStream | Pipeline]

MISTAKES: dict[str, tuple[Draw, str]] = {
    "a column of rows in memory": (lambda e, f: e.from_source(MEMORY).filter_expr(col("idd") > 1), "'idd'"),
    "a column of files": (
        lambda e, f: e.from_source(FileSource(f, "json", {"id": int}, bounded=False)).select("idd"),
        "'idd'",
    ),
    "a column of messages": (lambda e, f: e.from_source(KAFKA).drop("kafka_keys"), "'kafka_keys'"),
    "a type": (lambda e, f: e.from_source(MEMORY).with_column("n", col("at") * 2), "timestamp"),
    "a key of duplicates": (lambda e, f: e.from_source(MEMORY).deduplicate("idd"), "'idd'"),
    "a union": (lambda e, f: e.from_source(MEMORY).union(e.from_source(MEMORY).drop("at")), "different columns"),
    "a folder that is not there": (lambda e, f: e.from_source(FileSource(f / "no", "json")), "does not exist"),
    "a pattern without files": (lambda e, f: e.from_source(FileSource(f / "*.json")), "matches no file"),
    "a sink's columns": (
        lambda e, f: e.from_source(MEMORY).map(dict, "tags array<int>").to_sink(FileSink(f, "csv")),
        "'tags'",
    ),
    "a catalog that does not answer": (
        lambda e, f: e.from_source(MEMORY).to_sink(
            IcebergSink(
                IcebergSinkConfig(
                    catalog_uri="http://127.0.0.1:1",
                    warehouse=None,
                    namespace="db",
                    table="t",
                    storage=IcebergStorage.Local(str(f)),
                )
            )
        ),
        "does not answer",
    ),
    "a table that may not be made": (
        lambda e, f: e.from_source(MEMORY).to_sink(IcebergSink(table(f, create_table=False))),
        "table db.t not found",
    ),
    "a partition of a new table": (
        lambda e, f: e.from_source(MEMORY).to_sink(IcebergSink(table(f, partitioning=Partitioning.identity("region")))),
        "'region'",
    ),
    "a key of an upsert": (
        lambda e, f: e.from_source(MEMORY).to_sink(IcebergSink(table(f, commit_mode=Upsert("idd")))),
        "'idd'",
    ),
    "a table's schema": (
        lambda e, f: e.from_source(MEMORY).to_sink(IcebergSink(existing(f, schema_evolution="strict"))),
        "at",
    ),
    "a partition to overwrite": (
        lambda e, f: e.from_source(MEMORY).to_sink(
            IcebergSink(existing(f, commit_mode=Overwrite.partitions({"region": 1})))
        ),
        "region",
    ),
}


@pytest.mark.usefixtures("nothing_starts")
@pytest.mark.parametrize(("draw", "message"), MISTAKES.values(), ids=MISTAKES)
def test_it_is_found_before_spark_starts(draw: Draw, message: str, tmp_path: Path) -> None:
    environment = Environment(checkpoint_dir=tmp_path / "checkpoints")
    with pytest.raises(VolleyError) as caught:
        draw(environment, tmp_path).to_sink(MemorySink()).execute("mistake")
    assert message in caught.value.message
    assert caught.value.hint
    assert not (tmp_path / "checkpoints").exists() or not any((tmp_path / "checkpoints").iterdir())


@pytest.mark.usefixtures("nothing_starts")
def test_what_is_right_goes_on_to_spark_and_makes_nothing(tmp_path: Path) -> None:
    stream = Environment(checkpoint_dir=tmp_path / "checkpoints").from_source(MEMORY)
    with pytest.raises(AssertionError, match="Spark was started"):
        stream.to_sink(IcebergSink(table(tmp_path / "lake"))).execute("right")
    assert not (tmp_path / "lake").exists()


@pytest.mark.usefixtures("nothing_starts")
def test_of_many_differences_from_a_table_the_first_are_listed(tmp_path: Path) -> None:
    rows = MemorySource([{f"column_{number}": number for number in range(20)}])
    stream = Environment(checkpoint_dir=tmp_path / "checkpoints").from_source(rows)
    with pytest.raises(VolleyError) as caught:
        stream.to_sink(IcebergSink(existing(tmp_path, schema_evolution="strict"))).execute("mistake")
    assert caught.value.message.count("\n  - ") == 8
    assert re.search(r"\n  … and \d+ more$", caught.value.message)


@pytest.mark.parametrize("value", [True, False])
def test_the_path_can_t_be_chosen_any_more(value: bool) -> None:
    with pytest.warns(DeprecationWarning, match="arrow_native=…. has no effect"):
        chosen = Environment(checkpoint_dir="c", arrow_native=value)
    assert chosen == Environment(checkpoint_dir="c")
