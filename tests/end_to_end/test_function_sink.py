"""Rows for a function: in the tasks batch by batch, or on the driver epoch by epoch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from volley import Environment, Epoch, FunctionSink, JobError, MemorySink, MemorySource, col

ROWS = [{"id": number} for number in range(10)]


def test_tasks_call_it_with_each_batch_and_the_epoch(environment: Environment, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()

    def keep(batch: pa.RecordBatch, epoch: Epoch) -> None:
        (out / f"{epoch.query_id}-{epoch.number}.json").write_text(json.dumps(batch.to_pylist()))

    job = environment.from_source(MemorySource(ROWS, rows_per_epoch=4)).to_sink(FunctionSink(keep)).execute("function")
    found = {int(path.stem.rpartition("-")[2]): json.loads(path.read_text()) for path in out.iterdir()}
    assert found == {0: ROWS[:4], 1: ROWS[4:8], 2: ROWS[8:]}
    assert job.progress.rows == 10


def test_the_driver_calls_it_once_an_epoch_that_has_rows(environment: Environment) -> None:
    seen: list[tuple[int, list[dict[str, Any]]]] = []
    sink = FunctionSink(lambda rows, epoch: seen.append((epoch.number, rows.to_pylist())), on_driver=True)
    rows = environment.from_source(MemorySource(ROWS, rows_per_epoch=4)).filter_expr(col("id") > 5)
    rows.to_sink(sink).execute("driver")
    assert seen == [(1, ROWS[6:8]), (2, ROWS[8:])]


@pytest.mark.parametrize("on_driver", [False, True])
def test_a_function_that_fails_is_named_with_its_line_and_called_again_by_the_next_run(
    environment: Environment, on_driver: bool, tmp_path: Path
) -> None:
    marker, other = tmp_path / "failed once", MemorySink("other")

    def sometimes(rows: Any, epoch: Epoch) -> None:
        if epoch.number == 1 and not marker.exists():
            marker.touch()
            raise ValueError("on purpose")

    stream = environment.from_source(MemorySource(ROWS, rows_per_epoch=4))
    pipeline = stream.to_sink(other).to_sink(FunctionSink(sometimes, on_driver))
    with pytest.raises(JobError, match=r"test_function_sink\.py:\d+: FunctionSink\(.*sometimes\) failed on 4 rows"):
        pipeline.execute("fails")
    pipeline.execute("fails")
    assert marker.exists()
    assert sorted(row["id"] for row in other.rows()) == list(range(10))
