"""Columns that nobody declared, through Spark into a table: they and the rows are the same however files are cut."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.table import Table

from tests.properties.test_inferred import Stream, read
from tests.servers.process import free_ports
from tests.tiers import nightly
from tests.waiting import wait_while_it_runs
from tests.webhooks.hooks import request
from volley import (
    Contract,
    Environment,
    FileSource,
    IcebergSink,
    IcebergSinkConfig,
    MemorySink,
    SourceError,
    WebhookSource,
    col,
)
from volley.types.arrow import arrow_schema


def write(folder: Path, name: str, objects: Sequence[Any]) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("".join(json.dumps(each) + "\n" for each in objects))


def by_order(rows: pa.Table) -> list[dict[str, Any]]:
    return [*rows.sort_by("line").drop_columns("line").to_pylist()]


@pytest.mark.parametrize("seed", [1, *map(nightly, range(2, 8))])
def test_a_table_is_the_same_however_files_and_epochs_are_cut(
    environment: Environment, tmp_path: Path, config: IcebergSinkConfig, load: Callable[[], Table], seed: int
) -> None:
    """Each run is a restart, and finds some files more, of which each epoch reads some."""
    stream, cuts = Stream(seed), random.Random(seed)
    folder, objects = tmp_path / "in", [{"line": line, **each} for line, each in enumerate(stream.objects)]
    source = FileSource(folder, format="json", schema="infer", max_files_per_epoch=cuts.randrange(1, 4))
    written = files = 0
    while written < len(objects):
        for _ in range(cuts.randrange(1, 4)):
            end = min(len(objects), written + cuts.randrange(1, 12))
            if written < end:
                write(folder, f"{files:03}.json", objects[written:end])
            written, files = end, files + 1
        environment.from_source(source).to_sink(IcebergSink(config)).execute("inferred")
    texts = [json.dumps(each).encode() for each in objects]
    columns, rows = read(texts, [], "infer")
    expected = [{name: value for name, value in row.items() if name != "line"} for row in rows]
    table = load().scan().to_arrow()
    assert {field.name: field.type for field in table.schema} == {
        **{field.name: field.type for field in columns.schema},
        "rescued": pa.string(),
    }
    names = expected[0].keys()
    assert [{name: row[name] for name in names} for row in by_order(table)] == expected


def test_new_fields_become_columns_and_the_rest_is_rescued(
    environment: Environment, tmp_path: Path, config: IcebergSinkConfig, load: Callable[[], Table]
) -> None:
    folder = tmp_path / "in"
    write(folder, "1.json", [{"id": 1, "tags": [], "seen": None}, {"id": 2, "price": 1.5}])
    write(folder, "2.json", [{"id": "three", "tags": ["a"]}, {"id": 4, "address": {"city": "Sète"}}])
    source = FileSource(folder, format="json", schema="infer", max_files_per_epoch=1)
    # The column is known from the first file on.
    stream = environment.from_source(source).with_column("twice", col("id") * 2)
    job = stream.to_sink(IcebergSink(config)).execute("shop")
    assert (job.progress.epochs, job.metrics.restarts, job.metrics.values_rescued) == (2, 0, 1)
    write(folder, "3.json", [{"id": 5, "address": {"zip": 34200}}])
    stream.to_sink(IcebergSink(config)).execute("shop")
    rows = duckdb.sql(f"from iceberg_scan('{load().metadata_location}') order by id nulls last").fetchall()
    names = [field.name for field in load().schema().fields]
    assert names == ["id", "price", "rescued", "twice", "tags", "address"]
    assert rows == [
        (1, None, None, 2, None, None),
        (2, 1.5, None, 4, None, None),
        (4, None, None, 8, None, {"city": "Sète", "zip": None}),
        (5, None, None, 10, None, {"city": None, "zip": 34200}),
        (None, None, '{"id": "three"}', None, ["a"], None),
    ]


def test_rows_are_shown_with_the_columns_that_they_have(tmp_path: Path) -> None:
    write(tmp_path / "in", "1.json", [{"id": 1}])
    write(tmp_path / "in", "2.json", [{"id": 2, "at": "2026-01-01"}])
    source = FileSource(tmp_path / "in", format="json", schema="infer", max_files_per_epoch=1)
    assert Environment().from_source(source).to_arrow().to_pylist() == [
        {"id": 1, "at": None, "rescued": None},
        {"id": 2, "at": "2026-01-01", "rescued": None},
    ]


def test_a_number_that_fits_its_column_widens_nothing(tmp_path: Path) -> None:
    """Whatever else its object has, or those beside it: the columns would depend on the cut."""
    schema = "id int, in struct<x: int>, many array<int>, price decimal(5,2)"
    rows = [{"id": 1, "in": {"x": -(2**31)}, "many": [2**31 - 1], "price": 1, "new": 7}, {"id": "x"}, {"price": 1000}]
    write(tmp_path / "in", "1.json", rows)
    source = FileSource(tmp_path / "in", format="json", schema=schema, on_unknown=Contract(types="evolve"))
    columns = Environment().from_source(source).to_arrow().schema
    wanted = arrow_schema(f"{schema.replace('5,2', '6,2')}, new long, rescued string")
    assert [(field.name, field.type) for field in columns] == [(field.name, field.type) for field in wanted]


def test_a_contract_for_each_column(environment: Environment, tmp_path: Path) -> None:
    rows = [
        {"id": 1, "amount": "1.20", "debug": {"a": 1}, "note": "x"},
        {"id": 2**40, "amount": "n/a", "city": "Sète"},
        {"id": 3, "amount": "1.20", "note": 7},
    ]
    write(tmp_path / "in", "1.json", rows)
    contract = Contract(types="evolve", columns={"amount": "fail", "debug": "drop", "note": "rescue"})
    source = FileSource(tmp_path / "in", format="json", schema="id int, amount decimal(6,2)", on_unknown=contract)
    good, bad = MemorySink("good"), MemorySink("bad")
    job = environment.from_source(source).to_sink(good, dead_letter=bad).execute("contract")
    assert [(row["id"], str(row["amount"]), row["rescued"]) for row in good.rows()] == [
        (1, "1.20", '{"note": "x"}'),
        (3, "1.20", '{"note": 7}'),
    ]
    (letter,) = bad.rows()
    assert letter["column"] == "amount"
    assert letter["position"].endswith("1.json, line 2")
    assert (job.metrics.values_dropped, job.metrics.values_rescued) == (1, 2)
    with pytest.raises(SourceError, match=r"1\.json, line 2.*amount"):
        environment.from_source(source).to_sink(MemorySink("strict")).execute("strict")


def test_folders_are_columns_of_texts(environment: Environment, tmp_path: Path) -> None:
    for day in ("01", "02"):
        (tmp_path / "in" / f"day=2026-01-{day}").mkdir(parents=True)
        write(tmp_path / "in" / f"day=2026-01-{day}", "1.json", [{"id": int(day)}])
    sink = MemorySink("days")
    source = FileSource(tmp_path / "in", format="json", schema="infer")
    environment.from_source(source).to_sink(sink).execute("days")
    assert sorted((row["id"], row["day"]) for row in sink.rows()) == [(1, "2026-01-01"), (2, "2026-01-02")]


def test_requests_of_a_webhook(environment: Environment, config: IcebergSinkConfig, load: Callable[[], Table]) -> None:
    (port,) = free_ports(1)
    stream = environment.from_source(WebhookSource(port, schema="infer", include=["received_at"]))
    ids = [1, 2, 3, 4]

    def has(number: int) -> bool:
        return job.progress.epochs > 0 and len(load().scan().to_arrow()) == number

    for run in range(2):
        with stream.to_sink(IcebergSink(config.with_flush_interval("100ms"))).start("hooks") as job:
            for number in ids[run * 2 : run * 2 + 2]:
                more = {"http_received_at": 1, "action": "opened"} if number % 2 else {"size": number}
                assert request(port, {"id": number, **more}).status == 202
                wait_while_it_runs(job, partial(has, number), f"row {number}")
            assert request(port, b"[1]").status == 400
    rows = load().scan().to_arrow().sort_by("id").to_pylist()
    assert [(row["id"], row["action"], row["size"], row["rescued"]) for row in rows] == [
        (number, "opened" if number % 2 else None, None if number % 2 else number, rest)
        for number, rest in zip(ids, ['{"http_received_at": 1}', None] * 2, strict=True)
    ]


def test_what_needs_the_same_columns_in_all_rows_refuses_them(environment: Environment, tmp_path: Path) -> None:
    write(tmp_path / "in", "1.json", [{"id": 1}])
    source = FileSource(tmp_path / "in", format="json", schema="infer")
    stream = environment.from_source(FileSource(tmp_path / "in", format="json", schema="id long"))
    with pytest.raises(Exception, match="can't have columns that evolve"):
        stream.join(source, on="id").to_sink(MemorySink("joined")).execute("joined")
    with pytest.raises(Exception, match="can't have columns that evolve"):
        environment.changes_from_snapshots(source, ["id"]).to_sink(MemorySink("changes")).execute("changes")
