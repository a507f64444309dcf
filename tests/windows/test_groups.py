"""Groups without a window, and places: for how long they are kept."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.windows import local as steps
from tests.windows.local import LocalStep
from volley import Environment, MemorySource, count, row_number, sum_
from volley.stream.keyed import KeyedStream, RetainedStream

NOW = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
SCHEMA = pa.schema({"k": pa.string(), "i": pa.int64()})


class Clock:
    """The computer's clock, in seconds from NOW."""

    at = 0.0

    def __call__(self) -> float:
        return NOW + self.at


def keyed() -> KeyedStream[Any]:
    return Environment().from_source(MemorySource(SCHEMA.empty_table())).key_by("k")


def local(groups: KeyedStream[Any] | RetainedStream[Any], folder: Path, clock: Clock) -> LocalStep:
    return steps.windows(groups.aggregate(n=count(), total=sum_("i")), SCHEMA, folder, now=clock)


def batch(*keys: str) -> list[tuple[int, list[pa.RecordBatch]]]:
    return [(0, [pa.RecordBatch.from_pylist([{"k": key, "i": 2} for key in keys], SCHEMA)])]


def rows(table: pa.Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.to_pylist())


def test_groups_come_out_with_each_epoch_that_changes_them(tmp_path: Path) -> None:
    clock = Clock()
    job = local(keyed(), tmp_path, clock)
    assert rows(job.epoch(0, batch("a", "b", "a"))) == [("a", 2, 4), ("b", 1, 2)]
    clock.at = 1e9
    assert rows(job.epoch(1, batch("b", "c"))) == [("b", 2, 4), ("c", 1, 2)]
    assert rows(job.epoch(2, [], ends=True)) == []
    assert job.rejected.late == 0


def test_a_group_begins_anew_when_its_time_is_over(tmp_path: Path) -> None:
    clock = Clock()
    job = local(keyed().retain("10s"), tmp_path, clock)
    assert rows(job.epoch(0, batch("a", "b", "c"))) == [("a", 1, 2), ("b", 1, 2), ("c", 1, 2)]
    clock.at = 9
    assert rows(job.epoch(1, batch("a"))) == [("a", 2, 4)]
    clock.at = 10
    # The last row of "b" came 10 seconds ago, that of "a" one second ago.
    assert rows(job.epoch(2, batch("a", "b"))) == [("a", 3, 6), ("b", 1, 2)]


def test_the_places_of_a_key_begin_anew_when_its_time_is_over(tmp_path: Path) -> None:
    clock = Clock()
    places = keyed().order_by("i", ttl="10s").with_columns(place=row_number())
    job = steps.windows(places, SCHEMA, tmp_path, now=clock)
    assert rows(job.epoch(0, batch("a", "b", "a"))) == [("a", 2, 1), ("a", 2, 2), ("b", 2, 1)]
    clock.at = 9
    assert rows(job.epoch(1, batch("a"))) == [("a", 2, 3)]
    clock.at = 10
    assert rows(job.epoch(2, batch("a", "b"))) == [("a", 2, 4), ("b", 2, 1)]
    clock.at = 20
    assert rows(job.epoch(3, batch("a"))) == [("a", 2, 1)]


def test_an_epoch_that_is_repeated_has_the_clock_of_the_first_time(tmp_path: Path) -> None:
    clock = Clock()
    job = local(keyed().retain("10s"), tmp_path, clock)
    job.epoch(0, batch("a"))
    clock.at = 9
    first = rows(job.epoch(1, batch("a")))
    clock.at = 1_000
    again = local(keyed().retain("10s"), tmp_path, clock)
    assert rows(again.epoch(1, batch("a"))) == first == [("a", 2, 4)]
    assert rows(again.epoch(2, batch("a"))) == [("a", 1, 2)]


def test_groups_of_no_key_are_one(tmp_path: Path) -> None:
    everything = Environment().from_source(MemorySource(SCHEMA.empty_table())).key_by()
    job = local(everything.retain("10s"), tmp_path, Clock())
    assert rows(job.epoch(0, batch("a", "b"))) == [(2, 4)]
    assert rows(job.epoch(1, batch("b"))) == [(3, 6)]
