"""Windows at the ends of their range: edges, clocks that are wrong, idle sources, sessions that grow together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.windows import local as steps
from tests.windows.local import LocalStep, row_count
from volley import (
    Environment,
    ExpressionError,
    MemorySource,
    VolleyError,
    avg,
    col,
    count,
    quantile,
    session,
    sliding,
    sum_,
    tumbling,
)
from volley.columns.operators import AFTER_ALL, BEFORE_ALL
from volley.plan.windows import Window
from volley.task.partials import RejectedRows

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LONGEST = "100000 days"
SCHEMA = pa.schema({"k": pa.string(), "i": pa.int64(), "at": pa.timestamp("us", "UTC")})


def local(
    folder: Path, window: Window, keys: Sequence[str] = ("k",), sources: int = 1, now: datetime = NOW, **options: Any
) -> LocalStep:
    rows = Environment().from_source(MemorySource(SCHEMA.empty_table())).key_by(*keys)
    stream = rows.window(window, on="at", **options).aggregate(n=count(), total=sum_("i"))
    return steps.windows(stream, SCHEMA, folder, sources, now=now.timestamp)


def batch(*seconds: float | None, key: str | None = "a", number: int = 1) -> list[pa.RecordBatch]:
    times = [None if second is None else NOW + timedelta(seconds=second) for second in seconds]
    return [pa.RecordBatch.from_pylist([{"k": key, "i": number, "at": at} for at in times], SCHEMA)]


def windows(table: pa.Table, *names: str) -> list[tuple[Any, ...]]:
    """The starts of windows in seconds from NOW, and the values of columns."""
    rows = (
        (int((row["window_start"] - NOW).total_seconds()), *(row[name] for name in names)) for row in table.to_pylist()
    )
    return sorted(rows, key=repr)


def test_a_row_on_an_edge_is_in_the_later_window(tmp_path: Path) -> None:
    job = local(tmp_path, tumbling("1m"))
    assert job.epoch(0, [(0, batch(0, 59.999999, 60))]).num_rows == 1
    # The watermark is 60 s: the first window is closed, a row at 60 s is on time.
    assert windows(job.epoch(1, [(0, batch(60, 59))], ends=True), "n") == [(60, 2)]
    assert job.rejected.late == 1


def test_a_row_a_gap_later_is_in_a_session_of_its_own(tmp_path: Path) -> None:
    table = local(tmp_path, session("10s")).epoch(0, [(0, batch(0, 9.999999, 19.999999))], ends=True)
    assert windows(table, "n") == [(0, 2), (19, 1)]


@pytest.mark.parametrize(
    ("window", "options"),
    [
        (tumbling(LONGEST), {}),
        (tumbling(LONGEST), {"fill_gaps": LONGEST}),
        (sliding(LONGEST, "50000 days"), {}),
        (session(LONGEST), {}),
    ],
)
def test_the_longest_spans_with_the_first_and_last_times(
    tmp_path: Path, window: Window, options: dict[str, Any]
) -> None:
    job = local(tmp_path, window, max_ahead=None, lateness=LONGEST, idle_after=LONGEST, **options)
    times = pa.array([BEFORE_ALL, 0, AFTER_ALL]).cast(SCHEMA.field("at").type)
    rows = pa.RecordBatch.from_arrays([pa.array(["a"] * 3), pa.array([1] * 3), times], schema=SCHEMA)
    found = [job.epoch(0, [(0, [rows])]), job.epoch(1, [], ends=True)]
    total = sum(table["n"].combine_chunks().sum().as_py() or 0 for table in found)
    assert (total, job.rejected) == (6 if window == sliding(LONGEST, "50000 days") else 3, RejectedRows())


def test_windows_before_1970(tmp_path: Path) -> None:
    before = (datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC) - NOW).total_seconds()
    table = local(tmp_path, tumbling("1m")).epoch(0, [(0, batch(before))], ends=True)
    assert table["window_start"].to_pylist() == [datetime(1969, 12, 31, 23, 59, tzinfo=UTC)]


def test_days_of_a_zone_whose_clocks_change(tmp_path: Path) -> None:
    """A window of a day has 24 hours; the days of a zone are keys, and one of them has 23."""
    noon = datetime(2026, 3, 28, 11, tzinfo=UTC)
    hours = batch(*((noon + timedelta(hours=hour) - NOW).total_seconds() for hour in range(48)))
    day = col("at").dt.in_zone("Europe/Berlin").dt.truncate("day")
    rows = Environment().from_source(MemorySource(SCHEMA.empty_table())).key_by(day=day)
    by_day = rows.window(tumbling("7 days"), on="at", max_ahead=None).aggregate(n=count())
    table = steps.windows(by_day, SCHEMA, tmp_path).epoch(0, [(0, hours)], ends=True)
    assert sorted((row["day"].day, row["n"]) for row in table.to_pylist()) == [(28, 12), (29, 23), (30, 13)]
    fixed = local(tmp_path / "fixed", tumbling("1 day"), max_ahead=None).epoch(0, [(0, hours)], ends=True)
    assert sorted(fixed["n"].to_pylist()) == [11, 13, 24]


def test_a_clock_that_is_ahead_makes_no_row_late(tmp_path: Path) -> None:
    job = local(tmp_path, tumbling("1m"), max_ahead="1h")
    job.epoch(0, [(0, batch(0, 100 * 365 * 86_400))])
    assert windows(job.epoch(1, [(0, batch(1))], ends=True), "n") == [(0, 2)]
    assert (job.rejected.late, job.rejected.early) == (0, 1)
    free = local(tmp_path / "free", tumbling("1m"), max_ahead=None)
    free.epoch(0, [(0, batch(0, 100 * 365 * 86_400))])
    free.epoch(1, [(0, batch(1))])
    assert (free.rejected.late, free.rejected.early) == (1, 0)


@pytest.mark.parametrize("window", [tumbling("1m"), sliding("2m", every="1m"), session("10s")], ids=repr)
def test_times_at_the_end_of_their_range(window: Window, tmp_path: Path) -> None:
    """What is far out of the calendar is in its windows or is counted."""

    def epoch(folder: str, *times: int) -> tuple[list[int], RejectedRows, datetime | None]:
        job = local(tmp_path / folder, window, max_ahead=None)
        out = job.epoch(0, [(0, [at(*times)])], ends=True)
        return out["n"].to_pylist(), job.rejected, job.watermark

    windows_of_a_row = 2 if window == sliding("2m", every="1m") else 1
    latest = datetime.max.replace(tzinfo=UTC)
    assert epoch("in", -(2**62), 2**62) == ([1, 1] * windows_of_a_row, RejectedRows(), latest)
    assert epoch("out", -(2**62) - 1, 2**62 + 1, -(2**63), 2**63 - 1) == ([], RejectedRows(late=2, early=2), None)


@pytest.mark.parametrize(
    ("time", "reason"), [(-(2**63), "it is late"), (2**63 - 1, "146,000 years ahead of the clock")]
)
def test_the_reason_of_a_time_beyond_the_calendar(time: int, reason: str, tmp_path: Path) -> None:
    job = local(tmp_path, tumbling("1m"), max_ahead=None, late="dead_letter")
    (writer,) = job.state.writers(0)
    with pytest.raises(VolleyError, match=f"{reason}.*{time:,} microseconds from 1970"):
        writer.open(0).check(at(time))


def at(*times: int) -> pa.RecordBatch:
    """Rows at times in microseconds since 1970."""
    columns = [pa.array(["a"] * len(times)), pa.array([1] * len(times)), pa.array(times, SCHEMA.field("at").type)]
    return pa.record_batch(columns, schema=SCHEMA)


def test_the_slowest_source_holds_the_watermark_until_it_is_idle(tmp_path: Path) -> None:
    job = local(tmp_path, tumbling("1m"), sources=2, idle_after="1h")
    assert job.epoch(0, [(0, batch(0)), (1, batch(0, key="b"))]).num_rows == 0
    assert job.epoch(1, [(0, batch(600))]).num_rows == 0
    job.state.now = lambda: (NOW + timedelta(hours=2)).timestamp()
    assert windows(job.epoch(2, [(0, batch(601))]), "k", "n") == [(0, "a", 1), (0, "b", 1)]


def test_a_source_is_not_idle_while_the_job_does_not_run(tmp_path: Path) -> None:
    """Rows that came from several sources while the job was stopped are not late, whichever source is read first."""
    local(tmp_path, tumbling("1m"), sources=2, idle_after="1h").epoch(0, [(0, batch(0)), (1, batch(0, key="b"))])
    again = local(tmp_path, tumbling("1m"), sources=2, idle_after="1h", now=NOW + timedelta(days=1))
    assert again.epoch(1, [(0, batch(600))]).num_rows == 0
    assert windows(again.epoch(2, [(1, batch(1, 600, key="b"))]), "k", "n") == [(0, "a", 1), (0, "b", 2)]
    assert again.rejected.late == 0


def test_epochs_without_rows_and_with_late_rows_only(tmp_path: Path) -> None:
    job = local(tmp_path, tumbling("1m"))
    job.epoch(0, [(0, batch(0, 120))])
    assert job.epoch(1, []).num_rows == 0
    assert job.epoch(2, [(0, batch(0))]).num_rows == 0
    assert job.rejected.late == 1
    assert windows(job.epoch(3, [(0, batch(180))]), "n") == [(120, 1)]


def test_a_late_row_is_in_those_of_its_windows_that_are_open(tmp_path: Path) -> None:
    job = local(tmp_path, sliding("2m", every="1m"))
    assert windows(job.epoch(0, [(0, batch(0, 60))]), "n") == [(-60, 1)]
    assert windows(job.epoch(1, [(0, batch(1))], ends=True), "n") == [(0, 3), (60, 1)]
    assert job.rejected.late == 0


def test_a_row_joins_two_sessions(tmp_path: Path) -> None:
    job = local(tmp_path, session("10s"), lateness="1m", emit="updates")
    first = job.epoch(0, [(0, batch(0, 15))])
    assert windows(first, "n", "_change") == [(0, 1, "update_after"), (15, 1, "update_after")]
    assert windows(job.epoch(1, [(0, batch(7))]), "n", "_change") == [(0, 3, "update_after"), (15, None, "delete")]
    # A session that begins earlier now is another row.
    assert windows(job.epoch(2, [(0, batch(-5))]), "n", "_change") == [(-5, 4, "update_after"), (0, None, "delete")]


@pytest.mark.parametrize("lateness", ["7s", 0], ids=["within lateness", "older than lateness"])
def test_rows_join_the_session_that_a_batch_query_has(lateness: str | int, tmp_path: Path) -> None:
    job = local(tmp_path, session("10s"), lateness=lateness)
    out = [job.epoch(number, [(0, batch(second))], ends=number == 2) for number, second in enumerate((0, 12, 5))]
    assert windows(pa.concat_tables(out), "n") == [(0, 3)]
    assert job.rejected.late == 0


def test_a_session_is_held_until_each_row_that_would_join_it_is_late(tmp_path: Path) -> None:
    job = local(tmp_path, session("10s"))
    # The row at 9.9 is not late, as the watermark is at 19.5, and joins both sessions, of which one has ended.
    assert [job.epoch(number, [(0, batch(second))]).num_rows for number, second in enumerate((0, 19.5, 9.9))] == [0] * 3
    assert windows(job.epoch(3, [(0, batch(60))]), "n") == [(0, 3)]
    assert job.rejected.late == 0
    job.epoch(4, [(0, batch(50))])
    assert job.rejected.late == 1
    # At the end of all sources none is held.
    assert windows(job.epoch(5, [(0, batch(50.000001))], ends=True), "n") == [(50, 2)]


def test_an_older_row_unites_sessions_that_came_out_as_updates(tmp_path: Path) -> None:
    job = local(tmp_path, session("10s"), emit="updates")
    assert windows(job.epoch(0, [(0, batch(0))]), "n", "_change") == [(0, 1, "update_after")]
    assert windows(job.epoch(1, [(0, batch(12))]), "n", "_change") == [(12, 1, "update_after")]
    assert windows(job.epoch(2, [(0, batch(5))]), "n", "_change") == [(0, 3, "update_after"), (12, None, "delete")]


def test_updates_come_once_for_each_epoch_that_changes_a_window(tmp_path: Path) -> None:
    job = local(tmp_path, tumbling("1m"), keys=(), lateness="1m", emit="updates")
    assert windows(job.epoch(0, [(0, batch(0, 60))]), "n") == [(0, 1), (60, 1)]
    assert windows(job.epoch(1, [(0, batch(1, key=None)), (0, batch(2))]), "n") == [(0, 3)]
    assert job.epoch(2, [], ends=True).num_rows == 0


def test_the_number_of_tasks_may_change(tmp_path: Path) -> None:
    job = local(tmp_path, tumbling("1m"), lateness="1h", buckets=5)
    for number in range(3):
        job.state.tasks = number + 1
        out = job.epoch(number, [(0, batch(0, key=f"k{key}")) for key in range(50)], ends=number == 2)
    assert windows(out, "n") == [(0, 3)] * 50


def test_many_keys_are_not_reduced_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("volley.task.partials._ROWS_AT_ONCE", 100)
    monkeypatch.setattr("volley.task.partials._STATES_AT_ONCE", 150)
    job = local(tmp_path, tumbling("1m"))
    keys = [batch(0, 1, key=f"k{key}")[0] for key in range(300)]
    out = job.epoch(0, [(0, keys)], ends=True)
    assert windows(out, "n") == [(0, 2)] * 300


@pytest.mark.parametrize(("keys", "states"), [(50, 100), (5_000, 10_000), (40_000, 80_000)])
def test_a_sample_tells_whether_rows_are_worth_reducing(tmp_path: Path, keys: int, states: int) -> None:
    job = local(tmp_path, tumbling("1m"))
    job.ends = True
    at = pa.repeat(pa.scalar(NOW, SCHEMA.field("at").type), 40_000)
    users = pa.array([f"k{row % keys}" for row in range(40_000)])
    rows = pa.record_batch([users, pa.repeat(1, 40_000), at], schema=SCHEMA)
    partials = [job.state.writers(0)[0].open(0) for _ in range(2)]
    for partial in partials:
        partial.write(rows)
    written = [partial.close().committables[0] for partial in partials]
    assert sum(row_count(file.url) for each in written for file in each.files) == states
    out = job.epoch(0, [(0, [rows]), (0, [rows])], ends=True)
    assert windows(out, "n", "total") == [(0, 80_000 // keys, 80_000 // keys)] * keys


def test_few_states_are_merged_by_one_task(tmp_path: Path) -> None:
    job = local(tmp_path, tumbling("1m"), buckets=5)
    job.state.tasks = 3
    for number, (least, tasks) in enumerate([(1 << 20, 1), (1_000, 3)]):
        job.state.bytes_a_task = least
        out = job.epoch(number, [(0, batch(0, key=f"k{key}")) for key in range(50)], ends=number == 1)
        assert len(list((tmp_path / str(number)).glob("state-*.arrow"))) == tasks
    assert windows(out, "n") == [(0, 2)] * 50


def test_a_sum_beyond_64_bits_raises(tmp_path: Path) -> None:
    job = local(tmp_path, tumbling("1m"))
    with pytest.raises(ExpressionError, match="beyond 64 bits"):
        job.epoch(0, [(0, batch(0, 1, number=2**62))])


def test_sums_of_each_key_fit_although_those_of_all_do_not(tmp_path: Path) -> None:
    job = local(tmp_path, tumbling("1m"))
    rows = [each for key in range(20) for each in (*batch(0, key=f"k{key}", number=2**62), *batch(1, key=f"k{key}"))]
    ends = [*batch(0, number=2**62), *batch(0, number=-(2**62)), *batch(0, number=5)]
    out = job.epoch(0, [(0, [*rows, *ends])], ends=True)
    assert windows(out, "total") == [*[(0, 2**62 + 1)] * 20, (0, 5)]


@pytest.mark.parametrize(
    ("values", "total"),
    [
        (["6e19", "-6e19", "6e19"], "6e19"),
        (["99999999999999999999.999999999999999999", "0.000000000000000001"], None),
        # In 128 bits the sum of these is a small negative number.
        (["6e19"] * 5, None),
    ],
)
def test_a_sum_of_decimals_is_exact_or_raises(values: list[str], total: str | None, tmp_path: Path) -> None:
    schema = pa.schema({"k": pa.string(), "d": pa.decimal128(38, 18), "at": pa.timestamp("us", "UTC")})
    rows = Environment().from_source(MemorySource(schema.empty_table())).key_by("k").window(tumbling("1m"), on="at")
    job = steps.windows(rows.aggregate(total=sum_("d")), schema, tmp_path, now=NOW.timestamp)
    batches = [pa.RecordBatch.from_pylist([{"k": "a", "d": Decimal(each), "at": NOW}], schema) for each in values]
    if total is None:
        with pytest.raises(ExpressionError, match=r"more digits than decimal\(38, 18\)"):
            job.epoch(0, [(0, batches)], ends=True)
    else:
        assert windows(job.epoch(0, [(0, batches)], ends=True), "total") == [(0, Decimal(total))]


def test_doubles_of_decimals_are_the_nearest_and_quantiles_may_be_infinite(tmp_path: Path) -> None:
    schema = pa.schema({"k": pa.string(), "d": pa.decimal128(9, 2), "x": pa.float64(), "at": pa.timestamp("us", "UTC")})
    rows = Environment().from_source(MemorySource(schema.empty_table())).key_by("k").window(tumbling("1m"), on="at")
    stream = rows.aggregate(mean=avg("d"), middle=quantile("d", 0.5), low=quantile("x", 0.25), top=quantile("x", 0.9))
    job = steps.windows(stream, schema, tmp_path, now=NOW.timestamp)
    records = [{"k": "a", "d": Decimal("0.57"), "x": x, "at": NOW} for x in (math.inf, 1.0, math.inf)]
    out = job.epoch(0, [(0, [pa.RecordBatch.from_pylist(records[:1], schema)])])
    assert out.num_rows == 0
    (row,) = job.epoch(1, [(0, [pa.RecordBatch.from_pylist(records[1:], schema)])], ends=True).to_pylist()
    assert (row["middle"], row["low"], row["top"]) == (0.57, math.inf, math.inf)
    assert row["mean"] == pytest.approx(0.57, rel=1e-15)
