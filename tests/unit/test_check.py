"""`volley check` without a server: what a file alone tells, and who is to blame for a look that took too long."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from textwrap import dedent

import pytest
from pyspark.sql.connect.session import SparkSession as ConnectSession
from typer.testing import CliRunner

from volley import ConfigError, Environment
from volley.cli.app import app
from volley.cli.check import _PartRun
from volley.probes import Probe

SOURCE = 'sources: {events: {connector: files, config: {path: nowhere, format: json, schema: "id long, name string"}}}'


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ("[{drop: [note]}]", "unknown column 'note' (pipelines.show)"),
        ('[{filter: "note = 1"}]', "unknown column 'note' (pipelines.show)"),
        ('[{with_column: {x: "upper(id)"}}]', "takes a string, not long (pipelines.show)"),
        ("[{drop: [name]}, {select: [name]}]", "unknown column 'name' (pipelines.show)"),
        ("[{drop: [name]}]", None),
    ],
)
def test_steps_are_checked_against_declared_columns_offline(steps: str, message: str | None, tmp_path: Path) -> None:
    file = tmp_path / "volley.yaml"
    file.write_text(f"{SOURCE}\nsinks: {{out: {{connector: console}}}}\n")
    with file.open("a") as text:
        text.write(f"pipelines: {{show: {{source: events, sink: out, steps: {steps}}}}}\n")
    ran = CliRunner().invoke(app, ["check", "-c", str(file), "--offline"])
    assert ran.exit_code == (78 if message else 0), ran.output
    assert (message or "no mistakes") in ran.output


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("table: t, commit_mode: upsert, key_fields: [note]", "upsert by unknown column 'note' (pipelines.show)"),
        ("table: t, commit_mode: upsert, key_fields: [id], order_by: at", "unknown column 'at' (pipelines.show)"),
        ("table: t, route: {table: 'db.{kind}'}", "unknown column 'kind' (pipelines.show)"),
        ("table: t, commit_mode: upsert, key_fields: [id]", None),
        ("table: t, route: {table: 'db.{name}'}", None),
    ],
)
def test_sinks_are_checked_against_declared_columns_offline(settings: str, message: str | None, tmp_path: Path) -> None:
    file = tmp_path / "volley.yaml"
    sink = f"{{connector: iceberg, config: {{local: {{path: '{tmp_path}/lake'}}, namespace: db, {settings}}}}}"
    file.write_text(f"{SOURCE}\nsinks: {{out: {sink}}}\npipelines: {{show: {{source: events, sink: out}}}}\n")
    ran = CliRunner().invoke(app, ["check", "-c", str(file), "--offline"])
    assert ran.exit_code == (78 if message else 0), ran.output
    assert (message or "no mistakes") in ran.output
    assert not (tmp_path / "lake").exists()


def test_columns_that_only_the_files_tell_are_not_checked_offline(tmp_path: Path) -> None:
    file = tmp_path / "volley.yaml"
    file.write_text(
        dedent("""
        sources: {events: {connector: files, config: {path: nowhere, format: json}}}
        sinks: {out: {connector: console}}
        pipelines: {show: {source: events, sink: out, steps: [{drop: [note]}]}}
        """)
    )
    ran = CliRunner().invoke(app, ["check", "-c", str(file), "--offline"])
    assert ran.exit_code == 0, ran.output


def test_a_look_that_did_not_begin_does_not_blame_the_network() -> None:
    gate, begun = threading.Event(), threading.Event()

    def hang() -> str:
        begun.set()
        gate.wait(60)
        return "late"

    slow = _PartRun("source a", [Probe("brokers", hang)])
    assert begun.wait(60)
    (late,) = slow.findings(time.monotonic())
    assert (late.status, late.detail) == ("failed", "no answer in time")
    assert "whether this machine is busy" in str(late.hint)
    assert late.seconds > 0
    gate.set()


def test_a_look_that_never_began_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    # As where the CPU is so busy that the thread has not begun yet.
    monkeypatch.setattr(threading.Thread, "start", lambda thread: None)
    (finding,) = _PartRun("source a", [Probe("brokers", lambda: "fine")]).findings(time.monotonic())
    assert (finding.status, finding.detail) == ("failed", "not looked at in time")
    assert "network" not in str(finding.hint)


def test_a_session_of_spark_connect_is_refused_as_what_it_is() -> None:
    session = object.__new__(ConnectSession)
    with pytest.raises(ConfigError, match="Spark Connect"):
        Environment(spark=session)  # type: ignore[arg-type]
