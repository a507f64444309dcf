"""Files → filter → Iceberg, beside Iceberg's Spark runtime, plain pyiceberg, and pyarrow that only reads and writes."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from benchmarks.comparison import GENERAL, LIMIT, NATIVE, aims, case_of, compared, show
from benchmarks.events import events_folder
from benchmarks.measure import Result, in_own_process, measured, print_result
from benchmarks.peers.append import append
from benchmarks.peers.runtime import missing, runtime
from volley import Environment, FileSource, IcebergSink, IcebergSinkConfig, IcebergStorage, Progress, col

PEERS = ("limit", "append", "volley", "general", "runtime")
SUMMARY = "files → Iceberg: rows/s and rows per CPU-second, beside Iceberg's Spark runtime, pyiceberg and pyarrow"

_WARM_UP = (160_000, 10_000)
_WARM_UP_FILES = 4


def volley(rows: int, rows_per_file: int, rows_per_epoch: int, arrow_native: bool = True) -> Result:
    """One job over all files, in a session that has run a small one before; the start of the query is counted."""
    work = Path(tempfile.mkdtemp(prefix="volley-bench-"))

    def run(name: str, folder: Path, per_epoch: int) -> Progress:
        config = IcebergSinkConfig(namespace=["b"], table=name, storage=IcebergStorage.Local(str(work / "lake")))
        return (
            Environment(checkpoint_dir=str(work / "checkpoints"), arrow_native=arrow_native)
            .from_source(FileSource(str(folder), format="parquet", max_files_per_epoch=per_epoch))
            .filter_expr(col("id") >= 0)
            .to_sink(IcebergSink(config))
            .execute(name)
            .progress
        )

    def all_rows() -> dict[str, Any]:
        seen = run("benchmark", events_folder(rows, rows_per_file), rows_per_epoch // rows_per_file)
        assert seen.rows == rows
        return {"epochs": seen.epochs, "files": seen.files, "mb": seen.bytes / 1e6}

    try:
        run("warm_up", events_folder(*_WARM_UP), _WARM_UP_FILES)
        name = NATIVE if arrow_native else GENERAL
        return measured(name, rows, all_rows, case_of(rows_per_epoch))
    finally:
        shutil.rmtree(work)


def limit(folder: Path, rows: int) -> Result:
    """The limit: one thread reads each file in batches and writes them again."""
    work = Path(tempfile.mkdtemp(prefix="volley-bench-"))

    def run() -> dict[str, Any]:
        for path in sorted(folder.glob("*.parquet")):
            source = pq.ParquetFile(path)
            with pq.ParquetWriter(work / path.name, source.schema_arrow) as writer:
                for group in range(source.num_row_groups):
                    writer.write_table(source.read_row_group(group, use_threads=False))
        return {}

    try:
        return measured("pyarrow alone, one thread", rows, run, LIMIT)
    finally:
        shutil.rmtree(work)


def one_run(peer: str, rows: int, rows_per_file: int, rows_per_epoch: int) -> Result:
    """One run of one peer, in a process of its own."""
    if peer != "runtime":
        sizes = json.dumps([rows, rows_per_file, rows_per_epoch])
        return in_own_process("benchmarks.files_to_iceberg", peer, sizes)
    return runtime(
        "files",
        folder=events_folder(rows, rows_per_file),
        warm_up=events_folder(*_WARM_UP),
        rows=rows,
        files_per_epoch=rows_per_epoch // rows_per_file,
        case=case_of(rows_per_epoch),
    )


def run(arguments: list[str]) -> None:
    """Alternating runs, each in a process of its own: a table of medians with their spread, and each run as JSON."""
    asked = _asked(arguments)
    events_folder(asked.rows, asked.rows_per_file)
    events_folder(*_WARM_UP)
    skipped = missing() if "runtime" in asked.peers else None
    turns = [
        (peer, epoch)
        for peer in asked.peers
        # The limit knows no epochs.
        for epoch in (asked.rows_per_epoch[:1] if peer == "limit" else asked.rows_per_epoch)
        if not (peer == "runtime" and skipped)
    ]
    results = [
        one_run(peer, asked.rows, asked.rows_per_file, epoch) for _ in range(asked.repeat) for peer, epoch in turns
    ]
    report = show(asked.title, results, skipped)
    for figure in aims(compared(results)):
        report.figure(figure)
    report.print()


def _asked(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks files_to_iceberg", description=SUMMARY)
    parser.add_argument("--rows", type=int, default=8_000_000, help="40,000,000 for a steady state; disk stays small")
    parser.add_argument("--rows-per-file", type=int, default=500_000)
    parser.add_argument("--rows-per-epoch", type=int, nargs="+", default=[1_000_000, 4_000_000])
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=PEERS)
    parser.add_argument("--repeat", type=int, default=5, help="alternating runs of each peer")
    parser.add_argument("--title", default="files_to_iceberg", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def main() -> None:
    """One run of one peer; prints its Result."""
    peer, (rows, rows_per_file, rows_per_epoch) = sys.argv[1], json.loads(sys.argv[2])
    match peer:
        case "limit":
            result = limit(events_folder(rows, rows_per_file), rows)
        case "append":
            folder, per_epoch = events_folder(rows, rows_per_file), rows_per_epoch // rows_per_file
            result = append(folder, rows, per_epoch, case_of(rows_per_epoch))
        case _:
            result = volley(rows, rows_per_file, rows_per_epoch, arrow_native=peer != "general")
    print_result(result)


if __name__ == "__main__":
    main()
