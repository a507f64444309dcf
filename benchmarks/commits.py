"""The cost of one epoch's commit by its data files and by the table's snapshots, beside plain pyiceberg."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa
from pyiceberg.table import Table

from benchmarks.benchmark import benchmark
from benchmarks.lake import QUERY, Lake, open_sink, write
from benchmarks.rows import Bound, Row
from benchmarks.run import Run
from volley import Committer, Epoch, WriteResult

_SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("at", pa.timestamp("us", "UTC"))])
_PLAIN = "plain pyiceberg"
_MOST_MS = 5_000

_Commit = Callable[[], None]


def _bounds(row: Row) -> list[Bound]:
    return row.below("wall_ms", _MOST_MS, "ms") if row.peer == "Volley" else []


@benchmark(
    options={"files": (1, 10, 100, 1_000), "commits": 5},
    cases="files",
    case="files",
    figures=("wall_ms", "cpu_ms"),
    plots=("wall_ms", "cpu_ms"),
    bounds=_bounds,
)
def snapshot_creation(run: Run) -> None:
    """One snapshot of 1 to 1,000 data files, beside plain pyiceberg (target: 5 s)."""
    lake, files = Lake(run.folder), int(run.case)
    ours, plain = (open_sink(replace(lake.config, table=name), _SCHEMA) for name in ("ours", "plain"))
    own, other = list[tuple[float, float]](), list[tuple[float, float]]()
    # The peers commit in turn, each to a table of its own.
    for number in range(run.options["commits"]):
        mine, theirs = _written(ours, number, files), _written(plain, number, files)
        own.append(_timed(partial(ours.commit, Epoch(QUERY, number), mine)))
        other.append(_timed(partial(_append, partial(lake.table, "plain"), theirs)))
    _record(run, "Volley", files, own)
    _record(run, _PLAIN, files, other)


@benchmark(
    options={"snapshots": (10, 50, 200, 1_000), "commits": 25},
    case="snapshots",
    figures=("cpu_ms", "wall_ms"),
    plots=("cpu_ms",),
)
def commit_cost(run: Run) -> None:
    """CPU of one commit at 10 to 1,000 retained snapshots, beside plain pyiceberg."""
    lake, commits, epoch = Lake(run.folder), run.options["commits"], 0
    committer = open_sink(lake.config, _SCHEMA)

    def ours(number: int) -> _Commit:
        results = _written(committer, number)

        def commit() -> None:
            # A job asks for the last epoch before each commit.
            committer.last_epoch(QUERY)
            committer.commit(Epoch(QUERY, number), results)

        return commit

    # One table grows; at each size both peers are measured.
    for size in run.options["snapshots"]:
        while epoch < size - commits // 2:
            ours(epoch)()
            epoch += 1
        _plain(run, lake, committer, f"plain_{size}")
        _record(run, "Volley", size, [_timed(ours(epoch + more)) for more in range(commits)])
        epoch += commits


def _plain(run: Run, lake: Lake, committer: Committer, name: str) -> None:
    """Measure pyiceberg alone, on a table of its own that has the same snapshots."""
    catalog, commits = lake.catalog(), run.options["commits"]
    table = catalog.register_table(("b", name), lake.table().metadata_location)
    with table.transaction() as change:
        change.set_properties({"write.metadata.delete-after-commit.enabled": "false"})
    results = [_written(committer, number) for number in range(commits)]
    found = [_timed(partial(_append, partial(catalog.load_table, ("b", name)), each)) for each in results]
    retained = len(catalog.load_table(("b", name)).snapshots()) - commits // 2
    catalog.close()
    _record(run, _PLAIN, retained, found)


def _written(committer: Committer, epoch: int, files: int = 1) -> list[WriteResult]:
    batch = pa.record_batch([[epoch], ["a name"], [epoch]], schema=_SCHEMA)
    return [write(committer, epoch, [batch], task) for task in range(files)]


def _append(load: Callable[[], Table], results: Sequence[WriteResult]) -> None:
    """Append the same files by plain pyiceberg."""
    with load().transaction() as change, change.update_snapshot().fast_append() as snapshot:
        for result in results:
            snapshot.append_data_file(result.committables[0].data_file)


def _timed(commit: _Commit) -> tuple[float, float]:
    """Milliseconds of wall time and of CPU."""
    cpu, wall = time.process_time(), time.perf_counter()
    commit()
    return (time.perf_counter() - wall) * 1e3, (time.process_time() - cpu) * 1e3


def _record(run: Run, peer: str, case: int, found: Sequence[tuple[float, float]]) -> None:
    wall, cpu = (statistics.median(values) for values in zip(*found, strict=True))
    run.record(peer, case, wall_ms=wall, cpu_ms=cpu)
