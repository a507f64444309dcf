"""An error of a start that comes from a file of pipelines names its place there, and `volley run` exits with 78."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from volley.cli.app import app

# Most mistakes are found once Spark has started: on the session of all tests.
pytestmark = pytest.mark.usefixtures("spark")

# The files tell the columns, at the start: the settings declare none.
HEAD = """
sources:
  events:
    connector: files
    config: {{path: in/*.json}}
  others:
    connector: files
    config: {{path: others/*.json}}
  table:
    connector: iceberg
    config: {{local: {{path: lake}}, namespace: db, table: missing}}
sinks:
  out:
    connector: console
  lake:
    connector: iceberg
    config: {{local: {{path: lake}}, namespace: db, table: t, {settings}}}
"""
STEPS = (
    HEAD + "pipelines:\n  show:\n    source: events\n    restart: never\n    sink: {sink}\n    steps:\n      - {step}\n"
)
VIEW = HEAD + "views:\n  v:\n    source: table\n    sink: lake\n    steps:\n      - {step}\n"

# A step, the sink, its settings; the place, what is wrong, the exit code.
WRONG = {
    "filter": ("filter: note = 1", "out", "", "23:17: unknown column 'note'", 78),
    "type": ('with_column: {x: "upper(id)"}', "out", "", "23:22: col('id').str.upper() takes a string", 78),
    "select": ("select: [id, note]", "out", "", "23:17: unknown column 'note'", 78),
    "rename": ("rename: {note: x}", "out", "", "23:17: rename: unknown column 'note'", 78),
    "explode": ("explode: id", "out", "", "23:18: explode takes a list", 78),
    "sort": ("sort_within_epoch: [note]", "out", "", "23:28: there is no column 'note'", 78),
    "window": (
        "window: {keys: [id], on: v, tumbling: 1m, aggregate: {n: count}}",
        "out",
        "",
        "23:17: window on 'v'",
        78,
    ),
    "series": ("series: {keys: [id], on: note, columns: {p: {previous: v}}}", "out", "", "23:17: series on the un", 78),
    "order": ("order_by: {keys: [id], order: [note], columns: {p: rank}}", "out", "", "23:19: there is no colu", 78),
    "join": ("join: {table: table, on: id}", "out", "", "23:15: table db.missing not found", 1),
    "stream": ("join: {stream: others, on: w, within: 1m, time: at}", "out", "", "23:15: join: the stream has no", 78),
    "union": ("union: [others]", "out", "", "23:16: union of streams with different columns", 78),
    "partitions": ("drop: [v]", "lake", "partitioning: ['day(v)']", "15:5: partition field day(v): the stream has", 78),
    "keys": ("drop: [v]", "lake", "commit_mode: upsert, key_fields: [v]", "15:5: upsert by unknown column 'v'", 78),
    "route": ("drop: [v]", "lake", "route: {table: 'db.{v}'}", "15:5: unknown column 'v'", 78),
    "no table": ("drop: [v]", "lake", "create_table: false", "15:5: table db.t not found", 1),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    # No start comes that far.
    monkeypatch.setattr("volley.environment.Environment._begin_jvm", lambda *_: None)
    for name, row in {"in": {"id": 1, "v": 1.5}, "others": {"id": 1, "w": 1.5}}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.json").write_text(json.dumps(row))
    return tmp_path


def run(folder: Path, text: str) -> tuple[int, str]:
    (folder / "volley.yaml").write_text(text.lstrip("\n"))
    ran = CliRunner().invoke(app, ["run", "--once"])
    return ran.exit_code, ran.output


@pytest.mark.parametrize("name", WRONG)
def test_a_start_error_names_its_place(name: str, folder: Path) -> None:
    step, sink, settings, message, code = WRONG[name]
    ran, output = run(folder, STEPS.format(step=step, sink=sink, settings=settings).replace(", }", "}"))
    assert f"show: volley.yaml:{message}" in output
    assert ran == code


def test_a_source_that_is_not_there_names_its_place(folder: Path) -> None:
    (folder / "in" / "1.json").unlink()
    (folder / "in").rmdir()
    ran, output = run(folder, STEPS.format(step="drop: [v]", sink="out", settings="").replace(", }", "}"))
    assert "show: volley.yaml:3:5: " in output
    assert ran == 69


def test_a_view_names_its_place(folder: Path) -> None:
    ran, output = run(folder, VIEW.format(step="filter: note = 1", settings="").replace(", }", "}"))
    assert "v: volley.yaml:9:5: table db.missing not found" in output
    assert ran == 1
