"""The rules of the house: who may import whom, where heavy packages and pyiceberg's private names may stand."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest

import volley
import volley.iceberg
from tests.architecture import private_names, sources, violations


def test_no_import_breaks_a_rule() -> None:
    assert list(violations(sources())) == []


def test_private_names_of_pyiceberg_stand_in_one_room() -> None:
    assert list(private_names(sources())) == []


FOR_TYPES = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    "
ILLEGAL = {
    "upwards": ("arrow.casts", "import volley.engine.job"),
    "upwards, for types": ("arrow.dictionaries", f"{FOR_TYPES}from volley.engine.job import Job"),
    "upwards, in an if": ("iceberg.schema.types", "if True:\n    from volley.iceberg import commit"),
    "upwards, in a function": ("source", "def f():\n    from volley.stream import DataStream"),
    "upwards, inside a package": ("iceberg.storage.values", "from volley.iceberg.catalogs.values import RestCatalog"),
    "between connectors": ("connectors.files.reader", "from volley.connectors.memory import rows"),
    "from a connector to iceberg": ("connectors.memory.sink", "from volley.iceberg.modes import Append"),
    "from iceberg to a connector": ("iceberg.sink", "from volley.connectors.kafka.source import KafkaSource"),
    "from a room to the whole": ("plan.nodes", "from volley import Environment"),
    "a circle inside a room": ("formats.input_file", f"{FOR_TYPES}from volley.formats.json_lines import FormatReader"),
    "Arrow in a value": ("connectors.files.source", "def f():\n    import pyarrow"),
    "Spark in a format": ("formats.json", "from pyspark.sql import DataFrame"),
    "pyiceberg outside of its room": ("engine.launch", "import pyiceberg"),
}


@pytest.mark.parametrize("case", ILLEGAL)
def test_an_illegal_import_is_found(case: str) -> None:
    module, line = ILLEGAL[case]
    modules = sources()
    assert list(violations({**modules, module: f"{modules[module]}\n{line}\n"}))


PRIVATE = {
    "imported": "from pyiceberg.table.update.snapshot import _FastAppendFiles",
    "read": "table._do_commit()",
    "overridden": "from pyiceberg.io import FileIO\nclass Mine(FileIO):\n    def _open(self): ...",
}


@pytest.mark.parametrize("case", PRIVATE)
def test_a_private_name_is_found(case: str) -> None:
    modules = sources()
    text = f"{modules['iceberg.commit.tables']}\n{PRIVATE[case]}\n"
    assert list(private_names({**modules, "iceberg.commit.tables": text}))


def test_file_names_have_no_underscore_in_front() -> None:
    assert [
        name for name in sources() if any(part.startswith("_") and not part.endswith("__") for part in name.split("."))
    ] == []


def test_every_module_says_what_it_is_for() -> None:
    assert [name for name, text in sources().items() if not ast.get_docstring(ast.parse(text))] == []


@pytest.mark.parametrize("package", [volley, volley.iceberg])
def test_public_names_exist(package: object) -> None:
    names = package.__all__  # type: ignore[attr-defined]
    assert sorted(names) == sorted(set(names))
    assert all(hasattr(package, name) for name in names)


def test_a_public_module_needs_no_import_of_its_own() -> None:
    script = "import volley; volley.errors.VolleyError, volley.iceberg.Upsert"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


PIPELINE = """
import sys
from datetime import timedelta
from volley import ABORT, ConsoleSink, Environment, FileSink, FileSource, MemorySource, RateSource, col, lit
from volley import KafkaSink, KafkaSource, MemorySink
from volley.iceberg import *
config = (
    IcebergSinkConfig(
        catalog_uri="http://polaris:8181", warehouse="wh", namespace=["db"], table="t",
        storage=IcebergStorage.S3(region="r", bucket="b"),
    )
    .with_credential("id:secret").with_max_records(10).with_flush_interval(timedelta(seconds=3)).with_compression("zstd")
)
stream = (
    Environment().from_source(FileSource("in/*.json", schema="id long, tags array<string>", max_files_per_epoch=3))
    .filter_expr(col("id").between(1, 5) & ~col("tags").is_null()).with_column("x", col("id") * 2 + lit(1))
    .select("id", col("x").cast("decimal(10,2)").alias("y")).drop("id").rename({"y": "z"})
    .map(lambda row: row)
)
stream.union(Environment().from_source(MemorySource([{"id": 1}, ABORT]))).deduplicate("id")
pipeline = stream.to_sink(FileSink("out")).to_sink(ConsoleSink()).to_sink(IcebergSink(config))
kafka = Environment().from_source(KafkaSource("b:1", "t", schema="id long")).to_sink(KafkaSink("b:1", "u", key="id"))
for each in stream, pipeline, kafka, *stream.split(col("id") > 3):
    repr(each), each._repr_html_(), each.explain()
heavy = {"pyspark", "pyarrow", "pyiceberg", "pandas", "numpy", "fsspec", "rich"} & set(sys.modules)
assert not heavy, heavy
"""


def test_building_a_pipeline_imports_nothing_heavy() -> None:
    done = subprocess.run([sys.executable, "-c", PIPELINE], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


PLANNER = """
import sys
import pyspark.sql.streaming.python_streaming_source_runner
import volley.spark.datasource, volley.connectors.{reader}
rooms = {{"volley." + name for name in ("environment", "stream", "metrics", "engine", "plan", "spark.compile")}}
others = {{"volley.connectors." + name for name in {others}}}
needless = ({{"pandas", "pyiceberg", "rich", "prometheus_client", "IPython"}} | rooms | others) & set(sys.modules)
assert not needless, needless
"""
READERS = ["files.reader", "kafka.reader", "memory.reader"]
NEEDLESS = [
    *("files.source", "kafka.source", "memory.source", "console.sink", "rate"),
    *("files.committer", "kafka.committer", "memory.committer"),
]


@pytest.mark.parametrize("reader", READERS)
def test_the_process_that_plans_epochs_imports_its_reader_and_little_else(reader: str) -> None:
    """Spark gives it ten seconds to start, imports included."""
    others = [name for name in [*READERS, *NEEDLESS] if name != reader]
    script = PLANNER.format(reader=reader, others=others)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
