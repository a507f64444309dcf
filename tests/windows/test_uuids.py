"""UUIDs as keys and values of windows and series, which Arrow groups and compares only as bytes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import pyarrow as pa
import pytest

from tests.windows.local import windows
from volley import (
    Environment,
    MemorySource,
    col,
    count,
    count_distinct,
    first,
    last,
    list_,
    max_,
    min_,
    previous,
    rolling,
    session,
    sliding,
    struct,
    top,
    tumbling,
)
from volley.columns.exact import array_of
from volley.plan.windows import Emission, Window

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ONE, TWO, THREE = (UUID(int=number) for number in (1, 2**64, 2**127))
SCHEMA = pa.schema({"id": pa.uuid(), "k": pa.string(), "n": pa.int64(), "at": pa.timestamp("us", "UTC")})
STREAM = Environment().from_source(MemorySource(SCHEMA.empty_table()))


def batch(*ids: UUID | None, second: int = 0) -> list[pa.RecordBatch]:
    columns = {"id": ids, "k": "a" * len(ids), "n": range(len(ids)), "at": [NOW + timedelta(seconds=second)] * len(ids)}
    arrays = [array_of(list(columns[field.name]), field.type) for field in SCHEMA]
    return [pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)]


@pytest.mark.parametrize("window", [tumbling("1m"), sliding("2m", every="1m"), session("1m")], ids=repr)
@pytest.mark.parametrize("emit", ["final", "updates"])
def test_a_uuid_is_a_key_of_windows(window: Window, emit: Emission, tmp_path: Path) -> None:
    stream = STREAM.key_by("id").window(window, on="at", emit=emit).aggregate(rows=count())
    job = windows(stream, SCHEMA, tmp_path)
    job.epoch(0, [(0, batch(ONE, TWO, None))])
    rows = job.epoch(1, [(0, batch(TWO, THREE, None, None))], ends=True).to_pylist()
    expected = {TWO: 2, THREE: 1, None: 3}
    assert {row["id"]: row["rows"] for row in rows} == (expected if emit == "updates" else {ONE: 1, **expected})


def test_windows_between_those_of_a_uuid_are_filled(tmp_path: Path) -> None:
    stream = STREAM.key_by("k").window(tumbling("1m"), on="at", fill_gaps="1h")
    job = windows(stream.aggregate(id=max_("id").forward_fill(), least=min_("id")), SCHEMA, tmp_path)
    rows = job.epoch(0, [(0, [*batch(ONE, TWO), *batch(ONE, second=130)])], ends=True).to_pylist()
    assert [(row["id"], row["least"]) for row in rows] == [(TWO, ONE), (TWO, None), (ONE, ONE)]


AGGREGATES = {
    "least": (min_("id"), ONE),
    "greatest": (max_("id"), THREE),
    "different": (count_distinct("id"), 3),
    "some": (count("id"), 4),
    "first": (first("id"), TWO),
    "last": (last("id"), THREE),
    "all": (list_("id", 9), [TWO, ONE, TWO, THREE]),
    "nested": (list_(struct(id=col("id")), 2), [{"id": TWO}, {"id": None}]),
    "by_number": (top("id", 2, by="n"), [ONE, THREE]),
    "by_id": (top("n", 2, by="id"), [1, 0]),
}


def test_aggregates_take_uuids(tmp_path: Path) -> None:
    aggregates = {name: aggregate for name, (aggregate, _) in AGGREGATES.items()}
    job = windows(
        STREAM.key_by("k").window(tumbling("1m"), on="at").aggregate(**aggregates), SCHEMA, tmp_path / "windows"
    )
    assert job.epoch(0, [(0, batch(TWO, None, ONE))]).num_rows == 0
    (row,) = job.epoch(1, [(0, batch(TWO, THREE, second=1))], ends=True).to_pylist()
    assert {name: row[name] for name in AGGREGATES} == {name: expected for name, (_, expected) in AGGREGATES.items()}


def test_windows_without_a_uuid_have_none(tmp_path: Path) -> None:
    aggregates = {name: aggregate for name, (aggregate, _) in AGGREGATES.items() if name != "nested"}
    job = windows(STREAM.key_by("k").window(tumbling("1m"), on="at").aggregate(**aggregates), SCHEMA, tmp_path)
    (row,) = job.epoch(0, [(0, batch(None))], ends=True).to_pylist()
    assert {row[name] for name in aggregates} == {None, 0}


def test_a_uuid_is_a_key_of_series(tmp_path: Path) -> None:
    functions = {"before": previous("id"), "greatest": rolling("20s", max_("id")), "rows": rolling("20s", count())}
    job = windows(STREAM.key_by("id").series(on="at").with_columns(**functions), SCHEMA, tmp_path)
    job.epoch(0, [(0, batch(ONE, TWO))])
    rows = job.epoch(1, [(0, batch(TWO, THREE, second=1))], ends=True).to_pylist()
    last = {row["id"]: (row["before"], row["greatest"], row["rows"]) for row in rows}
    assert last == {ONE: (None, ONE, 1), TWO: (TWO, TWO, 2), THREE: (None, THREE, 1)}
