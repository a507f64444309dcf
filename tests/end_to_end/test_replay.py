"""Dead letters are read again through a mended pipeline: each row once, each letter marked or with its new reason."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from volley import (
    ConfigError,
    DataStream,
    Environment,
    Expr,
    FileSink,
    FileSource,
    IcebergSink,
    IcebergSinkConfig,
    MemorySink,
    MemorySource,
    Overwrite,
    Pipeline,
    PlanError,
    col,
    count,
    tumbling,
    when,
)

Rows = Callable[[], list[dict[str, Any]]]
LINES = ['{"id": 1, "price": "2.50"}', '{"id": 2, "price": "n/a"}', '{"id": 3, "price": 4}', '{"id": 4}']


@pytest.fixture
def catalog(tmp_path: Path) -> SqlCatalog:
    """Plain pyiceberg on the same lake."""
    (tmp_path / "lake").mkdir()
    return SqlCatalog("volley", uri=f"sqlite:///{tmp_path}/lake/catalog.db", warehouse=f"file://{tmp_path}/lake")


def letters(catalog: SqlCatalog, table: str = "db.bad") -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = catalog.load_table(table).scan().to_arrow().to_pylist()
    return sorted(rows, key=lambda row: (row["payload"], row["position"]))


def write_lines(folder: Path, *lines: str, name: str = "0.json") -> None:
    (folder / "in").mkdir(exist_ok=True)
    (folder / "in" / name).write_text("".join(f"{line}\n" for line in lines))


def orders(environment: Environment, folder: Path, schema: str = "id long, price double") -> DataStream:
    return environment.from_source(FileSource(folder / "in", "json", schema))


def mended(stream: DataStream) -> DataStream:
    """The price may be a text; what is no number is none."""
    known = when(col("price") == "n/a").then(None).otherwise(col("price"))
    return stream.with_column("price", known.cast("double"))


def test_rows_come_once_and_their_letters_are_marked(
    native: Environment, config: IcebergSinkConfig, catalog: SqlCatalog, rows: Rows, tmp_path: Path
) -> None:
    write_lines(tmp_path, *LINES)
    sink = IcebergSink(config.with_dead_letter("bad"))
    orders(native, tmp_path).to_sink(sink).execute("orders")
    assert [row["id"] for row in rows()] == [3, 4]
    before = letters(catalog)
    began = datetime.now(UTC)
    pipeline = mended(orders(native, tmp_path, "id long, price string")).to_sink(sink)
    job = pipeline.replay("orders")
    assert sorted(rows(), key=lambda row: row["id"]) == [
        {"id": 1, "price": 2.5},
        {"id": 2, "price": None},
        {"id": 3, "price": 4.0},
        {"id": 4, "price": None},
    ]
    after = letters(catalog)
    assert all(began <= letter.pop("replayed") <= datetime.now(UTC) for letter in after)
    assert after == [{name: value for name, value in letter.items() if name != "replayed"} for letter in before]
    assert (job.progress.rows, job.progress.replayed, job.progress.rejected) == (2, 2, 0)
    again = pipeline.replay("orders")
    assert len(rows()) == 4
    assert (again.progress.rows, again.progress.replayed) == (0, 0)


def test_a_row_that_fails_again_stays_with_its_new_reason_until_it_passes(
    native: Environment, config: IcebergSinkConfig, catalog: SqlCatalog, rows: Rows, tmp_path: Path
) -> None:
    write_lines(tmp_path, *LINES)
    sink = IcebergSink(config.with_dead_letter("bad"))
    orders(native, tmp_path).to_sink(sink).execute("orders")
    strict = orders(native, tmp_path, "id long, price string").with_column("price", col("price").cast("double"))
    job = strict.to_sink(sink).replay("orders")
    assert (job.progress.replayed, job.progress.rejected, job.metrics.records_failed) == (1, 1, 1)
    done, failed = letters(catalog)
    assert (done["replayed"] is None, failed["replayed"]) == (False, None)
    assert (failed["payload"], failed["epoch"], failed["job"]) == (LINES[1], 0, "orders")
    assert failed["position"].endswith("0.json, line 2")
    assert (failed["step"], failed["column"]) == ("with_column 'price' = col('price').cast('double')", "price")
    assert "n/a" in failed["error"]
    assert mended(orders(native, tmp_path, "id long, price string")).to_sink(sink).replay("orders").progress.rows == 1
    assert sorted(row["id"] for row in rows()) == [1, 2, 3, 4]
    assert all(letter["replayed"] for letter in letters(catalog))


def test_a_row_gets_only_to_the_sinks_that_lack_it(
    native: Environment, config: IcebergSinkConfig, catalog: SqlCatalog, tmp_path: Path
) -> None:
    write_lines(tmp_path, '{"id": 1}', '{"id": 5000000000}', '{"id": "x"}')
    wide = IcebergSinkConfig(namespace="db", table="wide", storage=config.storage)

    def pipelines(schema: str, small: Expr) -> list[Pipeline]:
        read = orders(native, tmp_path, schema).with_column("id", col("id").try_cast("long"))
        narrow = read.with_column("small", small.cast("string"))
        return [read.to_sink(IcebergSink(wide), "bad"), narrow.to_sink(IcebergSink(config), "bad")]

    def ids(table: str) -> list[Any]:
        return sorted(catalog.load_table(table).scan().to_arrow()["id"].to_pylist(), key=str)

    native.execute("orders", *pipelines("id long", col("id").cast("int")))
    named = {letter["payload"]: json.loads(letter["sinks"]) for letter in letters(catalog)}
    assert named == {'{"id": 5000000000}': ["db.events"], '{"id": "x"}': ["db.wide", "db.events"]}
    assert (ids("db.wide"), ids("db.events")) == ([1, 5_000_000_000], [1])
    native.replay("orders", *pipelines("id long", col("id")))
    assert (ids("db.wide"), ids("db.events")) == ([1, 5_000_000_000], [1, 5_000_000_000])
    native.replay("orders", *pipelines("id string", col("id")))
    assert ids("db.wide") == ids("db.events") == [1, 5_000_000_000, None]
    assert all(letter["replayed"] for letter in letters(catalog))


EVERY = (
    "flag boolean, small int, id long, ratio double, part float, price decimal(20,3), name string, day date, "
    "at timestamp, local timestamp_ntz, clock time, code binary, tags list<string>, place struct<city: string, no: int>"
)


def test_values_of_every_type_come_back_from_a_payload(
    native: Environment, config: IcebergSinkConfig, catalog: SqlCatalog, tmp_path: Path
) -> None:
    row = {
        **{"flag": True, "small": -5, "id": 2**62 + 1, "ratio": 0.1 + 0.2, "part": 1.5, "code": b"bytes"},
        **{"price": Decimal("12345678901234567.125"), "name": "Grüße \"'\\", "day": date(1912, 6, 23)},
        **{"at": datetime(2026, 11, 1, 9, 30, 0, 123456, tzinfo=UTC), "local": datetime(1, 2, 3, 4, 5, 6, 7)},
        **{"clock": time(23, 59, 59, 999999), "tags": ["a", None, "b"], "place": {"city": "Oslo", "no": None}},
    }
    other = {**dict.fromkeys(row), "id": 1, "ratio": float("nan")}
    lost = {**row, "id": 2, "code": b"\xff"}
    sink = IcebergSink(config.with_dead_letter("bad"))
    native.from_source(MemorySource([row, other, lost], EVERY)).map(refuse).to_sink(sink).execute("a")
    assert [letter["format"] for letter in letters(catalog)].count("text") == 1
    job = native.from_source(MemorySource([], EVERY)).to_sink(sink).replay("a")
    assert (job.progress.replayed, job.progress.rejected) == (2, 0)
    back = catalog.load_table("db.events").scan().to_arrow().sort_by("id").to_pylist()
    assert back[1] == row
    assert math.isnan(back[0].pop("ratio"))
    assert back[0] == {name: value for name, value in other.items() if name != "ratio"}


def refuse(row: dict[str, Any]) -> dict[str, Any]:
    raise ValueError("not today")


def test_lines_of_csv_are_read_with_the_header_of_their_file(
    native: Environment, config: IcebergSinkConfig, catalog: SqlCatalog, rows: Rows, tmp_path: Path
) -> None:
    write_lines(tmp_path, "price;id", "1,50;1", "n/a;2", "2,25;x", name="a.csv")
    options = {"delimiter": ";", "decimal_point": ","}
    sink = IcebergSink(config.with_dead_letter("bad"))

    def read(schema: str, **more: Any) -> DataStream:
        source = FileSource(tmp_path / "in", "csv", schema, options={**options, **more})
        return native.from_source(source)

    read("id long, price double").to_sink(sink).execute("orders")
    assert rows() == [{"id": 1, "price": 1.5}]
    job = read("id long, price double", null_values=["n/a"]).to_sink(sink).replay("orders")
    assert (job.progress.replayed, job.progress.rejected) == (1, 1)
    assert sorted(rows(), key=lambda row: row["id"]) == [{"id": 1, "price": 1.5}, {"id": 2, "price": None}]
    (kept,) = [letter for letter in letters(catalog) if letter["replayed"] is None]
    assert (kept["payload"], kept["column"]) == ("2,25;x", "id")


def test_letters_of_an_earlier_release_and_of_another_job_and_lost_ones(
    native: Environment, config: IcebergSinkConfig, catalog: SqlCatalog, rows: Rows, tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    names = ("payload", "error", "position", "epoch", "job")
    fields = [NestedField(n, name, LongType() if name == "epoch" else StringType()) for n, name in enumerate(names, 1)]
    old = [
        ('{"id": 7}', "not today", "0.json, line 1", 0, "orders"),
        ('{"id": 8}', "not today", "0.json, line 2", 0, "others"),
        ("id;price", "not JSON", "0.json, line 3", 0, "orders"),
    ]
    catalog.create_namespace("db")
    table = pa.Table.from_pylist([dict(zip(names, letter, strict=True)) for letter in old])
    catalog.create_table("db.bad", Schema(*fields)).append(table)
    write_lines(tmp_path, '{"id": 1}')
    sink = IcebergSink(config.with_dead_letter("bad"))
    with caplog.at_level(logging.WARNING, "volley"):
        job = orders(native, tmp_path, "id long").to_sink(sink).replay("orders")
    assert rows() == [{"id": 7}]
    assert job.progress.replayed == 1
    assert [(each["payload"], each["replayed"] is not None) for each in letters(catalog)] == [
        ("id;price", False), ('{"id": 7}', True), ('{"id": 8}', False),
    ]  # fmt: skip
    assert "orders.replay: 1 dead letters can't be read again" in caplog.text


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda read, sink: read.to_sink(sink), "no dead letter"),
        (lambda read, sink: read.to_sink(sink, FileSink("bad")), "can't be marked"),
        (lambda read, sink: read.to_sink(sink, "bad").to_sink(MemorySink(), MemorySink("b")), "2 dead letters"),
        (lambda read, sink: read.deduplicate("id").to_sink(sink, "bad"), "its state has moved on"),
        (
            lambda read, sink: read.to_sink(IcebergSink(sink.config.with_commit_mode(Overwrite())), "bad"),
            "replace the rows",
        ),
        (
            lambda read, sink: read.to_sink(MemorySink("a"), sink.dead_letter_at("bad")).to_sink(
                MemorySink("a"), sink.dead_letter_at("bad")
            ),
            "two sinks named",
        ),
    ],
    ids=["no dead letter", "files", "two", "state", "overwrite", "one name"],
)
def test_what_can_not_be_replayed_is_refused_before_anything_starts(
    made: Callable[[DataStream, IcebergSink], Pipeline], message: str, config: IcebergSinkConfig, tmp_path: Path
) -> None:
    environment = Environment(checkpoint_dir=str(tmp_path))
    pipeline = made(orders(environment, tmp_path, "id long"), IcebergSink(config))
    write_lines(tmp_path, '{"id": 1}')
    with pytest.raises(PlanError, match=message) as caught:
        pipeline.replay("orders")
    assert caught.value.hint


def test_a_replay_needs_a_schema_and_takes_no_option_to_start_over(config: IcebergSinkConfig, tmp_path: Path) -> None:
    write_lines(tmp_path, '{"id": 1}')
    environment = Environment(checkpoint_dir=str(tmp_path))
    sink = IcebergSink(config.with_dead_letter("bad"))
    with pytest.raises(ConfigError, match="needs the schema"):
        environment.from_source(FileSource(tmp_path / "in", "json")).to_sink(sink).replay("orders")
    with pytest.raises(ConfigError, match="no option 'fresh'"):
        orders(environment, tmp_path).to_sink(sink).replay("orders", fresh=True)


def test_a_window_is_refused(config: IcebergSinkConfig, tmp_path: Path) -> None:
    write_lines(tmp_path, '{"id": 1}')
    environment = Environment(checkpoint_dir=str(tmp_path))
    window = orders(environment, tmp_path, "id long, at timestamp").key_by("id").window(tumbling("1m"), on="at")
    with pytest.raises(PlanError, match="state has moved on"):
        window.aggregate(n=count()).to_sink(IcebergSink(config), "bad").replay("orders")
