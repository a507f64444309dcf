"""`volley check` without a server: what a file alone tells, and who is to blame for a look that took too long."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from textwrap import dedent

import pytest
from pyspark.sql.connect.session import SparkSession as ConnectSession
from typer.testing import CliRunner, Result

from volley import ConfigError, Environment, MemorySink, MemorySource
from volley.cli.app import app
from volley.cli.check import _PartRun
from volley.config.steps import VERBS
from volley.contracts.reports import Probe

SOURCE = (
    'sources: {events: {connector: files, config: {path: nowhere, format: json, schema: "id long, name string"}}, '
    "names: {connector: iceberg, config: {namespace: db, table: names, local: {path: nowhere}}}}"
)


LAKE = "connector: iceberg, config: {{local: {{path: '{folder}/lake'}}, namespace: db, table: t, {settings}}}"
KAFKA = "connector: kafka, config: {{bootstrap_servers: 'nowhere:9092', topic: t, {settings}}}"

# Steps, a sink, its settings; what is wrong, and where, as the line and the column.
MISFITS = {
    "drop": ("{drop: [note]}", "", "", "4:51: drop: unknown column 'note' (pipelines.show.steps[0].drop)"),
    "filter": ('{filter: "note = 1"}', "", "", "4:53: unknown column 'note' (pipelines.show.steps[0].filter)"),
    "type": ('{with_column: {x: "upper(id)"}}', "", "", "takes a string, not long (pipelines.show.steps[0]."),
    "second": ("{drop: [name]}, {select: [name]}", "", "", "4:69: unknown column 'name' (pipelines.show.steps[1]."),
    "repartition": ("{repartition: {by: [note]}}", "", "", "unknown column 'note' (pipelines.show.steps[0]."),
    "sort": ("{sort_within_epoch: [note]}", "", "", "no column 'note' to sort by (pipelines.show.steps[0]."),
    "explode": ("{explode: name}", "", "", 'split the text before: with_column("name", col("name").str.split(","))'),
    "explode a number": ("{explode: id}", "", "", "hint: no column is a list: leave the step out"),
    "explode beside a list": (
        *("""{with_column: {x: "split(name, ',')"}}, {explode: id}""", "", ""),
        "hint: lists are 'x'",
    ),
    "deduplicate": ("{deduplicate: [note]}", "", "", "unknown column 'note' (pipelines.show.steps[0]."),
    "join": ("{join: {table: events, on: {id: key}}}", "", "", "has no column 'key' (pipelines.show.steps[0].join)"),
    "joined columns": ("{join: {table: events, on: id, columns: [note]}}", "", "", "no column 'note' (pipelines.show."),
    "joined types": ("{join: {table: events, on: {id: name}}}", "", "", "the stream's 'id' is long, the other side's"),
    "joined names": ("{join: {table: events, on: id}}", "", "", "both have a column 'name' (pipelines.show.steps[0]."),
    "after a join": ("{join: {table: events, on: id, suffix: _2}}, {drop: [note]}", "", "", "unknown column 'note'"),
    "join with a table": ("{join: {table: names, on: {note: x}}}", "", "", "the stream has no column 'note'"),
    "as of": ("{join: {table: names, on: id, as_of: [at, since]}}", "", "", "the stream has no column 'at'"),
    "keys": ("", LAKE, "commit_mode: upsert, key_fields: [note]", "'note' (sinks.out.config.key_fields)"),
    "order": ("", LAKE, "commit_mode: upsert, key_fields: [id], order_by: at", "'at' (sinks.out.config.order_by)"),
    "operation": ("", LAKE, "commit_mode: upsert, key_fields: [id], op_field: op", "'op' (sinks.out.config.op_field)"),
    "partitions": (
        *("", LAKE, "partitioning: identity, partition_fields: [note]"),
        "the stream has no column 'note' (sinks.out.config.partition_fields)",
    ),
    "partitions of a dropped column": (
        *("{drop: [name]}", LAKE, "partitioning: ['bucket[4](name)']"),
        "the stream has no column 'name' (sinks.out.config.partitioning)",
    ),
    "partition fields alone": (
        *("", LAKE, "partition_fields: [name]"),
        "partition_fields is for partitioning identity or bucket or truncate or time, not table_default (sinks.out.",
    ),
    "buckets of another strategy": (
        *("", LAKE, "partitioning: identity, partition_fields: [name], num_buckets: 4"),
        "num_buckets is for partitioning bucket, not identity (sinks.out.config.num_buckets)",
    ),
    "partition fields beside transforms": (
        *("", LAKE, "partitioning: ['bucket[4](name)'], partition_fields: [id]"),
        "not bucket[4](name) (sinks.out.config.partition_fields)",
    ),
    "partitions of a type": ("", LAKE, "partitioning: ['day(id)']", "day does not take long"),
    "route": ("", LAKE, "route: {table: 'db.{kind}'}", "unknown column 'kind' (sinks.out.config.route)"),
    "message key": ("", KAFKA, "key: note", "'note' is not in the stream (sinks.out.config.key)"),
    "message value": ("", KAFKA, "value_format: raw, value: name", "'name' (string) can't be the value"),
}
FITS = {
    "steps": ("{drop: [name]}", "", ""),
    "join": ("{join: {table: events, on: id, suffix: _2}}, {drop: [name_2]}", "", ""),
    "join with a table": ("{join: {table: names, on: id}}, {drop: [note]}", "", ""),
    "keys": ("", LAKE, "commit_mode: upsert, key_fields: [id]"),
    "route": ("", LAKE, "route: {table: 'db.{name}'}"),
    "partitions": ("", LAKE, "partitioning: ['bucket[4](name)', identity(id)]"),
    "partitions of a table that is there": ("", LAKE, "create_table: false, partitioning: ['day(note)']"),
    "message key": ("", KAFKA, "key: name"),
}


def checked(folder: Path, steps: str, sink: str, settings: str) -> Result:
    file = folder / "volley.yaml"
    out = sink.format(folder=folder, settings=settings) if sink else "connector: console"
    pipelines = f"pipelines: {{show: {{source: events, steps: [{steps}], sink: out}}}}"
    file.write_text(f"{SOURCE}\n# what gets the rows\nsinks: {{out: {{{out}}}}}\n{pipelines}\n")
    return CliRunner().invoke(app, ["check", "-c", str(file), "--offline"])


@pytest.mark.parametrize("name", MISFITS)
def test_columns_are_checked_offline_and_named_with_their_place(name: str, tmp_path: Path) -> None:
    steps, sink, settings, message = MISFITS[name]
    ran = checked(tmp_path, steps, sink, settings)
    assert ran.exit_code == 78, ran.output
    assert message in ran.output
    assert f"{tmp_path}/volley.yaml:{4 if steps and not sink else 3}:" in ran.output
    assert not (tmp_path / "lake").exists()


@pytest.mark.parametrize("verb", VERBS)
def test_a_step_without_a_value_is_a_mistake(verb: str, tmp_path: Path) -> None:
    ran = checked(tmp_path, f"{{{verb}: }}", "", "")
    assert ran.exit_code == 78, ran.output
    assert f": {verb} is empty (pipelines.show.steps[0].{verb})" in ran.output


@pytest.mark.parametrize("name", FITS)
def test_columns_that_fit_are_no_mistakes_offline(name: str, tmp_path: Path) -> None:
    ran = checked(tmp_path, *FITS[name])
    assert ran.exit_code == 0, ran.output
    assert "no mistakes" in ran.output
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


def test_an_address_of_spark_connect_is_no_master() -> None:
    with pytest.raises(ConfigError, match=r"sc://h:15002/;token=.* is an address of Spark Connect") as caught:
        Environment("sc://h:15002/;token=hush")
    assert 'master="spark://host:7077"' in str(caught.value.hint)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"), [("SPARK_REMOTE", "sc://h:15002/;token=hush"), ("SPARK_CONNECT_MODE_ENABLED", "1")]
)
def test_an_environment_for_spark_connect_is_refused_before_anything_is_written(
    name: str, value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    environment = Environment(checkpoint_dir=tmp_path / "checkpoints")
    pipeline = environment.from_source(MemorySource([{"id": 1}])).to_sink(MemorySink())
    with pytest.raises(ConfigError, match=f"by {name}=") as caught:
        environment.execute("a", pipeline)
    assert f"unset {name}" in str(caught.value.hint)
    assert "hush" not in str(caught.value)
    assert not (tmp_path / "checkpoints").exists()


def test_a_column_that_no_file_has_is_the_file_s_fault_online_too(tmp_path: Path) -> None:
    """`volley run` ends with 78 for it; something out of reach beside it is 69, as it may pass."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.json").write_text('{"id": 1}\n')
    config = tmp_path / "volley.yaml"
    text = f"""
    runtime: {{checkpoint_dir: '{tmp_path}/checkpoints'}}
    sources: {{in: {{connector: files, config: {{path: '{tmp_path}/in', format: json}}}}}}
    sinks: {{out: {{connector: console}}}}
    pipelines: {{show: {{source: in, steps: [{{drop: [nte]}}], sink: out}}}}
    """
    config.write_text(dedent(text))
    online = CliRunner().invoke(app, ["check", "-c", str(config)])
    assert (online.exit_code, "unknown column 'nte'" in online.stdout) == (78, True)
    gone = f"{{gone: {{connector: files, config: {{path: '{tmp_path}/gone', format: json}}}}, "
    config.write_text(dedent(text).replace("sources: {", f"sources: {gone}"))
    online = CliRunner().invoke(app, ["check", "-c", str(config)])
    assert (online.exit_code, "gone does not exist" in online.stdout.replace("\n", "")) == (69, True)
