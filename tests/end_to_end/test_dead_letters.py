"""Bad rows from files through Spark: the good ones are in the table, the bad ones in the dead letter, each once."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from volley import (
    Environment,
    FileSource,
    IcebergSink,
    IcebergSinkConfig,
    Job,
    JobError,
    SchemaMismatchError,
    SourceError,
)

COLUMNS = {"payload": "VARCHAR", "error": "VARCHAR", "position": "VARCHAR", "epoch": "BIGINT", "job": "VARCHAR"}
TOLD_SINCE_0_3 = ("time", "step", "column", "source", "format", "sinks", "replayed")

Rows = Callable[[], list[dict[str, Any]]]


@pytest.fixture
def catalog(tmp_path: Path) -> SqlCatalog:
    """Plain pyiceberg on the same lake, with a table that requires an id."""
    (tmp_path / "lake").mkdir()
    found = SqlCatalog("volley", uri=f"sqlite:///{tmp_path}/lake/catalog.db", warehouse=f"file://{tmp_path}/lake")
    found.create_namespace("db")
    found.create_table("db.events", Schema(NestedField(1, "id", LongType(), required=True)))
    return found


def write_input(folder: Path) -> None:
    """Two files, two epochs: a line that is no JSON, a null in the required column, one a function fails on."""
    (folder / "in").mkdir()
    (folder / "in" / "0.json").write_text('{"id": 1}\nbroken\n{"id": null}\n{"id": 4}\n')
    (folder / "in" / "1.json").write_text('{"id": 5}\n{"id": 13}\n{"id": "x"}\n{"id": 8}')


def unlucky(row: dict[str, Any]) -> dict[str, Any]:
    if row["id"] == 13:
        raise ValueError("thirteen")
    return row


def run(environment: Environment, config: IcebergSinkConfig, folder: Path) -> Job:
    source = FileSource(folder / "in", format="json", schema="id long", max_files_per_epoch=1)
    return environment.from_source(source).map(unlucky).to_sink(IcebergSink(config)).execute("letters")


EXPECTED = [
    ("broken", "0.json, line 2", 0),
    ('{"id": null}', "0.json, line 3", 0),
    ('{"id": 13}', "1.json, line 2", 1),
    ('{"id": "x"}', "1.json, line 3", 1),
]


def told(letters: list[dict[str, Any]]) -> list[tuple[str, str, int]]:
    """Dead letters as payload, file and line, and epoch; in order."""
    assert {row["job"] for row in letters} == {"letters"}
    assert all(row["error"] for row in letters)
    found = [(row["payload"], row["position"].rpartition("/")[2], row["epoch"]) for row in letters]
    return sorted(found, key=lambda letter: letter[1])


def test_bad_rows_go_to_a_table(
    native: Environment,
    config: IcebergSinkConfig,
    catalog: SqlCatalog,
    rows: Rows,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    write_input(tmp_path)
    with caplog.at_level(logging.WARNING, "volley"):
        job = run(native, config.with_dead_letter("bad"), tmp_path)
    assert rows() == [{"id": 1}, {"id": 4}, {"id": 5}, {"id": 8}]
    table = catalog.load_table("db.bad")
    assert told(table.scan().to_arrow().to_pylist()) == EXPECTED
    assert [snapshot.summary["volley.epoch"] for snapshot in table.snapshots() if snapshot.summary] == ["0", "1"]
    assert (job.progress.rows, job.progress.rejected) == (4, 4)
    assert (job.metrics.records_written, job.metrics.records_failed) == (4, 4)
    warned = [record.getMessage() for record in caplog.records if "bad rows" in record.getMessage()]
    assert warned == [f"letters: 2 bad rows of epoch {epoch} are in table db.bad" for epoch in (0, 1)]


def test_a_table_of_an_earlier_release_is_continued(
    native: Environment, config: IcebergSinkConfig, catalog: SqlCatalog, tmp_path: Path
) -> None:
    fields = [
        NestedField(n, name, LongType() if name == "epoch" else StringType()) for n, name in enumerate(COLUMNS, 1)
    ]
    old = {"payload": "{", "error": "not JSON", "position": "0.json, line 1", "epoch": 7, "job": "letters"}
    catalog.create_table("db.bad", Schema(*fields)).append(pa.Table.from_pylist([old]))
    write_input(tmp_path)
    began = datetime.now(UTC)
    run(native, config.with_dead_letter("bad"), tmp_path)
    letters = catalog.load_table("db.bad").scan().to_arrow().to_pylist()
    (kept,) = [row for row in letters if row["epoch"] == 7]
    assert kept == {**old, **dict.fromkeys(TOLD_SINCE_0_3)}
    new = sorted((row for row in letters if row["epoch"] != 7), key=lambda row: str(row["position"]))
    assert told(new) == EXPECTED
    assert all(began <= row["time"] <= datetime.now(UTC) for row in new)
    assert [row["step"].partition(" ")[0] for row in new] == ["read", "write", "map", "read"]
    assert [row["column"] for row in new] == [None, "id", None, "id"]
    assert {row["source"] for row in new} == {f"files:json:{tmp_path}/in"}
    assert {row["sinks"] for row in new} == {'["db.events"]'}


def test_bad_rows_go_to_a_folder_and_the_next_run_goes_on_behind_them(
    native: Environment, config: IcebergSinkConfig, catalog: SqlCatalog, rows: Rows, tmp_path: Path
) -> None:
    write_input(tmp_path)
    run(native, config.with_dead_letter(f"{tmp_path}/dead"), tmp_path)
    (tmp_path / "in" / "2.json").write_text('{"id": 9}\n{}\n')
    job = run(native, config.with_dead_letter(f"{tmp_path}/dead"), tmp_path)
    assert rows() == [{"id": 1}, {"id": 4}, {"id": 5}, {"id": 8}, {"id": 9}]
    found = duckdb.sql(f"SELECT * FROM read_json('{tmp_path}/dead/*.json', columns={COLUMNS})").fetchall()
    letters = [dict(zip(COLUMNS, row, strict=True)) for row in found]
    assert told(letters) == [*EXPECTED, ('{"id": null}', "2.json, line 2", 2)]
    assert (job.progress.rows, job.progress.rejected) == (1, 1)


def test_without_bad_rows_the_dead_letter_stays_empty(
    native: Environment, config: IcebergSinkConfig, catalog: SqlCatalog, rows: Rows, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.json").write_text('{"id": 1}\n')
    job = run(native, config.with_dead_letter("letters.bad"), tmp_path)
    assert rows() == [{"id": 1}]
    assert catalog.load_table("letters.bad").scan().to_arrow().num_rows == 0
    assert job.progress.rejected == job.metrics.records_failed == 0


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ('{"id": 1}\nbroken\n', SourceError, r"0\.json, line 2: not JSON"),
        ('{"id": 1}\n{"id": 13}\n', JobError, r"map unlucky failed on the row {'id': 13}"),
    ],
)
def test_without_a_dead_letter_the_job_stops_and_names_the_row(
    text: str,
    error: type[Exception],
    message: str,
    environment: Environment,
    config: IcebergSinkConfig,
    tmp_path: Path,
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.json").write_text(text)
    with pytest.raises(error, match=message):
        run(environment, config, tmp_path)


def test_without_a_dead_letter_a_required_column_is_refused_before_anything_starts(
    native: Environment, config: IcebergSinkConfig, catalog: SqlCatalog, tmp_path: Path
) -> None:
    write_input(tmp_path)
    with pytest.raises(SchemaMismatchError, match="'id': the table requires a value"):
        run(native, config, tmp_path)


def test_the_status_has_the_last_letters_cut_and_without_secrets(
    native: Environment, config: IcebergSinkConfig, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    lines = [
        json.dumps({"id": f"number {number}", "password": "hunter2222", "note": "x" * 500}) for number in range(30)
    ]
    (tmp_path / "in" / "0.json").write_text("\n".join([*lines, '{"id": 1}', ""]))
    source = FileSource(tmp_path / "in", "json", "id long, password string, note string")
    job = native.from_source(source).to_sink(IcebergSink(config), "bad").execute("last")
    told = json.loads(job.status().to_json())["letters"]
    assert [letter["position"].rpartition(", ")[2] for letter in told] == [f"line {number}" for number in range(26, 31)]
    for letter in told:
        assert letter["payload"].startswith('{"id": "number 2')
        assert "hunter" not in letter["payload"]
        assert '"password": "***"' in letter["payload"]
        assert len(letter["payload"]) == 300
        assert (letter["column"], letter["epoch"], letter["source"]) == ("id", 0, source.identity)
        assert letter["step"].startswith("read FileSource")
        assert datetime.fromisoformat(letter["time"]) <= datetime.now(UTC)
    # The table has all of them whole.
    payloads = IcebergSink(replace(config, table="bad")).to_arrow()["payload"].to_pylist()
    assert sorted(payloads) == sorted(lines)
