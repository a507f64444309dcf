"""Rows in memory: what is taken for rows, ABORT and EOF between them, and what a MemorySink keeps."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from volley import (
    ABORT,
    EOF,
    ConfigError,
    ConsoleSink,
    Environment,
    Epoch,
    FunctionSink,
    MemorySink,
    MemorySource,
    Metrics,
    Reader,
    SourceContext,
    SourceError,
)
from volley.connectors.memory import reader as memory_reader
from volley.connectors.memory.reader import MemoryReader
from volley.contracts.epoch import WriteResult
from volley.contracts.sink import Sink, SinkContext

START = {"rows": 0}


def numbered(*rows: Any) -> list[Any]:
    """Numbers as rows, markers as they are."""
    return [{"id": row} if isinstance(row, int) else row for row in rows]


class Run:
    """One bounded run of a source: opened anew, read epoch by epoch until nothing is left or it fails."""

    def __init__(self, source: MemorySource, state: Path, start: dict[str, int] = START) -> None:
        driver = source.open(SourceContext(str(state)))
        planner: Reader = pickle.loads(pickle.dumps(driver))
        target = planner.latest_offset(START, None, None)
        self.epochs: list[list[int]] = []
        self.seen: list[int] = []
        self.offset = start
        self.failed = False
        while (end := planner.latest_offset(self.offset, planner.limit, target)) != self.offset:
            self.seen = []
            try:
                for split in planner.splits(self.offset, end):
                    for batch in driver.read(split):
                        self.seen += batch.column("id").to_pylist()
            except SourceError as error:
                self.failed = "ABORT" in error.message
                return
            self.epochs.append(self.seen)
            self.offset = end


def test_rows_per_epoch(tmp_path: Path) -> None:
    assert Run(MemorySource(numbered(1, 2, 3, 4, 5), rows_per_epoch=2), tmp_path).epochs == [[1, 2], [3, 4], [5]]


def test_eof_ends_a_run_and_the_next_goes_on(tmp_path: Path) -> None:
    source = MemorySource(numbered(1, 2, 3, EOF, 4, 5, EOF, EOF, 6), rows_per_epoch=2)
    first = Run(source, tmp_path)
    second = Run(source, tmp_path, first.offset)
    third = Run(source, tmp_path, second.offset)
    assert (first.epochs, second.epochs, third.epochs) == ([[1, 2], [3]], [[4, 5]], [[6]])
    assert Run(source, tmp_path, third.offset).epochs == []


def test_runs_of_one_process_do_not_disturb_each_other(tmp_path: Path) -> None:
    source = MemorySource(numbered(1, EOF, 2))
    for start, end in ((0, 1), (1, 2)):
        opened = source.open(SourceContext(str(tmp_path)))
        assert opened.latest_offset({"rows": start}, None, {"rows": 2})["rows"] == end


def test_abort_fails_its_epoch_once_after_the_rows_before_it(tmp_path: Path) -> None:
    source = MemorySource(numbered(1, 2, 3, ABORT, 4, 5), rows_per_epoch=2)
    first = Run(source, tmp_path)
    assert (first.epochs, first.failed, first.seen) == ([[1, 2]], True, [3])
    again = Run(source, tmp_path, first.offset)
    assert (again.epochs, again.failed) == ([[3, 4], [5]], False)
    assert Run(source, tmp_path / "another checkpoint").failed


@pytest.mark.parametrize(
    ("rows", "before"),
    [
        ((ABORT, 1, 2), []),
        ((1, 2, ABORT), [1, 2]),
        ((1, 2, ABORT, EOF, 3), [1, 2]),
        ((1, ABORT, 2, ABORT), [1]),
    ],
)
def test_where_an_abort_may_stand(rows: tuple[Any, ...], before: list[int], tmp_path: Path) -> None:
    source = MemorySource(numbered(*rows))
    first = Run(source, tmp_path)
    assert (first.failed, first.seen) == (True, before)
    assert Run(source, tmp_path).epochs == [[1, 2]]


def test_an_abort_behind_eof_is_for_the_next_run(tmp_path: Path) -> None:
    source = MemorySource(numbered(1, EOF, ABORT, 2))
    first = Run(source, tmp_path)
    assert (first.epochs, first.failed) == ([[1]], False)
    assert Run(source, tmp_path, first.offset).failed
    assert Run(source, tmp_path, first.offset).epochs == [[2]]


def test_every_task_that_meets_the_abort_fails_in_that_run(tmp_path: Path) -> None:
    source = MemorySource(numbered(1, ABORT)).open(SourceContext(str(tmp_path)))
    (split,) = source.splits(START, {"rows": 1})
    for _ in range(3):
        with pytest.raises(SourceError, match="ABORT marker at row 1"):
            list(source.read(split))
    assert source.splits(START, {"rows": 1}) == [split]


def test_rows_become_columns(tmp_path: Path) -> None:
    source = MemorySource([{"a": 1}, {"b": "x", "a": None}, {}]).open(SourceContext(str(tmp_path)))
    assert source.schema == pa.schema({"a": pa.int64(), "b": pa.string()})
    (split,) = source.splits(START, {"rows": 3})
    (batch,) = source.read(split)
    assert batch.to_pylist() == [{"a": 1, "b": None}, {"a": None, "b": "x"}, {"a": None, "b": None}]


def test_a_declared_schema(tmp_path: Path) -> None:
    source = MemorySource([{"a": 1}], schema={"a": "int", "b": "array<string>"}).open(SourceContext(str(tmp_path)))
    assert source.schema == pa.schema({"a": pa.int32(), "b": pa.list_(pa.string())})
    assert MemorySource([], schema="a int").open(SourceContext(str(tmp_path))).schema == pa.schema({"a": pa.int32()})


def test_arrow_types_become_those_of_all_engines(tmp_path: Path) -> None:
    table = pa.table({"a": pa.array([1], pa.uint8()), "t": pa.array([1000], pa.timestamp("ns", "Asia/Tokyo"))})
    for rows in (table, table.to_batches()[0], table.to_batches(), [table, table]):
        source = MemorySource(rows)
        reader = source.open(SourceContext(str(tmp_path)))
        assert reader.schema == pa.schema({"a": pa.int32(), "t": pa.timestamp("us", "UTC")})
        assert repr(source) == ("MemorySource(2 rows)" if len(rows) == 2 else "MemorySource(1 row)")


@pytest.mark.parametrize(
    "rows", [{"id": 1}, "text", 5, [1, 2], [{"id": 1}, None], [0], [{"id": 1}, pa.table({"id": [1]})]]
)
def test_what_is_no_rows_is_refused_when_given(rows: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        MemorySource(rows)
    assert caught.value.hint


def test_other_settings_are_checked_when_given() -> None:
    with pytest.raises(ConfigError, match="rows_per_epoch 0"):
        MemorySource([], rows_per_epoch=0)
    with pytest.raises(ConfigError, match="lnog"):
        MemorySource([], schema="id lnog")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (MemorySource([]), "no rows to infer"),
        (MemorySource([{"id": 1}, {"id": "x"}]), "'id'"),
        (MemorySource([{"id": 1}, {"id": "x"}], schema="id long"), "'id'"),
        (MemorySource([{"idd": 1}], schema="id long"), "'idd'"),
        (MemorySource([{"id": object()}]), "'id'"),
    ],
)
def test_rows_that_fit_no_schema_name_the_column(source: MemorySource, message: str, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=message) as caught:
        source.open(SourceContext(str(tmp_path)))
    assert caught.value.hint


def test_a_source_is_not_changed_by_who_made_it() -> None:
    row = {"id": 1}
    rows = [row]
    source, same = MemorySource(rows), MemorySource([{"id": 1}])
    row["id"] = 2
    rows.append(row)
    assert source == same
    assert hash(source) == hash(same)
    assert source != MemorySource([{"id": 1}], name="other")
    assert source.identity != MemorySource([{"id": 1}], name="other").identity
    assert repr(MemorySource([{"id": 1}, ABORT, {"id": 2}])) == "MemorySource(2 rows)"


def fill(sink: MemorySink, number: int, batch: pa.RecordBatch, query: str = "q") -> None:
    committer = sink.open(SinkContext("job", batch.schema, Metrics()))
    epoch = Epoch(query, number)
    task = committer.writer(epoch).open(0)
    task.write(batch)
    committer.commit(epoch, [task.close(), WriteResult()])


def test_a_memory_sink_keeps_epochs_apart(tmp_path: Path) -> None:
    sink = MemorySink("out")
    fill(sink, 0, pa.record_batch({"id": [1, 2]}))
    fill(sink, 1, pa.record_batch({"id": [3]}))
    fill(sink, 1, pa.record_batch({"id": [4]}))
    assert sink.rows() == [{"id": 1}, {"id": 2}, {"id": 4}]
    assert sink.table().to_pylist() == sink.rows()
    sink.clear()
    assert sink.rows() == []
    assert sink.table().schema == pa.schema({"id": pa.int64()})
    fill(sink, 2, pa.record_batch({"id": [5]}))
    assert sink.rows() == [{"id": 5}]
    assert sink.open(SinkContext("job", sink.table().schema, Metrics())).last_epoch("q") == 2


def test_a_job_without_rows_has_an_empty_table() -> None:
    sink = MemorySink()
    schema = pa.schema({"id": pa.int64()})
    sink.open(SinkContext("job", schema, Metrics())).commit(Epoch("q", 0), [WriteResult()])
    assert sink.table() == schema.empty_table()


def test_a_sink_that_was_never_used_has_no_table() -> None:
    with pytest.raises(ConfigError, match="'memory'"):
        MemorySink().table()


def test_jobs_with_other_columns_share_a_sink() -> None:
    sink = MemorySink()
    fill(sink, 0, pa.record_batch({"id": [1]}))
    fill(sink, 0, pa.record_batch({"id": [2], "x": ["y"]}), query="other")
    assert sink.table().to_pylist() == [{"id": 1, "x": None}, {"id": 2, "x": "y"}]


def test_sinks_of_one_name_are_equal_and_collect_by_themselves() -> None:
    one, other = MemorySink("a"), MemorySink("a")
    fill(one, 0, pa.record_batch({"id": [1]}))
    assert one == other != MemorySink("b")
    assert other.rows() == []
    assert repr(one) == "MemorySink('a')"


def rows_of(source: MemorySource) -> list[dict[str, Any]]:
    reader = source.open(SourceContext(""))
    assert isinstance(reader, MemoryReader)
    return list(reader.table.to_pylist())


def test_a_pandas_frame_is_rows() -> None:
    frame = pd.DataFrame({"id": [1, 2, 3], "price": [0.5, float("nan"), 2.0], "kind": pd.Categorical(["a", None, "b"])})
    frame["at"] = pd.to_datetime(["2024-01-01", None, "2024-01-02 03:04:05.000006"], utc=True, format="ISO8601")
    source = MemorySource(frame[frame["id"] != 2])  # what is left has an index of its own, 0 and 2
    assert [(row["id"], row["price"], row["kind"]) for row in rows_of(source)] == [(1, 0.5, "a"), (3, 2.0, "b")]
    assert [row["at"] for row in rows_of(MemorySource(frame))] == [
        datetime(2024, 1, 1, tzinfo=UTC),
        None,
        datetime(2024, 1, 2, 3, 4, 5, 6, UTC),
    ]
    assert rows_of(MemorySource(frame))[1] == {"id": 2, "price": None, "kind": None, "at": None}
    assert rows_of(MemorySource(frame[["price"]].set_index(frame["id"])))[0] == {"price": 0.5, "id": 1}
    assert rows_of(MemorySource(frame[["id"]], schema={"id": str}))[0] == {"id": "1"}
    frame["id"] = 0
    assert rows_of(source)[0]["id"] == 1


def test_a_polars_frame_is_rows() -> None:
    frame = pl.DataFrame({"id": [1, None], "tags": [["a"], []], "at": [{"x": 1}, None]})
    assert rows_of(MemorySource(frame)) == frame.to_dicts()


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame({"mixed": [1, "a"]}),
        pd.DataFrame({"id": [1]}).set_axis([""], axis=1),
        pd.DataFrame([[1, 2]], columns=["a", "a"]),
        pd.Series([1, 2]),
        pl.Series([1, 2]),
        pd.DataFrame({"span": [pd.Timedelta("1s")]}),
    ],
)
def test_a_frame_that_is_no_table_is_refused(frame: Any) -> None:
    with pytest.raises((ConfigError, SourceError)) as caught:
        MemorySource(frame).open(SourceContext(""))
    assert caught.value.hint


@given(
    ids=st.lists(st.none() | st.integers(0, 3), min_size=1, max_size=12),
    names=st.lists(st.none() | st.text(max_size=3), min_size=12, max_size=12),
    more=st.integers(0, 20),
)
def test_an_offset_depends_on_the_rows_before_it_alone(
    ids: list[int | None], names: list[str | None], more: int
) -> None:
    """Not on how many come behind it, or on how Arrow has them in memory."""
    rows = [{"id": number, "name": name} for number, name in zip(ids, names, strict=False)]
    schema = pa.schema({"id": pa.int64(), "name": pa.string()})
    table = pa.Table.from_pylist(rows, schema)
    chunks = [table.slice(begin, 2) for begin in range(0, table.num_rows, 2)]
    longer = pa.concat_tables([*chunks, *[table.slice(0, 1)] * more])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory_reader, "_HASHED_ROWS", 5)
        readers = [MemorySource(source, schema=schema).open(SourceContext("")) for source in (rows, table, longer)]
        offsets = [reader.latest_offset(START, len(rows), None) for reader in readers]
    assert offsets[0] == offsets[1] == offsets[2]


def discard(batch: pa.RecordBatch, epoch: Epoch) -> None:
    """Take the rows of a FunctionSink."""


@pytest.mark.parametrize(
    ("sink", "name"),
    [
        (MemorySink("out"), "memory"),
        (ConsoleSink(), "the console"),
        (FunctionSink(discard), "FunctionSink(discard)"),
    ],
    ids=["memory", "console", "function"],
)
def test_log_lines_call_a_target_by_a_short_name(sink: Sink, name: str) -> None:
    """The line of a commit named the object of a class, with an address or all of its settings."""
    assert str(sink.open(SinkContext("job", pa.schema({"id": pa.int64()}), Metrics()))) == name


@pytest.mark.parametrize("lists", [pa.ListViewArray, pa.LargeListViewArray, pa.ListArray, pa.LargeListArray])
def test_lists_of_each_of_arrows_types_are_lists(lists: Any) -> None:
    offsets = [0, 2, 2] if lists in (pa.ListViewArray, pa.LargeListViewArray) else [0, 2, 2, 3]
    sizes = [[2, 0, 1]] if len(offsets) == 3 else []
    column = lists.from_arrays(offsets, *sizes, pa.array(["a", "b", "c"]))
    rows = Environment().from_source(MemorySource(pa.table({"x": column}))).to_arrow()
    assert rows.schema.field("x").type == pa.list_(pa.string())
    assert rows["x"].to_pylist() == [["a", "b"], [], ["c"]]
