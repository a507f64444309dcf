"""How long an epoch's commit takes by the data files in it, beside plain pyiceberg."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from benchmarks.lake import Lake, open_sink, write
from benchmarks.report import Figure, Report
from volley import Epoch, WriteResult
from volley.iceberg.commit.committer import IcebergCommitter

SUMMARY = "one snapshot of 1 to 1,000 data files, beside plain pyiceberg (target: 5 s)"

_SCHEMA = pa.schema({"id": pa.int64(), "name": pa.string()})
_QUERY = "00000000-benchmark"
_SEED_SECONDS = 5


@dataclass(frozen=True)
class Snapshot:
    """The median of some commits: CPU and wall time in milliseconds, of so many data files."""

    peer: str
    files: int
    cpu_ms: float
    wall_ms: float


def run(arguments: list[str]) -> None:
    """Each size with both peers, in alternating commits on one table each."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks snapshot_creation", description=SUMMARY)
    parser.add_argument("--files", type=int, nargs="+", default=[1, 10, 100, 1_000])
    parser.add_argument("--commits", type=int, default=5, help="commits of each size")
    asked = parser.parse_args(arguments)
    report = Report("snapshot_creation", "peer", "files", "CPU ms", "wall ms")
    for files in asked.files:
        for found in _snapshots(files, asked.commits):
            report.add(found, found.peer, f"{files:,}", f"{found.cpu_ms:.1f}", f"{found.wall_ms:.1f}")
            if found.peer == "Volley":
                what = f"a snapshot of {files:,} files"
                report.figure(Figure.below(what, found.wall_ms / 1e3, _SEED_SECONDS, "s"))
    report.print()


def _snapshots(files: int, commits: int) -> list[Snapshot]:
    with Lake.temporary() as lake:
        ours, plain = (open_sink(replace(lake.config, table=name), _SCHEMA) for name in ("ours", "plain"))
        pairs = []
        for number in range(commits):
            mine, theirs = _written(ours, number, files), _written(plain, number, files)
            commit = partial(ours.commit, Epoch(_QUERY, number), mine)
            pairs.append((_timed(commit), _timed(partial(_append, lake, theirs))))
    own, other = zip(*pairs, strict=True)
    return [_median("Volley", files, own), _median("plain pyiceberg", files, other)]


def _written(committer: IcebergCommitter, epoch: int, files: int) -> list[WriteResult]:
    batch = pa.record_batch([[epoch], ["a name"]], schema=_SCHEMA)
    return [write(committer, epoch, [batch], task) for task in range(files)]


def _append(lake: Lake, results: Sequence[WriteResult]) -> None:
    """What pyiceberg does with the same files."""
    with lake.table("plain").transaction() as change, change.update_snapshot().fast_append() as snapshot:
        for result in results:
            snapshot.append_data_file(result.committables[0].data_file)


def _timed(commit: Callable[[], None]) -> tuple[float, float]:
    cpu, wall = time.process_time(), time.perf_counter()
    commit()
    return (time.process_time() - cpu) * 1e3, (time.perf_counter() - wall) * 1e3


def _median(peer: str, files: int, measured: Sequence[tuple[float, float]]) -> Snapshot:
    cpu, wall = (statistics.median(values) for values in zip(*measured, strict=True))
    return Snapshot(peer, files, cpu, wall)
