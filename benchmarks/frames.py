"""Whole processes that copy files into a table, beside polars and DuckDB, which most people with one machine use."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from benchmarks.benchmark import Benchmark, Limit, Run, benchmark
from benchmarks.events import BEGIN, numbered, times
from benchmarks.peers import runtime
from benchmarks.rows import NATIVE, RUNTIME

_FORMATS = ("parquet", "json", "csv")
_FILES = 8
_START = "Volley, one row"
_LABELS = {"volley": NATIVE, "start": _START, "polars": "polars", "duckdb": "DuckDB", "runtime": RUNTIME}

_SCRIPTS = {
    "volley": """
from volley import Environment, FileSource, IcebergSink, IcebergSinkConfig, IcebergStorage, col
sink = IcebergSink(IcebergSinkConfig(namespace="b", table="t", storage=IcebergStorage.Local(lake)))
source = FileSource(folder, format=format, schema=None if format == "parquet" else schema)
rows = Environment(checkpoint_dir=f"{lake}/checkpoints").from_source(source).filter(col("quantity") > 0)
rows.to_sink(sink).execute("frames")
""",
    "polars": """
import polars
from pyiceberg.catalog.sql import SqlCatalog
types = {"int64": polars.Int64, "double": polars.Float64, "bool": polars.Boolean, "string": polars.String}
types = {column.name: types.get(str(column.type), polars.Datetime("us", "UTC")) for column in schema}
scan = {
    "parquet": lambda: polars.scan_parquet(f"{folder}/*"),
    "json": lambda: polars.scan_ndjson(f"{folder}/*", schema=types),
    "csv": lambda: polars.scan_csv(f"{folder}/*", schema=types),
}[format]().filter(polars.col("quantity") > 0)
catalog = SqlCatalog("volley", uri=f"sqlite:///{lake}/catalog.db", warehouse=f"file://{lake}")
catalog.create_namespace("b")
names = scan.head(0).collect().to_arrow(compat_level=polars.CompatLevel.oldest()).schema
table = catalog.create_table("b.t", names)
scan.sink_iceberg(table, mode="append", compression="snappy")
""",
    "duckdb": """
import duckdb
duckdb.sql("set timezone = 'UTC'")
types = {"int64": "bigint", "double": "double", "bool": "boolean", "string": "varchar"}
columns = {column.name: types.get(str(column.type), "timestamptz") for column in schema}
rows = {
    "parquet": f"read_parquet('{folder}/*')",
    "json": f"read_json('{folder}/*', format = 'newline_delimited', columns = {columns})",
    "csv": f"read_csv('{folder}/*', header = true, columns = {columns})",
}[format]
duckdb.sql(f"copy (from {rows} where quantity > 0) to '{lake}/rows.parquet' (compression snappy)")
""",
}
_HEAD = """
import sys
import pyarrow, pyarrow.parquet
folder, lake, format, types = sys.argv[1:]
schema = pyarrow.parquet.read_schema(types)
"""


def _generated(asked: Benchmark, folder: Path) -> Iterator[dict[str, Any]]:
    """Write the rows in each format, and one row more in a folder of its own."""
    random = np.random.default_rng(11)
    rows = asked.rows // _FILES
    for name in _FORMATS:
        (folder / name).mkdir()
        (folder / f"one-{name}").mkdir()
    for number in range(_FILES):
        plain = _plain(random, number * rows, rows)
        pq.write_table(_nested(plain), folder / "parquet" / f"{number}.parquet")
        _write_texts(plain, folder, str(number))
    one = _plain(random, 0, 1)
    pq.write_table(_nested(one), folder / "one-parquet" / "0.parquet")
    _write_texts(one, folder, "0", "one-")
    pq.write_table(one, folder / "types.parquet")
    yield {"files": folder}


def _plain(random: np.random.Generator, start: int, rows: int) -> pa.Table:
    """Rows of sixteen columns of numbers, texts and times."""
    ids = np.arange(start, start + rows)
    words = ["view", "click", "cart", "order"]
    return pa.table(
        {
            "id": ids,
            "quantity": np.where(ids % 20, random.integers(1, 10, rows), 1 if rows == 1 else 0),
            "user": random.integers(0, 10_000_000, rows),
            "session": numbered("s-", random.integers(0, 1_000_000_000, rows)),
            "kind": random.choice(words, rows),
            "page": numbered("/products/", random.integers(0, 50_000, rows)),
            "country": random.choice(["de", "fr", "us", "gb", "in", "br"], rows),
            "price": np.round(random.random(rows) * 100, 2),
            "discount": random.random(rows),
            "is_mobile": random.random(rows) < 0.5,
            "seen_at": times(BEGIN + ids * 1000),
            "latitude": random.random(rows) * 90,
            "longitude": random.random(rows) * 180,
            "agent": random.choice(["Mozilla/5.0 (X11; Linux x86_64)", "Mozilla/5.0 (Windows NT 10.0)"], rows),
            "referrer": pa.array(random.choice(["google", "bing", "none"], rows)),
            "bytes": random.integers(0, 10**12, rows),
        }
    )


def _nested(plain: pa.Table) -> pa.Table:
    """The same rows with a struct, a list, a map and a struct of a list behind them: twenty columns."""
    rows = len(plain)
    offsets = np.arange(0, 2 * rows + 1, 2, dtype=np.int32)
    values = pa.array(np.arange(2 * rows, dtype=np.int64) % 1_000)
    place = pa.StructArray.from_arrays(
        [array.combine_chunks() for array in (plain["latitude"], plain["longitude"])], ["latitude", "longitude"]
    )
    items = pa.ListArray.from_arrays(offsets, values)
    keys = pa.array(["first", "second"]).take(pa.array(np.arange(2 * rows) % 2))
    columns = {
        "place": place,
        "items": items,
        "scores": pa.MapArray.from_arrays(offsets, keys, values),
        "basket": pa.StructArray.from_arrays([items], ["items"]),
    }
    for name, column in columns.items():
        plain = plain.append_column(name, column)
    return plain


def _write_texts(rows: pa.Table, folder: Path, name: str, prefix: str = "") -> None:
    pa.csv.write_csv(rows, folder / f"{prefix}csv" / f"{name}.csv")
    path = folder / f"{prefix}json" / f"{name}.json"
    duckdb.sql("set timezone = 'UTC'")
    duckdb.sql(f"copy (select * replace (strftime(seen_at, '%Y-%m-%dT%H:%M:%S.%fZ') as seen_at) from rows) to '{path}'")


def _whole(run: Run, folder: Path) -> None:
    """Copy the files by one peer, in a process of its own."""
    files = Path(run.options["files"])
    if run.peer == "runtime":
        runtime.apart(run, runtime.frames, files=folder, types=files / "types.parquet")
        return
    script = _SCRIPTS["volley" if run.peer == "start" else run.peer]
    arguments = [str(folder), str(run.folder), str(run.case), str(files / "types.parquet")]
    subprocess.run([sys.executable, "-c", _HEAD + script, *arguments], check=True)


@benchmark(
    rows=2_000_000,
    repeat=5,
    peers=_LABELS,
    cases={"formats": _FORMATS},
    case="",
    figures=("cpu_seconds", "seconds", "rows_per_cpu_second"),
    plots=("cpu_seconds",),
    prepare=_generated,
    bounds=[
        Limit("cpu_seconds", "CPU-seconds", most=1.7, of=NATIVE, case="parquet", beside="polars"),
        Limit("cpu_seconds", "CPU-seconds", most=2, of=NATIVE, case="json", beside="DuckDB"),
    ],
)
def frames(run: Run) -> None:
    """Whole processes: files → filter → table, beside polars, DuckDB (one Parquet file) and the runtime."""
    folder = Path(run.options["files"], f"one-{run.case}" if run.peer == "start" else str(run.case))
    run.measure(lambda: _whole(run, folder), rows=1 if run.peer == "start" else None)
    written = duckdb.sql(f"select count(*), count(seen_at), count(price) from '{run.folder}/**/*.parquet'").fetchone()
    rows = 1 if run.peer == "start" else run.rows // 20 * 19
    assert written == (rows, rows, rows), f"{written} rows, times and prices, not {rows}"
