"""What a program shows of a start that fails: its own lines, what is wrong, what to do; in at most 15 lines."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import volley
from tests.processes import RUN_SECONDS, plain_environment

BEGIN = """
import threading
from pathlib import Path
from unittest.mock import patch
from volley import *
from volley.iceberg import *
Path("in").mkdir(exist_ok=True)
Path("in/1.json").write_text('{"id": 1}')
environment = Environment(master="local[1]", checkpoint_dir="checkpoints")
source = FileSource("in", format="json", schema="id long")
stream = environment.from_source(source)
lock = threading.Lock()
def table(**more):
    return IcebergSinkConfig(**{"namespace": "db", "table": "t", "storage": IcebergStorage.Local("lake"), **more})
"""

# The line that fails, and the classes of error that it may raise.
MISTAKES = {
    "a folder that is not there": (
        'environment.from_source(FileSource("no", format="json", schema="id long")).to_sink(MemorySink()).execute("a")',
        "SourceNotFoundError",
    ),
    "an unknown column": ('stream.filter(col("idd") > 1).to_sink(MemorySink()).execute("a")', "ExpressionError"),
    "a type that does not fit": (
        'stream.with_column("x", col("id").str.upper()).to_sink(MemorySink()).execute("a")',
        "ExpressionError",
    ),
    "columns that a key lacks": (
        'stream.to_sink(IcebergSink(table(commit_mode=Upsert("x")))).execute("a")',
        "ConfigError|PlanError|SchemaMismatchError",
    ),
    "a catalog out of reach": (
        'stream.to_sink(IcebergSink(table(catalog=RestCatalog("http://127.0.0.1:9")))).execute("a")',
        "CatalogUnreachableError",
    ),
    "storage that can't be written": (
        'Path("lake").write_text(""); stream.to_sink(IcebergSink(table(create_table=False))).execute("a")',
        "StorageError|TableNotFoundError",
    ),
    "one table twice": (
        'environment.execute("a", stream.to_sink(IcebergSink(table())), stream.to_sink(IcebergSink(table())))',
        "PlanError",
    ),
    "a checkpoint that is a file": (
        'Path("checkpoints").write_text(""); stream.to_sink(MemorySink()).execute("a")',
        "StorageError",
    ),
    "an unknown option": ('stream.to_sink(MemorySink()).execute("a", fresch=True)', "ConfigError"),
    "a port": ('stream.to_sink(MemorySink()).execute("a", metrics_host="192.0.2.1", metrics_port=9)', "JobError"),
    "an address of Spark Connect": ('Environment(master="sc://127.0.0.1:15002")', "ConfigError"),
    "a session of Spark Connect": (
        'patch.dict("os.environ", SPARK_REMOTE="sc://h")(stream.to_sink(MemorySink()).execute)("a")',
        "ConfigError",
    ),
    "a database out of reach": (
        'environment.from_source(PostgresSource(host="127.0.0.1", port=9, database="d", user="u", slot_name="s", '
        'publication="p", tables="a.b")).to_sink(IcebergSink(table())).execute("a")',
        "SourceError",
    ),
    "brokers out of reach": (
        'environment.from_source(KafkaSource("127.0.0.1:9", "t", schema="id long", timeout=0.5))'
        '.to_sink(IcebergSink(table())).execute("a")',
        "SourceError",
    ),
    "a wrong setting": ('FileSource("in", format="jsonn")', "ConfigError"),
    "a setting deep down": ('table(namespace="db", catalog=RestCatalog("x", token=5))', "ConfigError"),
    "a sink that is not called": ('stream.to_sink(MemorySink).execute("a")', "ConfigError"),
    "a source that is not called": ("environment.from_source(FileSource)", "ConfigError"),
    "Python's and": ('stream.filter((col("id") > 1) and (col("id") < 5))', "ExpressionError"),
    "Python's in": ('stream.filter(col("id") in [1, 2])', "ExpressionError"),
    "a function for a condition": ('stream.filter(lambda row: row["id"] > 1)', "ExpressionError"),
    "a time span": ('tumbling("1 minit")', "ConfigError"),
    "a verb that is not there": ('stream.fliter(col("id") > 1)', "UnknownVerb"),
    "a window on an unknown column": (
        'stream.key_by("id").window(tumbling("1m"), on="att").aggregate(n=count()).to_sink(MemorySink()).execute("a")',
        "ExpressionError",
    ),
    "an expectation": ('stream.expect("price", "price >")', "ExpressionError"),
    "a union of other columns": (
        'stream.union(stream.rename({"id": "x"})).to_sink(MemorySink()).execute("a")',
        "PlanError",
    ),
    "a partition by an unknown column": (
        'stream.to_sink(IcebergSink(table(partitioning=[Partitioning.time("at")]))).execute("a")',
        "ConfigError|PlanError|SchemaMismatchError",
    ),
    "a SQL text": ('sql("id >")', "ExpressionError"),
    "a snapshot to read": ('IcebergTable(table(table="x")).at(5).to_arrow()', "TableNotFoundError|StorageError"),
    "a table to read": ('IcebergTable(table(table="x")).to_arrow()', "TableNotFoundError|StorageError"),
}

# Prints each error as Python does at the end of a program, and as IPython does in a cell.
RUNNER = """
import io
import json
import os
import sys
import tempfile
from contextlib import redirect_stderr, redirect_stdout

from IPython.core.interactiveshell import InteractiveShell

import volley.environment

# What needs Spark is tried by other tests.
volley.environment.Environment._begin_jvm = lambda *_: None
begin, mistakes, shell = *json.load(sys.stdin), InteractiveShell.instance(colors="nocolor")
printed = {}
for name, (code, _) in mistakes.items():
    os.chdir(tempfile.mkdtemp(dir=sys.argv[1]))
    for line in ("script", "cell"):
        variables, text = {}, io.StringIO()
        exec(begin, variables)
        if line == "script":
            with open("script.py", "w") as file:
                file.write(code)
            try:
                exec(compile(code, os.path.abspath("script.py"), "exec"), variables)
            except Exception as error:
                # Drop the line of this program.
                error.__traceback__ = error.__traceback__.tb_next
                with redirect_stderr(text):
                    sys.__excepthook__(type(error), error, error.__traceback__)
        else:
            shell.push(variables)
            with redirect_stdout(text), redirect_stderr(text):
                shell.run_cell(code)
        printed[f"{name} in a {line}"] = text.getvalue()
json.dump(printed, sys.__stdout__)
"""


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    command = [sys.executable, "-c", RUNNER, str(tmp_path_factory.mktemp("runs"))]
    given, environment = json.dumps([BEGIN, MISTAKES]), plain_environment()
    ran = subprocess.run(command, input=given, env=environment, capture_output=True, text=True, timeout=RUN_SECONDS)
    assert ran.returncode == 0, ran.stderr
    texts: dict[str, str] = json.loads(ran.stdout)
    return texts


@pytest.mark.parametrize("name", MISTAKES)
@pytest.mark.parametrize("where", ["script", "cell"])
def test_an_error_of_a_start_is_short(name: str, where: str, printed: dict[str, str]) -> None:
    text, (code, classes) = printed[f"{name} in a {where}"], MISTAKES[name]
    lines = [line for line in text.splitlines() if line.strip()]
    assert len(lines) <= 15, text
    assert any(f"{error}: " in text for error in classes.split("|")), text
    assert lines[-1].startswith("  hint: "), text
    assert code in text, text
    assert "Traceback" not in "\n".join(lines[2:]), text
    assert str(Path(volley.__file__).parent) not in text, text
