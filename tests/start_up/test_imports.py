"""A new process imports heavy packages only when something runs, and each connector when it is asked for."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import volley
from tests.unit.test_yaml import MISTAKES


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
heavy = {"pyspark", "pyarrow", "pyiceberg", "pandas", "numpy", "fsspec", "rich", "tenacity", "asyncio"}
heavy &= set(sys.modules)
assert not heavy, heavy
"""


def test_building_a_pipeline_imports_nothing_heavy() -> None:
    done = subprocess.run([sys.executable, "-c", PIPELINE], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_connector_is_imported_when_it_is_asked_for() -> None:
    script = """
import sys, types
# The package without its __init__, which imports some of them for its public names.
package = sys.modules["volley"] = types.ModuleType("volley")
package.__path__ = sys.argv[1:]
from volley.registry import load
assert not [name for name in sys.modules if name.startswith("volley.connectors")]
load("sink", "console")
connectors = [name for name in sys.modules if name.startswith("volley.connectors.")]
assert connectors == ["volley.connectors.console"]
"""
    done = subprocess.run([sys.executable, "-c", script, *volley.__path__], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_loading_a_file_imports_nothing_heavy_and_another_one_nothing(tmp_path: Path) -> None:
    (tmp_path / "volley.yaml").write_text(MISTAKES)
    script = """
    import sys
    from volley import ConfigError, load_config
    import sqlglot
    try:
        load_config(sys.argv[1])
    except ConfigError:
        pass
    before = {*sys.modules}
    try:
        load_config(sys.argv[1])
    except ConfigError as error:
        print(len(str(error)))
    assert {*sys.modules} == before
    heavy = {"pyspark", "pyarrow", "pyiceberg", "pandas", "numpy", "fsspec", "rich", "typer"} & set(sys.modules)
    assert not heavy, heavy
    """
    command = [sys.executable, "-c", textwrap.dedent(script), str(tmp_path / "volley.yaml")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_what_tasks_import_leaves_pandas_out() -> None:
    """Parts of PyArrow import it, for half a second: they are imported where they are used."""
    script = """
    import pkgutil, sys
    from importlib import import_module
    import volley.columns, volley.contracts, volley.task, volley.types
    for room in (volley.columns, volley.contracts, volley.task, volley.types):
        for module in pkgutil.walk_packages(room.__path__, f"{room.__name__}."):
            import_module(module.name)
            assert "pandas" not in sys.modules, module.name
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
