"""Histories: whether an epoch's work grows with its changes, or with the versions that the table has."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.benchmark import Limit, Run, benchmark
from benchmarks.events import numbered
from benchmarks.lake import Lake, commit, write, write_epoch
from benchmarks.measure import medians, timed
from volley import IcebergSink, Metrics, Partitioning, SinkContext, WriteResult
from volley.contracts.sink import ExecutorTask
from volley.iceberg import History

_STEP = 1_000
"""By so much the sequence grows from one version of a key to the next."""
_FILES = 4
"""In so many files are the versions of one time."""
_MODE = History("id", sequence="seq", op_field="op", strategy="merge_on_read")
_IN_ORDER, _LATE = "in order", "a tenth late"
_FEWEST = 1_000_000


@benchmark(
    rows=10_000,
    repeat=3,
    options={"keys": 1_000_000, "epochs": 8},
    cases={"versions": (_FEWEST, 5_000_000, 10_000_000)},
    peers={"in_order": _IN_ORDER, "late": _LATE},
    case="versions",
    figures=("cpu_ms", "table_files", "files_read", "files_written"),
    plots=("cpu_ms",),
    bounds=[
        Limit("cpu_ms", "CPU", most=1.5, of=_IN_ORDER, case=most, beside_case=_FEWEST, times="× that at 1 M versions")
        for most in (5_000_000, 10_000_000)
    ],
)
def history(run: Run) -> None:
    """An epoch of 10,000 changes of any of a million keys whose versions are 1, 5 or 10 M: CPU, and files touched."""
    keys, dice = run.options["keys"], np.random.default_rng(1)
    versions = int(run.case) // keys
    with tempfile.TemporaryDirectory(dir=run.folder) as folder:
        lake = Lake(Path(folder))
        table = lake.config.with_partitioning([Partitioning.identity("is_current")])
        write_epoch(table.with_max_records(keys // _FILES), 0, _versions(keys, versions))
        config, costs = table.with_commit_mode(_MODE), list[dict[str, float]]()
        touched = Counter[str]()
        for epoch in range(run.options["epochs"]):
            ids = np.sort(dice.choice(keys, run.rows, replace=False))
            sequences = np.full(run.rows, (versions + 1 + epoch) * _STEP + _STEP // 2)
            if run.peer == "late":
                sequences[::10] = (versions - 2) * _STEP + _STEP // 2 + epoch
            table_files = lake.table().inspect.data_files().num_rows
            touched.clear()
            costs.append(timed(partial(_write, config, 1 + epoch, _changes(ids, sequences), touched)))
        # The first epochs warm up.
        spent = medians(costs[3:])["cpu_ms"]
        summary = lake.table().current_snapshot().summary.additional_properties  # type: ignore[union-attr]
        written = sum(int(summary.get(name, 0)) for name in ("added-data-files", "added-delete-files"))
        run.record(cpu_ms=spent, table_files=table_files, files_read=touched["read"], files_written=written)
        rows = keys * versions + run.rows * run.options["epochs"]
        assert lake.table().scan(selected_fields=("id",)).count() == rows, "a change did not make one version"


def _versions(keys: int, versions: int) -> Iterator[pa.RecordBatch]:
    """All versions of all keys, an old one of all keys after the other, the last one current."""
    for version in range(versions):
        for ids in np.array_split(np.arange(keys), _FILES):
            sequences = version * _STEP + ids % (_STEP // 2)
            is_last = version == versions - 1
            ends = pa.nulls(len(ids), pa.int64()) if is_last else pa.array(sequences + _STEP)
            current = pa.repeat(pa.scalar(is_last), len(ids))
            columns = [pa.array(sequences), ends, current]
            values = _changes(ids, sequences).drop_columns("op")
            yield pa.RecordBatch.from_arrays(
                [*values.columns, *columns], [*values.schema.names, "valid_from", "valid_to", "is_current"]
            )


def _changes(ids: np.ndarray[Any, Any], sequences: np.ndarray[Any, Any]) -> pa.RecordBatch:
    columns = {
        "id": pa.array(ids),
        "seq": pa.array(sequences),
        "a": pa.array(ids * 3 + sequences),
        "b": pa.array(ids / 7),
        "c": numbered("", ids),
        "op": pa.repeat(pa.scalar("u"), len(ids)),
    }
    return pa.RecordBatch.from_pydict(columns)


def _write(config: Any, epoch: int, changes: pa.RecordBatch, touched: Counter[str]) -> None:
    """Write an epoch, and count the data files that are searched."""

    def run(tasks: Sequence[ExecutorTask]) -> list[WriteResult]:
        searching: Any = [task for task in tasks if getattr(task, "remembered", None) is False]
        touched["read"] += sum(len(task.files) for task in searching)
        return [task() for task in tasks]

    committer = IcebergSink(config).open(SinkContext("benchmark", changes.schema, Metrics(), run))
    commit(committer, epoch, [write(committer, epoch, [changes])])
