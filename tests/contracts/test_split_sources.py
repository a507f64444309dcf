"""What every SplitSource promises, driven the way Spark does: driver, planner and executors share only pickles."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark import cloudpickle

from volley import FileSource, MemorySource, SplitSource
from volley.connectors import files, memory
from volley.source import Offset, Split

ROWS = [{"id": i, "name": f"name-{i}" if i % 5 else None} for i in range(60)]
SCHEMA = pa.schema({"id": pa.int64(), "name": pa.string()})
PIECES = [ROWS[:7], ROWS[7:8], ROWS[8:30], ROWS[30:31], ROWS[31:60]]


def shipped(value: Any) -> Any:
    """The value as another process gets it."""
    return cloudpickle.loads(cloudpickle.dumps(value))


@dataclass(frozen=True)
class Case:
    """A source with the rows of `ROWS`: how it is made, and how many of its own units it has."""

    make: Callable[[Path], SplitSource]
    units: int


def memory_of_rows(folder: Path) -> SplitSource:
    return MemorySource(ROWS)


def memory_of_arrow(folder: Path) -> SplitSource:
    return MemorySource([pa.RecordBatch.from_pylist(piece, SCHEMA) for piece in PIECES])


def json_files(folder: Path) -> SplitSource:
    for number, piece in enumerate(PIECES):
        (folder / f"{number}.json").write_text("".join(json.dumps(row) + "\n" for row in piece))
    return FileSource(folder, format="json", schema=SCHEMA)


def csv_files(folder: Path) -> SplitSource:
    for number, piece in enumerate(PIECES):
        pcsv.write_csv(pa.Table.from_pylist(piece, SCHEMA), folder / f"{number}.csv")
    return FileSource(f"{folder}/*.csv")


def csv_files_in_parts(folder: Path) -> SplitSource:
    csv_files(folder)
    return FileSource(f"{folder}/*.csv", options={"newlines_in_values": False})


def parquet_files(folder: Path) -> SplitSource:
    for number, piece in enumerate(PIECES):
        pq.write_table(pa.Table.from_pylist(piece, SCHEMA), folder / f"{number}.parquet", row_group_size=3)
    return FileSource(folder, format="parquet", bounded=False)


CASES = {
    "memory-rows": Case(memory_of_rows, len(ROWS)),
    "memory-arrow": Case(memory_of_arrow, len(ROWS)),
    "json": Case(json_files, len(PIECES)),
    "csv": Case(csv_files, len(PIECES)),
    "csv-in-parts": Case(csv_files_in_parts, len(PIECES)),
    "parquet": Case(parquet_files, len(PIECES)),
}


class Planner:
    """Spark's planner process: it gets the opened source once and asks it for offsets and splits."""

    def __init__(self, opened: SplitSource, *, bounded: bool = True) -> None:
        self.source: SplitSource = shipped(opened)
        self.target = self.source.latest_offset(self.source.initial_offset(), None, None) if bounded else None

    def next(self, start: Offset, limit: int | None) -> Offset:
        # Spark keeps offsets as JSON text.
        offset: Offset = json.loads(json.dumps(self.source.latest_offset(start, limit, self.target)))
        return offset


def read(opened: SplitSource, split: Split) -> list[pa.RecordBatch]:
    """One split, as an executor reads it."""
    source: SplitSource = shipped(opened)
    return list(source.read(shipped(split)))


def rows_of(opened: SplitSource, planner: Planner, start: Offset, end: Offset) -> list[dict[str, Any]]:
    splits = planner.source.splits(start, end)
    assert opened.splits(start, end) == splits, "the driver has another idea of what lies between two offsets"
    return [row for split in splits for batch in read(opened, split) for row in batch.to_pylist()]


@pytest.fixture(autouse=True, scope="module")
def small_splits() -> Iterator[None]:
    """Splits of a few rows, so that little data has many of them."""
    patch = pytest.MonkeyPatch()
    patch.setattr(memory, "_ROWS_PER_SPLIT", 4)
    patch.setattr(files, "_SMALLEST_SPLIT", 100)
    patch.setattr(files, "_LARGEST_SPLIT", 900)
    patch.setattr(files, "_OPENING", 10)
    yield
    patch.undo()


@pytest.fixture(params=CASES, scope="module")
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


@pytest.fixture(scope="module")
def source(case: Case, tmp_path_factory: pytest.TempPathFactory) -> SplitSource:
    return case.make(tmp_path_factory.mktemp("in"))


@pytest.fixture
def opened(source: SplitSource, tmp_path: Path) -> SplitSource:
    return source.open(str(tmp_path / "state"), 5)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(limits=st.lists(st.integers(1, 25), min_size=1), restarts=st.sets(st.integers(0, 20)), bounded=st.booleans())
def test_any_cut_and_any_restart_gives_every_row_once(
    source: SplitSource, limits: list[int], restarts: set[int], bounded: bool
) -> None:
    with tempfile.TemporaryDirectory() as state:
        opened = source.open(state, 5)
        planner = Planner(opened, bounded=bounded)
        found: list[dict[str, Any]] = []
        start = planner.source.initial_offset()
        for epoch in range(len(ROWS) + 1):
            end = planner.next(start, limits[epoch % len(limits)])
            if end == start:
                break
            if epoch in restarts:
                # The epoch is repeated by new processes, and gives the same.
                first = rows_of(opened, planner, start, end)
                opened = source.open(state, 5)
                planner = Planner(opened, bounded=bounded)
                assert rows_of(opened, planner, start, end) == first
            found += rows_of(opened, planner, start, end)
            start = end
    assert sorted(found, key=lambda row: row["id"]) == ROWS


def test_batches_have_the_schema_and_are_not_all_one(opened: SplitSource) -> None:
    planner = Planner(opened)
    start = planner.source.initial_offset()
    splits = planner.source.splits(start, planner.next(start, None))
    assert len(splits) > 3
    assert all(batch.schema.equals(opened.schema) for split in splits for batch in read(opened, split))
    assert opened.schema.equals(SCHEMA)


def test_a_split_read_twice_gives_the_same_rows(opened: SplitSource) -> None:
    planner = Planner(opened)
    start = planner.source.initial_offset()
    for split in planner.source.splits(start, planner.next(start, None)):
        assert read(opened, split) == read(opened, split)


def test_the_limit_counts_the_sources_own_units(opened: SplitSource, case: Case) -> None:
    planner = Planner(opened)
    start, epochs = planner.source.initial_offset(), 0
    while (end := planner.next(start, 2)) != start:
        start, epochs = end, epochs + 1
    assert epochs == -(-case.units // 2)


def test_the_target_is_not_passed(opened: SplitSource, case: Case) -> None:
    planner = Planner(opened)
    start = planner.source.initial_offset()
    planner.target = planner.source.latest_offset(start, 3, None)
    assert planner.next(start, 2) != planner.target
    assert planner.next(start, None) == planner.next(start, case.units) == planner.target
    assert planner.next(planner.target, None) == planner.target


def test_at_the_end_the_offset_stays(opened: SplitSource) -> None:
    for bounded in (True, False):
        planner = Planner(opened, bounded=bounded)
        end = planner.next(planner.source.initial_offset(), None)
        assert planner.next(end, None) == end
        assert planner.source.splits(end, end) == []


def test_the_source_is_a_value(source: SplitSource) -> None:
    again = shipped(source)
    assert again == source
    assert hash(again) == hash(source)
    assert again.identity == source.identity
    assert repr(again) == repr(source)
    assert len(repr(source)) < 300
