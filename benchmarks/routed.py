"""A sink with many tables, by their number: its first epoch, which makes them, then epochs of all and of ten."""

from __future__ import annotations

import pickle
import time
from itertools import pairwise

import pyarrow as pa

from benchmarks.benchmark import benchmark
from benchmarks.lake import QUERY, Lake
from benchmarks.measure import measured
from benchmarks.run import Run
from volley import Committer, Epoch, IcebergSink, Metrics, SinkContext, WriteResult

_SCHEMA = pa.schema({"kind": pa.string(), "id": pa.int64(), "name": pa.string()})
_EPOCHS = 3
_ROWS_A_TABLE = 200
_FIGURES = ("driver_ms", "task_ms", "driver_mb")


@benchmark(
    options={"tables": (1, 50, 500)}, cases="tables", case="tables", figures=(*_FIGURES, "writer_kb"), plots=_FIGURES
)
def scale_routed(run: Run) -> None:
    """An epoch of one task with 200 rows for each of 1 to 500 tables: CPU of the driver and of the task."""
    tables = int(run.case)
    config = Lake(run.folder).config
    context = SinkContext("benchmark", _SCHEMA, Metrics(), state=f"{run.folder}/state")
    committer = IcebergSink(config).routed("{kind}", limit=tables).open(context)
    _record(run, "first epoch", committer, [0], tables)
    _record(run, "epoch", committer, range(1, _EPOCHS + 1), tables)
    few = range(_EPOCHS + 1, 2 * _EPOCHS + 1)
    _record(run, "epoch with rows for ten", committer, few, min(10, tables))
    committer.stop()


def _record(run: Run, peer: str, committer: Committer, epochs: range | list[int], tables: int) -> None:
    def timed() -> dict[str, float]:
        parts = [_epoch(committer, Epoch(QUERY, number), tables) for number in epochs]
        return {name: sum(part[name] for part in parts) / len(parts) for name in parts[0]}

    figures = measured(timed)
    run.record(peer, **{name: figures[name] for name in (*_FIGURES, "writer_kb")})


def _epoch(committer: Committer, epoch: Epoch, tables: int) -> dict[str, float]:
    """Run an epoch; return the CPU of the driver and of the task in milliseconds, of all threads."""
    times = [time.process_time()]
    writer = pickle.dumps(committer.writer(epoch))
    times.append(time.process_time())
    result = _task(writer, tables)
    times.append(time.process_time())
    committer.commit(epoch, [result])
    planned, written, committed = ((after - before) * 1e3 for before, after in pairwise([*times, time.process_time()]))
    return {"driver_ms": planned + committed, "task_ms": written, "writer_kb": len(writer) / 1e3}


def _task(pickled: bytes, tables: int) -> WriteResult:
    writer = pickle.loads(pickled).open(0)
    rows = tables * _ROWS_A_TABLE
    kinds = pa.array([f"t{number % tables}" for number in range(rows)])
    writer.write(pa.record_batch([kinds, pa.array(range(rows)), pa.array(["a name"] * rows)], schema=_SCHEMA))
    result: WriteResult = writer.close()
    return result
