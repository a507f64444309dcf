"""The contract of steps that keep state by key: rows may be divided in any way, and an epoch may be run again."""

from __future__ import annotations

import pickle
import random
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.windows.local import LocalStep, joined, windows
from volley import (
    DataStream,
    Environment,
    MemorySource,
    calendar,
    count,
    cumulative,
    last,
    previous,
    row_number,
    session,
    sum_,
    tumbling,
)

START = datetime(2024, 1, 1, tzinfo=UTC)
SCHEMA = pa.schema([("id", pa.int64()), ("k", pa.string()), ("x", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
RIGHT = SCHEMA.remove(0)
EPOCHS, ROWS = 4, 40

Row = dict[str, Any]


def stream(schema: pa.Schema = SCHEMA, **more: Any) -> DataStream:
    return Environment().from_source(MemorySource([], schema, **more))


@dataclass(frozen=True)
class Case:
    """An operator.

    Args:
        build: Returns the stream that ends in it, for a number of buckets.
        is_join: True if it has two inputs.
        has_buckets: True if their number may be chosen.
    """

    build: Callable[[int], DataStream]
    is_join: bool = False
    has_buckets: bool = True


def _windows(window: Any, emit: Any, buckets: int) -> DataStream:
    users = stream().key_by("k").window(window, on="at", lateness="1m", emit=emit, buckets=buckets)
    return users.aggregate(n=count(), total=sum_("x"), last=last("id"))


def _joined(how: Any, buckets: int) -> DataStream:
    times: Any = {"within": "20s", "time": "at", "lateness": "1m"}
    return stream().join(
        stream(RIGHT, name="right"), on="k", how=how, **times, columns=["x"], suffix="_2", buckets=buckets
    )


CASES = {
    "tumbling": Case(lambda buckets: _windows(tumbling("1m"), "final", buckets)),
    "cumulative": Case(lambda buckets: _windows(cumulative("2m", step="30s"), "updates", buckets)),
    "months": Case(lambda buckets: _windows(calendar("month", "Asia/Tokyo"), "updates", buckets)),
    "groups": Case(lambda buckets: stream().key_by("k").retain("1d", buckets=buckets).aggregate(total=sum_("x"))),
    "places": Case(
        lambda buckets: stream().key_by("k").order_by("x desc", "id", buckets=buckets).with_columns(place=row_number())
    ),
    "sessions": Case(lambda buckets: _windows(session("10s"), "updates", buckets)),
    "series": Case(
        lambda buckets: (
            stream().key_by("k").series("at", lateness="1m", buckets=buckets).with_columns(before=previous("x"))
        )
    ),
    "join": Case(lambda buckets: _joined("inner", buckets), is_join=True),
    "full join": Case(lambda buckets: _joined("full", buckets), is_join=True),
    "deduplicate": Case(lambda buckets: stream().deduplicate("k", "x", buckets=buckets)),
    "deduplicate within": Case(
        lambda buckets: stream().deduplicate("k", "x", event_time="at", within="5m", buckets=buckets)
    ),
    "limit": Case(lambda buckets: stream().limit(70), has_buckets=False),
}
cases = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def step(case: Case, folder: Path, buckets: int = 4, tasks: int = 2) -> LocalStep:
    node = case.build(buckets)
    return (
        joined(node, SCHEMA, RIGHT, folder, tasks=tasks) if case.is_join else windows(node, SCHEMA, folder, tasks=tasks)
    )


def rows_of(epoch: int) -> list[Row]:
    """An epoch's rows, in the order of their ids; some keys are null."""
    dice = random.Random(epoch)
    return [
        {
            "id": epoch * ROWS + place,
            "k": dice.choice([None, "a", "b", "c"]),
            "x": dice.randrange(5),
            "at": START + timedelta(minutes=epoch, seconds=dice.randrange(60)),
        }
        for place in range(ROWS)
    ]


def split(case: Case, rows: Sequence[Row], parts: int) -> list[tuple[int, list[pa.RecordBatch]]]:
    """The rows in so many splits, whose batches are small, too; of a join, each second one is on the right side."""
    sides = [(0, SCHEMA, rows[::2]), (1, RIGHT, rows[1::2])] if case.is_join else [(0, SCHEMA, rows)]
    splits = []
    for source, schema, own in sides:
        size = -(-len(own) // parts)
        for begin in range(0, len(own), size):
            part = own[begin : begin + size]
            batches = [pa.RecordBatch.from_pylist(part[at : at + 7], schema) for at in range(0, len(part), 7)]
            splits.append((source, batches))
    return splits


def run(case: Case, folder: Path, parts: int = 1, **more: int) -> list[list[str]]:
    """What comes out of each epoch, sorted."""
    operator = step(case, folder, **more)
    return [shown(operator.epoch(epoch, split(case, rows_of(epoch), parts))) for epoch in range(EPOCHS)]


def shown(rows: pa.Table) -> list[str]:
    return sorted(map(repr, rows.to_pylist()))


@cases
def test_splits_batches_and_tasks_make_no_difference(case: Case, tmp_path: Path) -> None:
    whole = run(case, tmp_path / "one", tasks=1)
    assert run(case, tmp_path / "many", parts=5, tasks=3) == whole
    assert any(whole)


@cases
def test_the_number_of_buckets_makes_no_difference(case: Case, tmp_path: Path) -> None:
    if case.has_buckets:
        assert run(case, tmp_path / "one", buckets=1) == run(case, tmp_path / "seven", buckets=7)


@cases
def test_the_number_of_buckets_may_change_between_epochs(case: Case, tmp_path: Path) -> None:
    """Also that of an epoch that is run again."""
    whole, found = run(case, tmp_path / "whole"), []
    for epoch, numbers in enumerate([(4,), (1, 3), (7, 5), (5,)] if case.has_buckets else []):
        for buckets in numbers:
            rows = step(case, tmp_path / "again", buckets).epoch(epoch, split(case, rows_of(epoch), 1))
        found.append(shown(rows))
    assert found == (whole if case.has_buckets else [])


@cases
@pytest.mark.parametrize("repeated", [0, EPOCHS - 1])
def test_an_epoch_that_is_run_again_has_the_same_rows_and_leaves_the_same_state(
    case: Case, repeated: int, tmp_path: Path
) -> None:
    """By another process, which knows what is in the folder alone."""
    whole, found = run(case, tmp_path / "whole"), []
    for epoch in range(EPOCHS):
        if epoch == repeated:
            step(case, tmp_path / "again").epoch(epoch, split(case, rows_of(epoch), 1))
        found.append(shown(step(case, tmp_path / "again").epoch(epoch, split(case, rows_of(epoch), 1))))
    assert found == whole


@cases
def test_a_copy_of_the_state_goes_on_elsewhere(case: Case, tmp_path: Path) -> None:
    whole = run(case, tmp_path / "here")
    first = step(case, tmp_path / "first")
    for epoch in range(2):
        first.epoch(epoch, split(case, rows_of(epoch), 1))
    shutil.copytree(tmp_path / "first", tmp_path / "moved")
    shutil.rmtree(tmp_path / "first")
    moved = step(case, tmp_path / "moved")
    assert shown(moved.epoch(2, split(case, rows_of(2), 1))) == whole[2]


@cases
def test_it_travels_to_executors_and_says_what_it_is(case: Case, tmp_path: Path) -> None:
    operator = step(case, tmp_path).operator
    copy = pickle.loads(pickle.dumps(operator))
    assert (copy.output, copy.states, copy.partials) == (operator.output, operator.states, operator.partials)
    assert len(operator.states) == len(operator.partials) == 1 + case.is_join
    assert operator.folder
    assert operator.node.state
