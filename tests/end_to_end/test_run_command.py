"""`volley run` with its options, in this process and on the tests' session: each option does what its help says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession
from typer.testing import CliRunner, Result

from volley.cli.app import app

TEXT = """
sources:
  orders: {connector: files, config: {path: orders, format: json, schema: id long}}
sinks:
  lake: {connector: iceberg, config: {namespace: db, table: orders, local: {path: lake}}}
  other: {connector: iceberg, config: {namespace: db, table: other, local: {path: lake}}}
  third: {connector: iceberg, config: {namespace: db, table: third, local: {path: lake}}}
pipelines:
  orders: {source: orders, sinks: [lake]}
  copies: {source: orders, sink: third, steps: [{with_columns: {twice: id * 2}}]}
"""


@pytest.fixture
def project(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "volley.yaml").write_text(TEXT)
    (tmp_path / "orders").mkdir()
    (tmp_path / "orders" / "1.json").write_text("".join(json.dumps({"id": number}) + "\n" for number in (1, 2)))
    return tmp_path


def run(*options: str) -> Result:
    return CliRunner().invoke(app, ["run", *options])


def ids(folder: Path, table: str) -> list[Any]:
    catalog = SqlCatalog("volley", uri=f"sqlite:///{folder}/lake/catalog.db")
    return sorted(catalog.load_table(f"db.{table}").scan().to_arrow()["id"].to_pylist())


def test_starting_over_and_filling_a_new_sink(project: Path) -> None:
    assert run("-p", "orders").exit_code == 0
    assert ids(project, "orders") == [1, 2]

    again = run("-p", "orders", "--fresh")
    assert again.exit_code == 1
    assert "orders: " in again.stderr
    assert "empty the target first: --into replace; or keep its rows: --into append" in again.stderr
    assert run("-p", "orders", "--fresh", "--into", "replace").exit_code == 0
    assert ids(project, "orders") == [1, 2]
    assert run("-p", "orders", "--fresh", "--into", "append").exit_code == 0
    assert ids(project, "orders") == [1, 1, 2, 2]

    (project / "volley.yaml").write_text(TEXT.replace("sinks: [lake]", "sinks: [lake, other]"))
    assert "backfill" in run("-p", "orders").stderr
    assert run("-p", "orders", "--backfill").exit_code == 0
    assert (ids(project, "other"), ids(project, "orders")) == ([1, 2], [1, 1, 2, 2])


def test_pipelines_share_the_cores(project: Path, spark: SparkSession) -> None:
    """Each is a job of its own, in a pool of its own of Spark's fair scheduler."""
    # More than the driver reads itself.
    rows = [{"id": number, "text": "x" * 600_000} for number in (1, 2)]
    (project / "orders" / "1.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (project / "volley.yaml").write_text(TEXT.replace("id long", "'id long, text string'"))
    ended = run()
    assert ended.exit_code == 0, ended.output
    assert "orders: finished · epoch 0 · 2 rows" in ended.stdout
    assert "copies: finished · epoch 0 · 2 rows" in ended.stdout
    assert (ids(project, "orders"), ids(project, "third")) == ([1, 2], [1, 2])
    assert spark.sparkContext.getConf().get("spark.scheduler.mode") == "FAIR"
    pools = spark.sparkContext._jsc.sc().getAllPools()
    assert {"orders", "copies"} <= {pools.apply(number).name() for number in range(pools.size())}


def test_an_unknown_value_of_into_is_told(project: Path) -> None:
    ended = run("--fresh", "--into", "replcae")
    assert (ended.exit_code, "'replcae'" in ended.stderr) == (2, True)


def test_a_table_that_another_pipeline_makes_is_waited_for(project: Path) -> None:
    copy = """
  made: {connector: iceberg, config: {namespace: db, table: orders, local: {path: lake}}}
sinks:"""
    text = TEXT.replace("\nsinks:", copy).replace("{source: orders, sink: third", "{source: made, sink: third")
    (project / "volley.yaml").write_text(text + "runtime: {backoff: 10ms, max_restarts: 200}\n")
    ended = run("--once")
    assert ended.exit_code == 0, ended.output
    assert (ids(project, "orders"), "copies: finished" in ended.stdout) == ([1, 2], True)
    # Alone, nobody makes it.
    (project / "volley.yaml").write_text(text.replace("table: orders", "table: none", 1))
    ended = run("-p", "copies", "--fresh", "--into", "append")
    assert (ended.exit_code, "db.none not found" in ended.stderr, "restart 1" in ended.stderr) == (1, True, False)


def test_dead_letters_are_replayed_once_the_file_is_mended(project: Path) -> None:
    (project / "orders" / "2.json").write_text('{"id": "3"}\n{"id": "x"}\n')
    text = TEXT.replace("sinks: [lake]", "sinks: [lake], dead_letter: bad")
    (project / "volley.yaml").write_text(text)
    assert run("-p", "orders").exit_code == 0
    assert ids(project, "orders") == [1, 2]
    texts = text.replace("schema: id long", "schema: id string")
    (project / "volley.yaml").write_text(
        texts.replace("dead_letter: bad", "dead_letter: bad, steps: [{with_columns: {id: cast(id as bigint)}}]")
    )
    ended = CliRunner().invoke(app, ["replay", "orders"])
    assert ended.exit_code == 0, ended.output
    assert "1 dead letter of 'orders' is replayed: 1 row; failed again: 1" in ended.stdout
    assert ids(project, "orders") == [1, 2, 3]
    again = CliRunner().invoke(app, ["replay", "orders"])
    assert "0 dead letters of 'orders' are replayed: 0 rows; failed again: 1" in again.stdout
    unknown = CliRunner().invoke(app, ["replay", "ordres"])
    assert (unknown.exit_code, "'orders'" in unknown.stderr) == (2, True)
