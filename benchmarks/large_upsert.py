"""Upserting a few keys into a table of a thousand data files: what a warm epoch costs, by where the keys are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table.metadata import TableMetadataUtil

from benchmarks.benchmark import Benchmark, Limit, Run, benchmark
from benchmarks.events import write_files
from benchmarks.lake import Lake, write_epoch
from volley import FileSource, IcebergSink, Progress
from volley.iceberg import Upsert

_ROWS_A_FILE = 100_000
_SMALL_FILES = 10
_STEP = 61_803_399  # its multiples visit each id once, all over the table
_CLUSTERED, _SCATTERED, _UNORDERED = "clustered", "scattered", "unordered"
_VOLLEY = "Volley"
_LARGE, _SMALL = "t", "warm_up"


def _tables(asked: Benchmark, folder: Path) -> Iterator[Mapping[str, Any]]:
    """A table in the order of its ids, one whose files have ids from everywhere, and small ones for the warm-up."""
    for ordered in (True, False):
        lake = Lake(folder / str(ordered))
        _fill(lake, _LARGE, asked.rows, ordered)
        _fill(lake, _SMALL, _SMALL_FILES * _ROWS_A_FILE, ordered)
    yield {"tables": folder}


@benchmark(
    rows=100_000_000,
    repeat=3,
    peers={"volley": _VOLLEY},
    options={"keys": 1_000, "before": 4, "epochs": 10},
    cases={"keys_are": (_CLUSTERED, _SCATTERED, _UNORDERED)},
    case="keys",
    figures=("cpu_seconds_an_epoch", "seconds_an_epoch", "worker_mb", "jvm_mb", "driver_mb"),
    plots=("cpu_seconds_an_epoch",),
    prepare=_tables,
    bounds=[
        Limit("cpu_seconds_an_epoch", "CPU-seconds an epoch", most=most, of=_VOLLEY, case=case)
        for case, most in {_CLUSTERED: 0.3, _SCATTERED: 3.0}.items()
    ],
)
def large_upsert(run: Run) -> None:
    """Merge-on-read upsert of 1,000 keys into 100 M rows in 1,000 files: a warm epoch's CPU, the whole process tree."""
    lake, prepared = Lake(run.folder), Lake(Path(run.options["tables"]) / str(run.case != _UNORDERED))
    lake.catalog().create_namespace("b")
    before, epochs = run.options["before"], run.options["epochs"]
    _copy(prepared, lake, _SMALL)
    _copy(prepared, lake, _LARGE)
    _job(run, lake, _SMALL, "few", _SMALL_FILES * _ROWS_A_FILE, before)
    figures = run.measure(
        lambda: _job(run, lake, _LARGE, "benchmark", run.rows, before + epochs),
        start=run.folder / "checkpoints" / "benchmark" / "commits" / str(before - 1),
    )
    figures |= {f"{name}_an_epoch": figures[name] / epochs for name in ("seconds", "cpu_seconds")}
    _check(run, lake)


def _fill(lake: Lake, name: str, rows: int, ordered: bool) -> None:
    """A table with ids from 0 on, in files of the same number of rows."""
    starts = range(0, rows, _ROWS_A_FILE)
    ids = (np.arange(start, start + _ROWS_A_FILE) for start in starts)
    batches = (_rows(part if ordered else part * _STEP % rows, 0.0) for part in ids)
    write_epoch(lake.named(name).with_max_records(_ROWS_A_FILE), 0, batches)


def _rows(ids: np.ndarray[Any, Any], value: float) -> pa.RecordBatch:
    return pa.record_batch({"id": ids, "kind": (ids % 7).astype(np.int32), "value": np.full(len(ids), value)})


def _copy(prepared: Lake, lake: Lake, name: str) -> None:
    """A table of the same data files, which stay as they are."""
    metadata = prepared.table(name).metadata.model_copy(update={"location": f"file://{lake.folder}/b/{name}"})
    path = lake.folder / f"{name}.metadata.json"
    path.write_text(TableMetadataUtil.parse_obj(metadata.model_dump(by_alias=True)).model_dump_json())
    with closing(lake.catalog()) as catalog:
        catalog.register_table(("b", name), f"file://{path}")


def _job(run: Run, lake: Lake, table: str, name: str, rows: int, epochs: int) -> Progress:
    """A job that upserts an input file an epoch."""
    random = np.random.default_rng(8)
    keys = [_keys(random, str(run.case), rows, run.options["keys"]) for _ in range(epochs)]
    folder = write_files(lake.folder / name, epochs, lambda epoch: pa.Table.from_batches([_rows(keys[epoch], 1.0)]))
    sink = IcebergSink(lake.named(table).with_commit_mode(Upsert("id", strategy="merge_on_read")))
    source = FileSource(folder, format="parquet", max_files_per_epoch=1)
    progress = lake.environment("local[2]").from_source(source).to_sink(sink).execute(name).progress
    assert progress.epochs == epochs
    return progress


def _keys(random: np.random.Generator, case: str, rows: int, count: int) -> np.ndarray[Any, Any]:
    if case == _CLUSTERED:
        start = random.integers(0, rows - count)
        return np.arange(start, start + count)
    return random.choice(rows, count, replace=False, shuffle=False)


def _check(run: Run, lake: Lake) -> None:
    """As many rows are there as before, one of each key that was upserted."""
    table = lake.table(_LARGE)
    files = table.inspect.files()
    deletes = pc.greater(files["content"], 0)
    rows, deleted = (pc.sum(files.filter(each)["record_count"]).as_py() for each in (pc.invert(deletes), deletes))
    assert rows - deleted == run.rows, f"{rows} rows, {deleted} of them deleted"
    new = table.scan("value > 0", selected_fields=("id",)).to_arrow()["id"]
    assert len(new) == len(new.unique()), "a key has several rows"
