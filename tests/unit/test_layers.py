"""The house's rules of who may import whom, and what building a pipeline may not import."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import volley
import volley.iceberg

ROOT = Path(volley.__file__).parent

LAYERS = {
    0: ["errors", "_durable", "_failpoints", "_halving", "_secrets"],
    1: [
        "_checks",
        "_types",
        "_java",
        "_worker_python",
        "expressions",
        "windows",
        "_casts",
        "_encoded",
        "_exact",
        "_readable",
        "_sound",
        "_user_code",
        "_uuids",
    ],
    2: ["_plan", "source", "sink", "metrics", "_prometheus", "_registry", "_operators", "_start"],
    3: ["stream", "connectors", "iceberg"],
    4: [
        *("_acknowledge", "_arrow", "_columns", "_compile", "_datasource", "_dead_letters", "_epochs"),
        *("_schemas", "_spark_errors", "_tally", "_tasks", "_tree", "_workers"),
        *("_preview", "_session", "_checkpoint", "_launch", "_repair", "_running", "_spark_log", "job", "_terminal"),
        "_landed",
    ],
    5: ["environment"],
    6: ["config"],
    7: ["cli", "__init__", "__main__"],
}

THIRD_PARTIES = {
    "pyspark": {"_columns", "_compile", "_datasource", "_tally", "_tasks"},
    "pyarrow": {
        *("_arrow", "_casts", "_columns", "_datasource", "_dead_letters", "_encoded", "_operators"),
        *("_compile", "_tasks", "_tree"),
        *("_exact", "_readable", "_sound", "_uuids"),
        *("iceberg.writer", "iceberg.schema", "iceberg.tables", "iceberg._upsert_chores", "iceberg._upsert_staging"),
        *("iceberg._clusters", "iceberg._dictionaries", "iceberg._evolution", "iceberg._layout", "iceberg._rolling"),
        *("iceberg._data_files", "iceberg._statistics", "iceberg._transforms"),
        *("connectors._file_reader", "connectors._input_file", "connectors._json_lines", "connectors._json_text"),
        *("connectors._csv_floats", "connectors._csv_rows", "connectors._csv_salvage", "connectors._parquet_groups"),
        *("connectors._kafka_reader", "connectors._kafka_avro", "connectors._kafka_formats", "connectors._kafka_rows"),
        *("connectors._console_committer", "connectors._function_committer"),
        *("connectors._memory_committer", "connectors._memory_reader", "connectors._memory_table"),
    },
    "pyiceberg": {
        *("iceberg._bounds", "iceberg._data_files", "iceberg._manifests", "iceberg._partitions", "iceberg._statistics"),
        "iceberg._clients",
        "iceberg._evolution",
        "iceberg._files",
        "iceberg._schema_changes",
        "iceberg._staging",
        "iceberg._upsert_chores",
        "iceberg._upsert_staging",
        "iceberg._upserts",
        "iceberg._layout",
        "iceberg._rolling",
        "iceberg._specs",
        "iceberg._transforms",
        "iceberg._glue",
        "iceberg._hive",
        "iceberg._nessie",
        "iceberg.committer",
        "iceberg.schema",
        "iceberg.tables",
        "iceberg.writer",
    },
}


def modules() -> list[tuple[str, ast.Module]]:
    """Each module's name below volley, and its syntax tree."""
    found = []
    for path in sorted(ROOT.rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        found.append((name, ast.parse(path.read_text())))
    return found


MODULES = modules()


def imports(tree: ast.Module | ast.FunctionDef) -> Iterator[tuple[str, str]]:
    """Module and name of what is imported when the module is (or function called); not for type checkers."""
    for node in tree.body:
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.module or "", alias.name) for alias in node.names)


def layer(module: str) -> int:
    top = module.split(".")[0]
    return next(number for number, names in LAYERS.items() if top in names)


def room(imported: str, name: str) -> str:
    """The room of ``from volley.x import y`` or ``from volley import x``."""
    return imported.removeprefix("volley").lstrip(".") or name


@pytest.mark.parametrize(("module", "tree"), MODULES, ids=[name for name, _ in MODULES])
def test_imports_go_downwards(module: str, tree: ast.Module) -> None:
    for imported, name in imports(tree):
        if imported.split(".")[0] != "volley" or module.endswith("__init__"):
            continue
        below = room(imported, name)
        same_package = below.split(".")[0] == module.split(".")[0]
        siblings = layer(module) == layer(below) in (2, 4) or layer(module) == layer(below) == 1
        assert same_package or siblings or layer(below) < layer(module), f"{module} imports {below}"


@pytest.mark.parametrize(("module", "tree"), MODULES, ids=[name for name, _ in MODULES])
def test_heavy_packages_are_imported_only_where_they_belong(module: str, tree: ast.Module) -> None:
    for imported, _ in imports(tree):
        top = imported.split(".")[0]
        assert module in THIRD_PARTIES.get(top, {module}), f"{module} imports {imported}"


VALUES = [
    "connectors.console",
    "connectors.files",
    "connectors.kafka",
    "connectors.memory",
    "connectors.rate",
    "source",
]


@pytest.mark.parametrize("module", VALUES)
def test_the_values_of_connectors_import_no_arrow_in_functions_either(module: str) -> None:
    tree = dict(MODULES)[module]
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    imported = {name.split(".")[0] for function in functions for name, _ in imports(function)}
    assert not imported & {"pyarrow", "pyspark", "pyiceberg"}


@pytest.mark.parametrize("module", sorted(name for name in THIRD_PARTIES["pyarrow"] if name.startswith("connectors")))
def test_readers_import_arrow_at_the_top_of_their_file(module: str) -> None:
    tree = dict(MODULES)[module]
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    assert not {name for function in functions for name, _ in imports(function) if name.startswith("pyarrow")}


def test_private_names_of_pyiceberg_are_used_in_two_places_only() -> None:
    for module, tree in MODULES:
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pyiceberg"):
                private = [alias.name for alias in node.names if alias.name.startswith("_")]
                assert not private or module in ("iceberg.writer", "iceberg._staging"), f"{module}: {private}"


def test_every_module_says_what_it_is_for() -> None:
    assert [name for name, tree in MODULES if not ast.get_docstring(tree)] == []


@pytest.mark.parametrize("package", [volley, volley.iceberg])
def test_public_names_exist(package: object) -> None:
    names = package.__all__  # type: ignore[attr-defined]
    assert sorted(names) == sorted(set(names))
    assert all(hasattr(package, name) for name in names)


def test_a_public_module_needs_no_import_of_its_own() -> None:
    script = "import volley; volley.errors.VolleyError, volley.iceberg.Upsert, volley.metrics.Metrics"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


PIPELINE = """
import sys
from datetime import timedelta
from volley import ABORT, ConsoleSink, Environment, FileSink, FileSource, MemorySource, RateSource, col, lit
from volley import KafkaSink, KafkaSource, MemorySink
from volley.iceberg import *
config = (
    IcebergSinkConfig("http://polaris:8181", "wh", ["db"], "t", IcebergStorage.S3(region="r", bucket="b"))
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
import volley._datasource, volley.connectors.{reader}
rooms = {{"volley." + name for name in ("environment", "stream", "expressions", "metrics", "job", "_plan", "_spark")}}
others = {{"volley.connectors." + name for name in {others}}}
needless = ({{"pandas", "pyiceberg", "rich", "prometheus_client", "IPython"}} | rooms | others) & set(sys.modules)
assert not needless, needless
"""
READERS = ["_file_reader", "_kafka_reader", "_memory_reader"]
VALUES_AND_SINKS = ["files", "kafka", "memory", "console", "rate", "_file_sink", "_kafka_sink", "_memory_committer"]


@pytest.mark.parametrize("reader", READERS)
def test_the_process_that_plans_epochs_imports_its_reader_and_little_else(reader: str) -> None:
    """Spark gives it ten seconds to start, imports included."""
    others = [each for each in [*READERS, *VALUES_AND_SINKS] if each != reader]
    script = PLANNER.format(reader=reader, others=others)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
