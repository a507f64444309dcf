"""Files → filter → Iceberg, beside the limit: pyarrow reading and writing the same rows and doing nothing else."""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from benchmarks.events import write_events
from benchmarks.measure import Result, in_own_process, measured, print_result
from benchmarks.report import Report
from volley import Environment, FileSource, IcebergSink, IcebergSinkConfig, IcebergStorage, Progress, col

PEERS = ("limit", "volley", "one-epoch", "general")
SUMMARY = "files → Iceberg: rows/s and rows per CPU-second, beside the pyarrow limit"


def volley(rows: int, files: int, files_per_epoch: int, arrow_native: bool) -> Result:
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
        seen = run("benchmark", _input(rows, files), files_per_epoch)
        assert seen.rows == rows
        return {"epochs": seen.epochs, "files": seen.files, "mb": seen.bytes / 1e6}

    try:
        run("warm-up", _input(160_000, files), 4)
        return measured("Volley, Arrow-native" if arrow_native else "Volley, general path", rows, all_rows)
    finally:
        shutil.rmtree(work)


def limit(rows: int, files: int) -> Result:
    """The limit: one thread reads each file in batches and writes them again."""
    folder, work = _input(rows, files), Path(tempfile.mkdtemp(prefix="volley-bench-"))

    def run() -> dict[str, Any]:
        for path in sorted(folder.glob("*.parquet")):
            source = pq.ParquetFile(path)
            with pq.ParquetWriter(work / path.name, source.schema_arrow) as writer:
                for group in range(source.num_row_groups):
                    writer.write_table(source.read_row_group(group, use_threads=False))
        return {}

    try:
        return measured("pyarrow alone, one thread", rows, run)
    finally:
        shutil.rmtree(work)


def _input(rows: int, files: int) -> Path:
    folder = Path(tempfile.gettempdir()) / f"volley-bench-events-{rows}-{files}"
    write_events(folder, rows, files)
    return folder


def run(arguments: list[str]) -> None:
    """Alternating runs, each in a process of its own: a table of medians with their spread, and each run as JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks files_to_iceberg", description=SUMMARY)
    parser.add_argument("--rows", type=int, default=8_000_000)
    parser.add_argument("--repeat", type=int, default=3, help="alternating runs of each peer")
    asked = parser.parse_args(arguments)
    files = 16
    _input(asked.rows, files)
    results = [
        in_own_process("benchmarks.files_to_iceberg", peer, str(asked.rows), str(files))
        for _ in range(asked.repeat)
        for peer in PEERS
    ]
    report = Report("files_to_iceberg", "what", "rows/s", "min–max", "rows per CPU-s", "CPU-s", "worker peak MB")
    for what in dict.fromkeys(map(_what, results)):
        same = [result for result in results if _what(result) == what]
        speeds = [result.rows_per_second for result in same]
        for result in same[1:]:
            report.note(result)
        report.add(
            same[0],
            what,
            f"{statistics.median(speeds):,.0f}",
            f"{min(speeds):,.0f}–{max(speeds):,.0f}",
            f"{statistics.median(result.rows_per_cpu_second for result in same):,.0f}",
            f"{statistics.median(result.cpu_seconds for result in same):.1f}",
            f"{max(result.worker_mb for result in same):,.0f}",
        )
    report.print()


def _what(result: Result) -> str:
    return f"{result.name}, {result.extra['epochs']} epochs" if "epochs" in result.extra else result.name


def main() -> None:
    """One run of one peer; prints its Result."""
    arguments = argparse.ArgumentParser(description=SUMMARY)
    arguments.add_argument("peer", choices=PEERS)
    arguments.add_argument("rows", type=int)
    arguments.add_argument("files", type=int)
    asked = arguments.parse_args()
    if asked.peer == "limit":
        print_result(limit(asked.rows, asked.files))
        return
    per_epoch = asked.files if asked.peer == "one-epoch" else max(1, asked.files // 8)
    print_result(volley(asked.rows, asked.files, per_epoch, asked.peer != "general"))


if __name__ == "__main__":
    main()
