"""The cost of one epoch's commit by its data files and by the table's snapshots, beside plain pyiceberg."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import pyarrow as pa
from pyiceberg.table import Table

from benchmarks.benchmark import Limit, Run, benchmark, within
from benchmarks.lake import Lake, commit, open_sink, write
from benchmarks.measure import medians, timed
from volley import Committer, WriteResult

_SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("at", pa.timestamp("us", "UTC"))])
_VOLLEY, _PLAIN = "Volley", "plain pyiceberg"


@benchmark(
    options={"files": (1, 10, 100, 1_000), "commits": 5},
    cases="files",
    case="files",
    figures=("wall_ms", "cpu_ms"),
    bounds=within(Limit("wall_ms", "ms", most=5_000, of=_VOLLEY)),
)
def snapshot_creation(run: Run) -> None:
    """One snapshot of 1 to 1,000 data files, beside plain pyiceberg (target: 5 s)."""
    lake, files = Lake(run.folder), int(run.case)
    ours, plain = (open_sink(lake.named(name), _SCHEMA) for name in ("ours", "plain"))
    own, other = list[dict[str, float]](), list[dict[str, float]]()
    # The peers commit in turn, each to a table of its own.
    for number in range(run.options["commits"]):
        own.append(timed(partial(commit, ours, number, _written(ours, number, files))))
        other.append(timed(partial(_append, partial(lake.table, "plain"), _written(plain, number, files))))
    run.record(_VOLLEY, **medians(own))
    run.record(_PLAIN, **medians(other))


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
    # One table grows; at each size both peers are measured, half of their commits before it and half after.
    for size in run.options["snapshots"]:
        for number in range(epoch, start := max(epoch, size - commits // 2)):
            commit(committer, number, _written(committer, number))
        run.record(_PLAIN, size, **_plain(lake, committer, f"plain_{size}", commits))
        epochs = range(start, epoch := start + commits)
        results = ((number, _written(committer, number)) for number in epochs)
        run.record(_VOLLEY, size, **medians(timed(partial(commit, committer, *each)) for each in results))


def _plain(lake: Lake, committer: Committer, name: str, commits: int) -> dict[str, float]:
    """Measure pyiceberg alone, on a table of its own that has the same snapshots."""
    catalog = lake.catalog()
    table = catalog.register_table(("b", name), lake.table().metadata_location)
    with table.transaction() as change:
        change.set_properties({"write.metadata.delete-after-commit.enabled": "false"})
    results = [_written(committer, number) for number in range(commits)]
    load = partial(catalog.load_table, ("b", name))
    figures = medians(timed(partial(_append, load, result)) for result in results)
    catalog.close()
    return figures


def _written(committer: Committer, epoch: int, files: int = 1) -> list[WriteResult]:
    batch = pa.record_batch([[epoch], ["a name"], [epoch]], schema=_SCHEMA)
    return [write(committer, epoch, [batch], task) for task in range(files)]


def _append(load: Callable[[], Table], results: Sequence[WriteResult]) -> None:
    """Append the same files by plain pyiceberg."""
    with load().transaction() as change, change.update_snapshot().fast_append() as snapshot:
        for result in results:
            snapshot.append_data_file(result.committables[0].data_file)
