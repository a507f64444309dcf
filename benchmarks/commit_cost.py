"""What the commit of one epoch costs against the snapshots the table retains, beside plain pyiceberg."""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import DataFile

from benchmarks.lake import open_sink, write
from benchmarks.report import Report
from volley import Epoch, IcebergSinkConfig, IcebergStorage, WriteResult
from volley.iceberg.commit.committer import IcebergCommitter

SUMMARY = "CPU of one commit at 10 to 1,000 retained snapshots, beside plain pyiceberg"

_SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("at", pa.timestamp("us", "UTC"))])
_QUERY = "00000000-benchmark"


@dataclass(frozen=True)
class Cost:
    """The median of one commit: CPU and wall time in milliseconds, at so many retained snapshots."""

    peer: str
    snapshots: int
    cpu_ms: float
    wall_ms: float


def run(arguments: list[str]) -> None:
    """Grow one table; measure the two peers on it where it has reached each size."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks commit_cost", description=SUMMARY)
    parser.add_argument("--snapshots", type=int, nargs="+", default=[10, 50, 200, 1_000])
    parser.add_argument("--commits", type=int, default=25, help="commits that are measured at each size")
    asked = parser.parse_args(arguments)
    work = Path(tempfile.mkdtemp(prefix="volley-bench-"))
    try:
        costs = _costs(work, asked.snapshots, asked.commits)
    finally:
        shutil.rmtree(work)
    least = {peer: min(cost.cpu_ms for cost in costs if cost.peer == peer) for peer in ("Volley", "plain pyiceberg")}
    report = Report("commit_cost", "peer", "snapshots", "CPU ms", "wall ms", "× its least")
    for cost in costs:
        report.add(
            cost,
            cost.peer,
            f"{cost.snapshots:,}",
            f"{cost.cpu_ms:.1f}",
            f"{cost.wall_ms:.1f}",
            f"{cost.cpu_ms / least[cost.peer]:.1f}",
        )
    report.print()


def _costs(work: Path, sizes: list[int], commits: int) -> list[Cost]:
    config = IcebergSinkConfig(namespace="b", table="ours", storage=IcebergStorage.Local(str(work)))
    committer = open_sink(config, _SCHEMA)
    costs: list[Cost] = []
    epoch = 0

    def ours(number: int) -> Callable[[], None]:
        results = _written(committer, number)

        def commit() -> None:
            # What the job does each epoch: ask for the last one, then commit.
            committer.last_epoch(_QUERY)
            committer.commit(Epoch(_QUERY, number), results)

        return commit

    for size in sizes:
        while epoch < size - commits // 2:
            ours(epoch)()
            epoch += 1
        costs.append(_plain(config, committer, f"plain_{size}", commits))
        measured = [_timed(ours(epoch + more)) for more in range(commits)]
        epoch += commits
        costs.append(_median("Volley", size, measured))
    return costs


def _plain(config: IcebergSinkConfig, committer: IcebergCommitter, name: str, commits: int) -> Cost:
    """pyiceberg alone on a table of its own with the same snapshots."""
    catalog = config.ref.load_catalog()
    plain = SqlCatalog("volley", **catalog.properties)
    table = plain.register_table(("b", name), plain.load_table(config.identifier).metadata_location)
    with table.transaction() as change:
        change.set_properties({"write.metadata.delete-after-commit.enabled": "false"})

    def append(file: DataFile) -> None:
        table = plain.load_table(("b", name))
        with table.transaction() as transaction, transaction.update_snapshot().fast_append() as snapshot:
            snapshot.append_data_file(file)

    files = [_written(committer, number)[0].committables[0].data_file for number in range(commits)]
    measured = [_timed(partial(append, file)) for file in files]
    retained = len(plain.load_table(("b", name)).snapshots()) - commits // 2
    plain.close()
    catalog.close()
    return _median("plain pyiceberg", retained, measured)


def _written(committer: IcebergCommitter, number: int) -> list[WriteResult]:
    return [write(committer, number, [pa.record_batch([[number], ["a name"], [number]], schema=_SCHEMA)])]


def _timed(commit: Callable[[], None]) -> tuple[float, float]:
    cpu, wall = time.process_time(), time.perf_counter()
    commit()
    return (time.process_time() - cpu) * 1e3, (time.perf_counter() - wall) * 1e3


def _median(peer: str, snapshots: int, measured: list[tuple[float, float]]) -> Cost:
    cpu, wall = (statistics.median(values) for values in zip(*measured, strict=True))
    return Cost(peer, snapshots, cpu, wall)
