"""The wheel without its extra for jobs: tables are read and maintained, and views refreshed, without Spark."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from tests.processes import ROOT
from tests.wheel.programs import call, install

PROGRAM = """
import importlib.util

import pyarrow as pa

from volley import Environment, IcebergStorage, IcebergTable, MemorySink, MemorySource, TableRef, VolleyError, col

assert importlib.util.find_spec("pyspark") is None
ref = TableRef("shop", "orders", IcebergStorage.Local("lake"))
catalog = ref.load_catalog()
catalog.create_namespace("shop")
table = catalog.create_table("shop.orders", pa.schema([("id", pa.int64()), ("customer", pa.string())]))
for number in range(4):
    table.append(pa.table({"id": [number], "customer": ["Ada"]}))
orders = IcebergTable(ref)
orders.compact()
print(sorted(orders.to_arrow()["id"].to_pylist()), orders.health().data_files)
rows = Environment().from_source(MemorySource([{"id": 1}, {"id": 2}])).filter(col("id") > 1)
print(rows.to_arrow().to_pylist())
for work in (
    lambda: rows.to_sink(MemorySink()).execute("job"),
    lambda: Environment().task_runner()([]),
    lambda: __import__("volley").Job,
):
    try:
        work()
    except VolleyError as error:
        print(type(error).__name__, error.hint)
"""


@pytest.mark.nightly
# Under load, an environment alone takes minutes.
@pytest.mark.timeout(1800)
def test_all_but_jobs_works_without_spark(wheel: Path, tmp_path: Path) -> None:
    call(sys.executable, "-m", "venv", "own", folder=tmp_path)
    programs = tmp_path / "own" / "bin"
    install(programs, f"{wheel}[cli]")
    (tmp_path / "program.py").write_text(PROGRAM)
    refused = ['MissingDependencyError pip install "volley-stream[spark]"'] * 3
    told = call(programs / "python", "program.py", folder=tmp_path).splitlines()
    assert told == ["[0, 1, 2, 3] 1", "[{'id': 2}]", *refused]
    # A page that says so.
    shutil.copy(ROOT / "tests" / "pages.py", tmp_path / "pages.py")
    assert "all pages run" in call(programs / "python", "pages.py", ROOT / "docs/how-to/views.md", folder=tmp_path)
    call(programs / "volley", "init", "shop", folder=tmp_path)
    assert "7.5" in call(programs / "volley", "preview", "orders", folder=tmp_path / "shop")
    shutil.rmtree(tmp_path / "own")
