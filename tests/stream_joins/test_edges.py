"""Joins of streams at the ends of their range: nulls, edges of the bound, absurd times, idle sides, changed columns."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from tests.windows.local import LocalStep, joined
from volley import ConfigError, DataStream, Environment, ExpressionError, MemorySource, PlanError
from volley.plan.joins import How

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TIME = pa.timestamp("us", "UTC")
LEFT = pa.schema({"id": pa.int64(), "k": pa.string(), "at": TIME})
RIGHT = pa.schema({"k": pa.string(), "n": pa.int64(), "paid": TIME})


def stream(left: pa.Schema = LEFT, right: pa.Schema = RIGHT, **options: Any) -> DataStream:
    one, other = (Environment().from_source(MemorySource(schema.empty_table())) for schema in (left, right))
    return one.join(other, **{"on": "k", "how": "left", "within": "10s", "time": ("at", "paid"), **options})


def local(folder: Path, right: pa.Schema = RIGHT, **options: Any) -> LocalStep:
    return joined(stream(right=right, **options), LEFT, right, folder, now=lambda: NOW.timestamp())


def left(id: int, second: float | None, key: str | None = "a") -> tuple[int, list[pa.RecordBatch]]:
    return 0, [pa.RecordBatch.from_pylist([{"id": id, "k": key, "at": _at(second)}], LEFT)]


def right(n: int, second: float | None, key: str | None = "a") -> tuple[int, list[pa.RecordBatch]]:
    return 1, [pa.RecordBatch.from_pylist([{"k": key, "n": n, "paid": _at(second)}], RIGHT)]


def _at(second: float | None) -> datetime | None:
    return None if second is None else NOW + timedelta(seconds=second)


def pairs(table: pa.Table) -> list[tuple[int, int | None]]:
    return sorted(((row["id"], row["n"]) for row in table.to_pylist()), key=repr)


def test_both_ends_of_the_bound_match(tmp_path: Path) -> None:
    job = local(tmp_path, how="inner")
    rows = [right(n, second) for n, second in enumerate((-10.000001, -10, 10, 10.000001))]
    assert pairs(job.epoch(0, [left(1, 0), *rows])) == [(1, 1), (1, 2)]
    one_sided = local(tmp_path / "after", how="inner", within=("0s", "10s"))
    assert pairs(one_sided.epoch(0, [left(1, 0), *rows])) == [(1, 2)]


def test_a_row_without_a_match_comes_out_when_none_can_come(tmp_path: Path) -> None:
    job = local(tmp_path, lateness="5s")
    assert pairs(job.epoch(0, [left(1, 0), left(2, 1), right(1, 0, "b")])) == []
    # The right side is at 15 s, the watermark at 10 s: a row at 10 s is on time, and matches the first one.
    assert pairs(job.epoch(1, [left(3, 100), right(2, 15, "b")])) == []
    assert pairs(job.epoch(2, [right(3, 10)])) == [(1, 3), (2, 3)]
    assert pairs(job.epoch(3, [right(4, 16, "b")])) == []
    assert pairs(job.epoch(4, [], ends=True)) == [(3, None)]
    assert job.rejected.late == 0


def test_null_keys_match_nothing_and_null_times_are_left_out(tmp_path: Path) -> None:
    job = local(tmp_path)
    rows = [left(1, 0, None), left(2, None), right(1, 0, None), right(2, None), left(3, 0), right(3, 0)]
    assert pairs(job.epoch(0, rows, ends=True)) == [(1, None), (3, 3)]
    assert job.rejected.untimed == 2
    inner = local(tmp_path / "inner", how="inner")
    assert pairs(inner.epoch(0, rows, ends=True)) == [(3, 3)]


def test_a_clock_that_is_ahead_makes_no_row_late(tmp_path: Path) -> None:
    century = 100 * 365 * 86_400
    job = local(tmp_path, max_ahead="1h")
    job.epoch(0, [left(1, 0), right(1, century), left(2, century)])
    assert pairs(job.epoch(1, [right(2, 1)], ends=True)) == [(1, 2)]
    assert (job.rejected.late, job.rejected.early) == (0, 2)


def test_times_at_the_end_of_their_range(tmp_path: Path) -> None:
    """Times far beyond the calendar are compared like others, up to 146,000 years from 1970."""
    job = local(tmp_path, max_ahead=None)
    extremes = pa.array([2**62, -(2**62)], pa.int64()).cast(TIME)
    rows = pa.record_batch([pa.array([1, 2]), pa.array(["a", "a"]), extremes], schema=LEFT)
    others = pa.record_batch([pa.array(["a", "a"]), pa.array([1, 2]), extremes], schema=RIGHT)
    table = job.epoch(0, [(0, [rows]), (1, [others])], ends=True)
    assert list(zip(table["id"].to_pylist(), table["n"].to_pylist(), strict=True)) == [(1, 1), (2, 2)]
    before = datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC)
    early = local(tmp_path / "early")
    second = (before - NOW).total_seconds()
    assert pairs(early.epoch(0, [left(1, second), right(1, second + 10)])) == [(1, 1)]


def test_the_slower_side_holds_the_watermark_until_it_is_idle(tmp_path: Path) -> None:
    job = local(tmp_path, idle_after="1h")
    assert pairs(job.epoch(0, [left(1, 0)])) == []
    assert pairs(job.epoch(1, [left(2, 600)])) == []
    job.state.now = lambda: (NOW + timedelta(hours=2)).timestamp()
    assert pairs(job.epoch(2, [left(3, 601)])) == [(1, None)]
    assert pairs(job.epoch(3, [right(1, 600), right(2, 605)])) == [(2, 2), (3, 2)]
    assert job.rejected.late == 1


def test_the_end_of_the_sources_closes_a_left_join_only(tmp_path: Path) -> None:
    for how, late, found in (("inner", 0, [(1, 1)]), ("left", 1, [])):
        job = local(tmp_path / how, how=how)
        job.epoch(0, [left(1, 0)], ends=True)
        assert pairs(job.epoch(1, [right(1, 1)])) == found
        assert job.rejected.late == late


def test_a_key_with_many_pairs_comes_out_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("volley.columns.stream_joins._PAIRS_AT_ONCE", 7)
    job = local(tmp_path, how="inner", buckets=1)
    job.epoch(0, [left(id, 0) for id in range(5)])
    out = job.epoch(1, [*(right(n, 1) for n in range(6)), left(5, 2)])
    assert pairs(out) == [(id, n) for id in range(6) for n in range(6)]


def test_the_number_of_tasks_may_change(tmp_path: Path) -> None:
    job = local(tmp_path, how="inner", buckets=5, lateness="1h")
    found = []
    for number in range(3):
        job.state.tasks = number + 1
        keys = [f"k{key}" for key in range(20)]
        side = right if number else left
        found += pairs(job.epoch(number, [side(number, 0, key) for key in keys]))
    assert found == [(0, 1)] * 20 + [(0, 2)] * 20


def test_columns_may_go_and_not_come_while_rows_wait(tmp_path: Path) -> None:
    local(tmp_path).epoch(0, [left(1, 0), right(1, 20)])
    fewer = pa.schema([RIGHT.field("k"), RIGHT.field("paid")])
    job = joined(stream(right=fewer), LEFT, fewer, tmp_path, now=lambda: NOW.timestamp())
    found = [(row["id"], row["paid"]) for row in job.epoch(1, [left(2, 21)]).to_pylist()]
    assert found == [(2, _at(20)), (1, None)]
    with pytest.raises(PlanError, match=r"types behind left join of streams on 'k'.* not \.n int64"):
        local(tmp_path).epoch(2, [right(2, 22)])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"within": None}, "no bound of time"),
        ({"within": ("1s",)}, "within is"),
        ({"within": "-1s"}, "within"),
        ({"time": None}, "time is None"),
        ({"as_of": ("at", "paid")}, "as_of"),
        ({"how": "outer"}, "how"),
        ({"how": "anti", "columns": ["n"]}, "an anti join adds no columns"),
        ({"how": "semi", "suffix": "_2"}, "a semi join adds no columns"),
    ],
)
def test_wrong_arguments_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        stream(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"on": "kay"}, "the stream has no column 'kay'"),
        ({"on": {"k": "kay"}}, "the other stream has no column 'kay'"),
        ({"on": {"id": "k"}}, "the stream's 'id' is long, the other side's 'k' string"),
        ({"time": "at"}, "the other stream has no column 'at'"),
        ({"time": ("at", "n")}, "'n' long\n.*timestamps"),
        ({"columns": ["k"]}, "both have a column 'k'\n.*suffix="),
    ],
)
def test_what_does_not_fit_is_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ExpressionError, match=message):
        _ = stream(**options).schema


def test_the_key_of_a_full_join_has_the_wider_type() -> None:
    streams = [
        Environment().from_source(MemorySource([], f"k {kind}, at timestamp, n{kind} long")) for kind in ("int", "long")
    ]
    joined = streams[0].join(streams[1], "k", "full", within="1s", time="at", columns=["nlong"])
    assert joined.schema.field("k").type == pa.int64()


@pytest.mark.parametrize("how", ["right", "full"])
def test_a_uuid_is_a_key_of_a_join_that_keeps_the_other_rows(how: How) -> None:
    ids = [UUID(int=number).bytes for number in (1, 2**127)]
    ours, theirs = (
        pa.table({"k": pa.array(keys, pa.uuid()), name: keys}) for keys, name in ((ids[:1], "a"), (ids, "b"))
    )
    one, other = (Environment().from_source(MemorySource(rows)) for rows in (ours, theirs))
    rows = one.join(other, "k", how, ttl="1d").to_arrow()
    assert rows["k"].type == pa.uuid()
    found = {row["k"].bytes: (row["a"], row["b"]) for row in rows.to_pylist()}
    assert found == {ids[0]: (ids[0], ids[0]), ids[1]: (None, ids[1])}


def test_a_table_is_not_joined_within_a_bound() -> None:
    rows = Environment().from_source(MemorySource([{"k": 1}]))
    wrong: list[dict[str, Any]] = [{"within": "1s"}, {"time": "at"}, {"lateness": "1s"}]
    for options in wrong:
        with pytest.raises(ConfigError, match="a join with a table has a bound of time"):
            rows.join(MemorySource([{"k": 1}]), on="k", **options)
    with pytest.raises(ConfigError, match="an anti join with a table"):
        rows.join(MemorySource([{"k": 1}]), on="k", how="anti")
