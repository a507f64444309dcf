"""Upserts by sequence: beside those by order, with many deletions remembered; beside AUTO CDC of pyspark; Nexmark."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.benchmark import Benchmark, Limit, Run, benchmark
from benchmarks.events import numbered, write_files
from benchmarks.lake import Lake, write_epoch
from benchmarks.measure import medians, timed
from benchmarks.peers import auto_cdc as peer
from tests.duck import query
from tests.nexmark import BID_VERSIONS, LAST_BIDS, bids
from volley import FileSource, IcebergSink, IcebergSinkConfig
from volley.iceberg import History, Upsert
from volley.iceberg.modes import CommitMode

_PARTS = 4
_VOLLEY, _AUTO_CDC = "Volley", "AUTO CDC of pyspark 4.3.0"
_BY_ORDER, _BY_SEQUENCE, _REMEMBERING = "by order", "by sequence", "by sequence, a million deletions remembered"
_SCATTERED, _NEXT = "scattered", "neighbours"


@benchmark(
    rows=1_000_000,
    options={"keys": 20_000, "epochs": 15, "deletions": 1_000_000},
    case="keys",
    figures=("rows_per_cpu_second", "cpu_ms"),
    plots=("rows_per_cpu_second",),
    bounds=[
        Limit("rows_per_cpu_second", "rows per CPU-second", least=least, of=peer, beside=_BY_ORDER)
        for peer, least in ((_BY_SEQUENCE, 0.75), (_REMEMBERING, 0.6))
    ],
)
def upsert_sequence(run: Run) -> None:
    """Upserts by sequence beside those by order: CPU of an epoch, its keys anywhere in the table or side by side."""
    modes = {
        _BY_ORDER: Upsert("id", op_field="op", order_by="seq"),
        _BY_SEQUENCE: (by_sequence := Upsert("id", op_field="op", sequence="seq")),
        _REMEMBERING: by_sequence,
    }
    keys, dice = run.options["keys"], np.random.default_rng(1)
    for case in (_SCATTERED, _NEXT):
        with tempfile.TemporaryDirectory(dir=run.folder) as folder:
            lakes = {peer: Lake(Path(folder, str(number))) for number, peer in enumerate(modes)}
            for peer, mode in modes.items():
                _fill(lakes[peer].config.with_commit_mode(mode), run, run.options["deletions"] * (peer == _REMEMBERING))
            costs = dict[str, list[dict[str, float]]]((peer, []) for peer in modes)
            # The peers take turns with the same changes; the first epochs warm up.
            for epoch in range(run.options["epochs"]):
                scattered = np.sort(dice.choice(run.rows, keys, replace=False))
                ids = scattered if case == _SCATTERED else np.arange(epoch * keys, (epoch + 1) * keys) % run.rows
                for peer, mode in modes.items():
                    config = lakes[peer].config.with_commit_mode(mode)
                    work = partial(write_epoch, config, _PARTS + 1 + epoch, [_changes(ids, epoch + 1)])
                    costs[peer].append(timed(work))
        for peer, each in costs.items():
            spent = medians(each[3:])["cpu_ms"]
            run.record(peer, case, rows_per_cpu_second=keys / spent * 1e3, cpu_ms=spent)


def _fill(config: IcebergSinkConfig, run: Run, deletions: int) -> None:
    """A table of some files, and deletions of keys that it never had."""
    for part, ids in enumerate(np.array_split(np.arange(run.rows), _PARTS)):
        write_epoch(config, part, [_changes(ids, 0)])
    if deletions:
        write_epoch(config, _PARTS, [_changes(np.arange(run.rows, run.rows + deletions), 5, "d")])


def _changes(ids: np.ndarray[Any, Any], sequence: int, operation: str = "u") -> pa.RecordBatch:
    columns = {
        "id": pa.array(ids),
        "seq": pa.array(np.full(len(ids), sequence)),
        "a": pa.array(ids * 3),
        "b": pa.array(ids / 7),
        "c": numbered("", ids),
        "op": pa.repeat(pa.scalar(operation), len(ids)),
    }
    return pa.RecordBatch.from_pydict(columns)


_MODES: dict[str, CommitMode] = {
    "order": Upsert(["auction", "bidder"], order_by="date_time", op_field="op"),
    "sequence": Upsert(["auction", "bidder"], sequence="date_time", op_field="op"),
    "history": History(["auction", "bidder"], sequence="date_time", op_field="op"),
}
_TIMES = {"sequence": ["date_time"], "history": ["valid_from", "valid_to"]}
"""The columns with the times of a row, by mode."""


def _bids(asked: Benchmark, folder: Path) -> Iterator[Mapping[str, Any]]:
    """Bids of so many events, in so many files as there are epochs."""
    options = asked.options
    rows = bids(asked.rows, options["late"], options["deleted"])
    files = {}
    for epochs in options["epochs"]:
        size = -(-rows.num_rows // epochs)
        parts = partial(lambda size, number: rows.slice(number * size, size), size)
        files[str(epochs)] = str(write_files(folder / str(epochs), epochs, parts))
    yield {"files": files, "bids": rows.num_rows}


@benchmark(
    rows=1_000_000,
    peers={"order": "Upsert by order", "sequence": "Upsert by sequence"},
    options={"late": 50_000, "deleted": 0.0},
    cases={"epochs": (4, 40)},
    prepare=_bids,
    figures=("stale", "keys", "rows_per_cpu_second", "cpu_seconds"),
    plots=("stale",),
    bounds=[Limit("stale", "stale keys", most=0, of="Upsert by sequence")],
)
def last_bids(run: Run) -> None:
    """Nexmark's query 18, the last bid of each bidder on each auction, of bids that come late: keys that are stale."""
    folder, lake = Path(run.options["files"][str(run.case)]), Lake(run.folder)
    figures = run.measure(lambda: upsert_files(folder, lake, run.peer), rows=run.options["bids"])
    figures |= {"stale": stale_keys(folder, lake), "keys": lake.table().scan().count()}


_BESIDE_AUTO_CDC = partial(
    benchmark,
    rows=1_000_000,
    repeat=5,
    peers={"volley": _VOLLEY, "auto_cdc": _AUTO_CDC},
    options={"late": 50_000, "deleted": 0.1},
    cases={"epochs": (4,)},
    prepare=_bids,
    figures=("cpu_seconds", "seconds", "rows_per_cpu_second", "rows"),
    plots=("cpu_seconds",),
    bounds=[Limit("rows_per_cpu_second", "rows per CPU-second", least=5, of=_VOLLEY, beside=_AUTO_CDC)],
)


@_BESIDE_AUTO_CDC()
def auto_cdc(run: Run) -> None:
    """Last bids, some taken back, beside AUTO CDC (SCD 1), which keeps its table in memory: CPU of whole processes."""
    assert _differing(*_beside_auto_cdc(run, "sequence", 1)) == 0, "the rows differ from those of DuckDB"


@_BESIDE_AUTO_CDC()
def auto_cdc_history(run: Run) -> None:
    """Versions of bids, some taken back, beside AUTO CDC (SCD 2), its table in memory: CPU of whole processes."""
    files, found = _beside_auto_cdc(run, "history", 2)
    assert _differing(files, found, BID_VERSIONS) == 0, "the versions differ from those of DuckDB"


def _beside_auto_cdc(run: Run, mode: str, scd_type: int) -> tuple[Path, str]:
    """Measure a run of the peer; return the folder with the bids, and a query for the rows that were made of them."""
    files, rows_file = run.options["files"][str(run.case)], run.folder / "rows"
    if run.peer == "auto_cdc":
        given, options = replace(run, rows=run.options["bids"]), {"files": files, "rows_file": str(rows_file)}
        run.results.extend(peer.apart(given, peer.pipeline, scd_type=scd_type, **options))
        return Path(files), _of_catalog(rows_file, mode)
    command = [sys.executable, "-c", "from benchmarks.sequence import main; main()", files, str(run.folder), mode]
    run.measure(lambda: subprocess.run(command, check=True), rows=run.options["bids"])
    return Path(files), _of_table(Lake(run.folder), mode)


def main() -> None:
    """A job of a process of its own that upserts, or writes versions."""
    files, folder, mode = sys.argv[1:]
    upsert_files(Path(files), Lake(folder), mode)


def upsert_files(folder: Path, lake: Lake, mode: str) -> None:
    """A job that upserts the bids in a folder's files, an epoch each."""
    sink = IcebergSink(lake.config.with_commit_mode(_MODES[mode]))
    source = FileSource(folder, format="parquet", max_files_per_epoch=1)
    lake.environment("local[2]").from_source(source).to_sink(sink).execute("bids")


def stale_keys(folder: Path, lake: Lake) -> int:
    """How many bidders and auctions of a table differ from what DuckDB makes of all bids."""
    return _differing(folder, _of_table(lake))


def _differing(folder: Path, found: str, wanted: str = LAST_BIDS) -> int:
    bids = f"(select * replace (epoch_us(date_time) as date_time) from read_parquet('{folder}/*.parquet'))"
    expected = wanted.replace("from bids", f"from {bids}")
    differences = f"(({expected}) except ({found})) union (({found}) except ({expected}))"
    ((keys,),) = query(f"select count(distinct (auction, bidder)) from ({differences})").fetchall()
    return int(keys)


def _of_table(lake: Lake, mode: str = "sequence") -> str:
    columns = ", ".join(f"epoch_us({name})" for name in _TIMES[mode])
    return f"select auction, bidder, price, url, {columns} from iceberg_scan('{lake.table().metadata_location}')"


def _of_catalog(rows: Path, mode: str) -> str:
    """Rows that the catalog of AUTO CDC has written, with a column of its own behind them."""
    times = [f"nullif(column{4 + number}, 'null')::bigint" for number in range(len(_TIMES[mode]))]
    columns = ", ".join(["column0::bigint, column1::bigint, column2::bigint, column3", *times])
    return f"select {columns} from read_csv('{rows}', delim = '\\t', header = false, all_varchar = true)"
