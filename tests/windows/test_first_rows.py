"""Deduplicate and limit against a model in plain Python, however rows are divided among tasks and epochs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tiers import examples
from tests.windows.local import LocalStep, row_count, windows
from volley import (
    ConfigError,
    Environment,
    ExpressionError,
    MemorySink,
    MemorySource,
    PlanError,
    VolleyError,
    count,
    tumbling,
)
from volley.plan.graph import JobGraph

START = datetime(2024, 1, 1, tzinfo=UTC)
SCHEMA = pa.schema([("number", pa.int64()), ("k", pa.string()), ("x", pa.float64()), ("at", pa.timestamp("us", "UTC"))])
WITHIN = timedelta(minutes=5)
STREAM = Environment().from_source(MemorySource([], SCHEMA))
TOTALS = STREAM.key_by("k").window(tumbling("1m"), on="at", emit="updates").aggregate(n=count())

keys = st.tuples(st.sampled_from([None, "", "a", "b"]), st.sampled_from([None, 0.0, -0.0, 1.5, math.nan]))
minutes = st.integers(0, 30)
rows = st.lists(st.tuples(keys, st.none() | minutes), max_size=40)
# The rows of each epoch's splits.
epochs = st.lists(st.lists(rows, min_size=1, max_size=3), min_size=1, max_size=4)

Row = dict[str, Any]


def numbered(drawn: Sequence[Sequence[Sequence[Any]]]) -> list[list[list[Row]]]:
    """The rows, numbered in their order."""
    count = iter(range(10**6))
    return [
        [
            [
                {"number": next(count), "k": k, "x": x, "at": None if m is None else START + timedelta(minutes=m)}
                for (k, x), m in split
            ]
            for split in epoch
        ]
        for epoch in drawn
    ]


def run(step: LocalStep, splits: Sequence[Sequence[Sequence[Row]]]) -> list[set[int]]:
    """The numbers of the rows that come out of each epoch."""
    return [
        set(
            step.epoch(number, [(0, [pa.RecordBatch.from_pylist(split, SCHEMA)]) for split in epoch])[
                "number"
            ].to_pylist()
        )
        for number, epoch in enumerate(splits)
    ]


def key(row: Row) -> object:
    """What is equal as a key: NaN is NaN, 0.0 is -0.0, and null is null."""
    return row["k"], "NaN" if row["x"] is not None and math.isnan(row["x"]) else row["x"]


def first_ever(splits: Sequence[Sequence[Sequence[Row]]]) -> list[set[int]]:
    seen: set[object] = set()
    found = []
    for epoch in splits:
        out = set()
        for row in (row for split in epoch for row in split):
            if key(row) not in seen:
                seen.add(key(row))
                out.add(row["number"])
        found.append(out)
    return found


def first_within(splits: Sequence[Sequence[Sequence[Row]]]) -> list[set[int]]:
    seen: dict[object, datetime] = {}
    watermark = latest = datetime.min.replace(tzinfo=UTC)
    found = []
    for epoch in splits:
        out, on_time = set(), [row for split in epoch for row in split if row["at"] and row["at"] >= watermark]
        for row in on_time:
            if key(row) not in seen:
                seen[key(row)] = row["at"]
                out.add(row["number"])
        latest = max([latest, *(row["at"] for row in on_time)])
        if latest > START:
            watermark = max(watermark, latest - WITHIN)
        seen = {each: at for each, at in seen.items() if at + WITHIN >= watermark}
        found.append(out)
    return found


@settings(max_examples=examples(1))
@given(epochs, st.integers(1, 5))
def test_the_first_row_of_each_key(drawn: Any, buckets: int) -> None:
    splits = numbered(drawn)
    with TemporaryDirectory() as folder:
        step = windows(STREAM.deduplicate("k", "x", buckets=buckets), SCHEMA, Path(folder))
        assert run(step, splits) == first_ever(splits)
        assert step.watermark is None


@settings(max_examples=examples(1))
@given(epochs, st.integers(1, 5))
def test_the_first_row_of_each_key_within_a_time(drawn: Any, buckets: int) -> None:
    splits = numbered(drawn)
    with TemporaryDirectory() as folder:
        stream = STREAM.deduplicate("k", "x", event_time="at", within=WITHIN, buckets=buckets)
        step = windows(stream, SCHEMA, Path(folder))
        assert run(step, splits) == first_within(splits)
        untimed = sum(row["at"] is None for epoch in splits for split in epoch for row in split)
        assert step.rejected.untimed == untimed


@settings(max_examples=examples(1))
@given(epochs, st.integers(1, 60))
def test_the_first_rows(drawn: Any, rows: int) -> None:
    splits = numbered(drawn)
    with TemporaryDirectory() as folder:
        found = run(windows(STREAM.limit(rows), SCHEMA, Path(folder)), splits)
    total = sum(len(split) for epoch in splits for split in epoch)
    assert set().union(*found) == {*range(min(rows, total))}


def test_a_limit_needs_no_more_rows_of_a_task_than_it_has(tmp_path: Path) -> None:
    (writer,) = windows(STREAM.limit(3), SCHEMA, tmp_path).state.writers(0)
    task = writer.open(0)
    full = []
    for number in range(3):
        task.write(pa.RecordBatch.from_pylist([{"number": number}, {"number": number}], SCHEMA))
        full.append(task.is_full)
    assert full == [False, True, True]


def test_state_ends_with_the_time_in_which_a_key_may_come_again(tmp_path: Path) -> None:
    def states(epoch: int) -> int:
        return sum(row_count(str(path)) for path in (tmp_path / str(epoch)).glob("state-*.arrow"))

    def at(*minutes: int) -> list[list[Row]]:
        return [[{"number": m, "k": str(m), "at": START + timedelta(minutes=m)} for m in minutes]]

    step = windows(STREAM.deduplicate("k", event_time="at", within=WITHIN), SCHEMA, tmp_path)
    run(step, [at(0, 1, 2), at(8), at(20), at(20)])
    assert [states(epoch) for epoch in (1, 2, 3)] == [4, 1, 1]


def of_numbers(numbers: range) -> list[Row]:
    return [{"number": number, "k": str(number)} for number in numbers]


def appended(folder: Path, epoch: int) -> list[int]:
    """The numbers that come out of an epoch, run by a process of its own: 10 of its 20 keys are new."""
    step = windows(STREAM.deduplicate("k"), SCHEMA, folder)
    batch = pa.RecordBatch.from_pylist(of_numbers(range(epoch * 10, epoch * 10 + 20)), SCHEMA)
    return sorted(step.epoch(epoch, [(0, [batch])])["number"].to_pylist())


def test_a_key_that_is_known_is_not_written_again_with_each_epoch(tmp_path: Path) -> None:
    first = windows(STREAM.deduplicate("k"), SCHEMA, tmp_path)
    run(first, [[of_numbers(range(20_000))]])
    written = 0
    for epoch in range(1, 30):
        new = of_numbers(range(19_900 + epoch * 100, 20_000 + epoch * 100))
        batch = pa.RecordBatch.from_pylist([*of_numbers(range(epoch)), *new], SCHEMA)
        assert sorted(first.epoch(epoch, [(0, [batch])])["number"].to_pylist()) == [row["number"] for row in new]
        written += sum(row_count(str(path)) for path in (tmp_path / str(epoch)).glob("state-*.arrow"))
    assert written < 30_000, "all keys with each epoch are more than 600,000"
    # Those of the last three epochs, and those that they use.
    assert len(list(tmp_path.rglob("state-*.arrow"))) <= 20


def test_each_of_the_last_epochs_can_be_run_again(tmp_path: Path) -> None:
    last = 15
    found = [appended(tmp_path, epoch) for epoch in range(last)]
    for epoch in (last - 2, last - 1, last):
        assert appended(tmp_path, epoch) == [*range(epoch * 10 + 10, epoch * 10 + 20)]
    assert found[1:] == [[*range(epoch * 10 + 10, epoch * 10 + 20)] for epoch in range(1, last)]


def test_an_epoch_without_rows_writes_no_keys(tmp_path: Path) -> None:
    step = windows(STREAM.deduplicate("k"), SCHEMA, tmp_path)
    run(step, [[of_numbers(range(9))], [[]], []])
    assert not list((tmp_path / "2").glob("*.arrow"))
    assert run(windows(STREAM.deduplicate("k"), SCHEMA, tmp_path), [[]]) == [set()]
    assert step.epoch(3, [(0, [pa.RecordBatch.from_pylist(of_numbers(range(10)), SCHEMA)])])["number"].to_pylist() == [
        9
    ]


@pytest.mark.parametrize(
    "values",
    [
        pa.array([{"a": 0.0, "b": [1]}, {"a": -0.0, "b": [1]}, {"a": None, "b": []}, None, None]),
        pa.array([[1.5, None], [1.5, None], [], None, None]),
        pa.array([True, True, False, None, None]),
        pa.array([None] * 5, pa.null()),
        pa.array([b"\x00", b"\x00", b"", None, None]),
        pa.array([1, 1, 2, None, None]).cast(pa.decimal128(38, 5)),
        pa.array([START, START, START + WITHIN, None, None], pa.timestamp("us", "UTC")),
        pa.array([UUID(int=1).bytes, UUID(int=1).bytes, UUID(int=2).bytes, None, None], pa.uuid()),
        pa.array(["a", "a", "b", None, None]).dictionary_encode(),
    ],
    ids=lambda values: str(values.type),
)
def test_keys_of_every_type(values: pa.Array, tmp_path: Path) -> None:
    batch = pa.record_batch({"number": pa.array(range(5)), "k": values})
    schema = pa.schema([("number", pa.int64()), ("k", getattr(values.type, "value_type", values.type))])
    if not pa.types.is_dictionary(values.type):
        schema = batch.schema
    stream = Environment().from_source(MemorySource([], "number long, k string")).deduplicate("k")
    step = windows(stream, schema, tmp_path)
    first = [0] if pa.types.is_null(values.type) else [0, 2, 3]
    assert sorted(step.epoch(0, [(0, [batch])])["number"].to_pylist()) == first
    assert step.epoch(1, [(0, [batch])]).num_rows == 0


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda: STREAM.deduplicate("nope").schema, ExpressionError, "unknown column 'nope'"),
        (lambda: STREAM.deduplicate("k", event_time="x", within="1m").schema, ExpressionError, "not a timestamp"),
        (lambda: STREAM.deduplicate("k", late="dead_letter"), ConfigError, "no event_time"),
        (
            lambda: JobGraph.of(TOTALS.deduplicate("k").to_sink(MemorySink("out"))._writes),
            PlanError,
            "follows .* aggregate",
        ),
        (lambda: JobGraph.of(TOTALS.limit(3).to_sink(MemorySink("out"))._writes), PlanError, "follows .* aggregate"),
    ],
)
def test_what_is_refused(build: Any, error: type[VolleyError], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        build()
    assert caught.value.hint
