"""Expectations of rows: what fails is counted once, stays, goes, or fails the epoch before it is committed."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from prometheus_client.parser import text_string_to_metric_families

from volley import (
    Environment,
    ExpectationError,
    ExpressionError,
    FileSource,
    IcebergSink,
    IcebergSinkConfig,
    MemorySink,
    MemorySource,
    PlanError,
    Restart,
    col,
    count,
    tumbling,
)

Rows = Callable[[], list[dict[str, Any]]]
NAME = "price is not negative"
PRICES = [2, -1, None, 0, -3, 4]
ROWS = [{"id": number, "price": price} for number, price in enumerate(PRICES)]
SOURCE = MemorySource(ROWS, "id long, price long")


def prices(sink: MemorySink) -> list[int | None]:
    return [row["price"] for row in sorted(sink.rows(), key=lambda row: int(row["id"]))]


def outcome(job: Any) -> tuple[int, int, int]:
    (told,) = job.status().expectations
    assert (told.name, told.column) == (NAME, "price")
    return told.rows, told.failed, told.unknown


def test_a_warning_tells_a_row_once_and_all_rows_stay(native: Environment, caplog: pytest.LogCaptureFixture) -> None:
    sink = MemorySink()
    with caplog.at_level(logging.WARNING, "volley"):
        job = native.from_source(SOURCE).expect(NAME, col("price") >= 0).to_sink(sink).execute("warn")
    assert prices(sink) == PRICES
    # Unknown is not failed, as in a check constraint.
    assert outcome(job) == (6, 2, 1)
    warned = [record.getMessage() for record in caplog.records if NAME in record.getMessage()]
    assert [text.partition(": the job's")[0] for text in warned] == [
        """warn: the row {"id": 1, "price": -1} does not meet 'price is not negative'"""
    ]
    assert json.loads(job.status().to_json())["expectations"] == [
        {
            **{"name": NAME, "predicate": "col('price') >= lit(0)", "column": "price", "on_fail": "warn"},
            **{"max_failed": None, "rows": 6, "failed": 2, "unknown": 1},
        }
    ]


def test_rows_are_dropped(native: Environment) -> None:
    sink = MemorySink()
    job = native.from_source(SOURCE).expect(NAME, "price >= 0", "drop").to_sink(sink).execute("drop")
    assert prices(sink) == [2, None, 0, 4]
    assert outcome(job) == (6, 2, 1)


def test_rows_go_to_dead_letters_and_count_once(native: Environment) -> None:
    sink, dead = MemorySink("rows"), MemorySink("dead")
    stream = native.from_source(SOURCE).expect(NAME, "price >= 0", "dead_letter").with_column("twice", col("price") * 2)
    job = stream.to_sink(sink, dead).execute("letters")
    assert prices(sink) == [2, None, 0, 4]
    assert outcome(job) == (6, 2, 1)
    letters = sorted(dead.rows(), key=lambda row: str(row["payload"]))
    assert [json.loads(row["payload"])["id"] for row in letters] == [1, 4]
    assert {row["error"] for row in letters} == {f"it does not meet {NAME!r}: col('price') >= lit(0) is false"}
    assert {row["step"].partition(":")[0] for row in letters} == {f"expect {NAME!r}"}
    assert {row["column"] for row in letters} == {"price"}


@pytest.mark.parametrize(
    ("arguments", "fails"),
    [
        ({"on_fail": "fail"}, True),
        ({"max_failed": 1}, True),
        ({"max_failed": 2}, False),
        ({"max_failed": 0.3}, True),
        ({"max_failed": 0.34}, False),
        ({"on_fail": "drop", "max_failed": 1}, True),
        ({"on_fail": "fail", "max_failed": 2}, False),
    ],
    ids=str,
)
def test_too_many_fail_the_epoch_before_it_is_committed(
    arguments: dict[str, Any], fails: bool, native: Environment
) -> None:
    sink = MemorySink()
    pipeline = native.from_source(SOURCE).expect(NAME, "price >= 0", **arguments).to_sink(sink)
    if not fails:
        assert outcome(pipeline.execute("limits")) == (6, 2, 1)
        assert len(sink.rows()) == (4 if arguments.get("on_fail") == "drop" else 6)
        return
    with pytest.raises(ExpectationError, match="2 of 6 rows of epoch 0 do not meet 'price is not negative'") as caught:
        pipeline.execute("limits", restart=Restart(backoff="1ms"))
    assert '{"id": 1, "price": -1}' in str(caught.value)
    assert caught.value.hint
    assert sink.rows() == []


def test_a_failed_epoch_leaves_no_file_and_is_read_again_once_it_may_pass(
    native: Environment, config: IcebergSinkConfig, rows: Rows, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    for number, price in enumerate([5, -5]):
        (tmp_path / "in" / f"{number}.json").write_text(json.dumps({"id": number, "price": price}) + "\n")
    source = FileSource(tmp_path / "in", "json", "id long, price long", max_files_per_epoch=1)
    stream = native.from_source(source)
    with pytest.raises(ExpectationError, match="1 of 1 rows of epoch 1"):
        stream.expect(NAME, "price >= 0", "fail").to_sink(IcebergSink(config)).execute("files")
    assert rows() == [{"id": 0, "price": 5}]
    assert len([*(tmp_path / "lake").rglob("*.parquet")]) == 1
    job = stream.expect(NAME, "price >= 0", "drop").to_sink(IcebergSink(config)).execute("files")
    assert rows() == [{"id": 0, "price": 5}]
    assert outcome(job) == (1, 1, 0)


def test_an_epoch_that_is_done_again_counts_once(native: Environment, tmp_path: Path) -> None:
    flag = tmp_path / "failed"

    def once(batch: pa.RecordBatch) -> pa.RecordBatch:
        if not flag.exists():
            flag.touch()
            raise ValueError("on purpose")
        return batch

    sink = MemorySink()
    stream = native.from_source(SOURCE).expect(NAME, "price >= 0").map_batches(once)
    pipeline = stream.to_sink(sink)
    job = pipeline.execute("again", restart=Restart(backoff="1ms"))
    assert flag.exists()
    assert outcome(job) == (6, 2, 1)


def test_the_same_expectation_of_two_streams_counts_together_and_behind_a_window(native: Environment) -> None:
    sink = MemorySink()
    both = [native.from_source(MemorySource(ROWS, "id long, price long", name=name)) for name in "ab"]
    expected = [stream.expect(NAME, "price >= 0", "drop") for stream in both]
    job = expected[0].union(expected[1]).to_sink(sink).execute("two")
    assert outcome(job) == (12, 4, 2)
    at = [datetime(2026, 11, 1, 0, number, tzinfo=UTC) for number in range(3)]
    times = MemorySource([{"price": n, "at": time} for n, time in enumerate(at)], "price long, at timestamp")
    windows = native.from_source(times).key_by("price").window(tumbling("1m"), on="at").aggregate(n=count())
    assert outcome(windows.expect(NAME, "price > 1").to_sink(MemorySink("w")).execute("windows")) == (3, 2, 0)


def test_metrics_count_by_name(native: Environment) -> None:
    job = native.from_source(SOURCE).expect(NAME, "price >= 0").to_sink(MemorySink()).execute("metrics")
    text = job.metrics.to_prometheus_format()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    told = {each.name: each.value for each in samples if each.labels.get("expectation") == NAME}
    prefix = "volley_iceberg_expectation"
    assert told == {f"{prefix}_rows_total": 6, f"{prefix}_failed_total": 2, f"{prefix}_unknown_total": 1}
    assert [run.status["expectations"][0]["failed"] for run in job.history()] == [2]


def test_what_can_not_be_expected_is_refused(tmp_path: Path) -> None:
    stream = Environment(checkpoint_dir=str(tmp_path)).from_source(SOURCE)
    letters = stream.expect(NAME, "price >= 0", "dead_letter")
    with pytest.raises(PlanError, match="a sink behind it has no dead letter"):
        letters.to_sink(MemorySink("a"), MemorySink("b")).to_sink(MemorySink("c")).execute("x")
    with pytest.raises(PlanError, match="two expectations are named"):
        stream.expect(NAME, "price >= 0").expect(NAME, "price > 0").to_sink(MemorySink()).execute("x")
    with pytest.raises(ExpressionError, match="an expectation takes a condition"):
        stream.expect(NAME, col("price")).to_arrow()
    with pytest.raises(ExpressionError, match="unknown column 'prise'"):
        stream.expect(NAME, "prise > 0").to_arrow()
