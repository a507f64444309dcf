"""Tasks with dead letters: what is good is written once, what is bad goes to the dead letter of its sink once."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from volley import (
    Environment,
    FileSource,
    JobError,
    MemorySource,
    Metrics,
    SchemaMismatchError,
    Sink,
    Source,
    SourceContext,
    StorageError,
    VolleyError,
    col,
)
from volley.columns.letters import SCHEMA
from volley.columns.schemas import Schemas
from volley.connectors.memory.sink import MemorySink
from volley.contracts.epoch import Epoch, WriteResult
from volley.contracts.rows import BadRow
from volley.contracts.sink import Committer, SinkContext, Writer
from volley.engine.sinks import DeadLetterSinks
from volley.formats.decoders import decoder_of
from volley.formats.messages import MessageRows
from volley.plan.graph import JobGraph
from volley.stream.pipeline import Pipeline
from volley.stream.stream import DataStream
from volley.task.task import InputSplit, Task, TaskPlan
from volley.task.tree import SinkStep, grow
from volley.task.writers import MemoryTaskWriter

EPOCH = Epoch("query", 3)


@dataclass(frozen=True)
class Picky(MemorySink):
    """Rows in memory; `id` has to be there, and below a limit, as for a table with a required column."""

    letters: Sink | None = None
    limit: int = 1_000_000

    @property
    def dead_letter(self) -> Sink | None:
        return self.letters

    def open(self, context: SinkContext) -> Committer:
        return _PickyCommitter(super().open(context), self.limit)


@dataclass(frozen=True)
class _PickyCommitter(Committer):
    inner: Any
    limit: int

    def last_epoch(self, query_id: str) -> int | None:
        found: int | None = self.inner.last_epoch(query_id)
        return found

    def writer(self, epoch: Epoch) -> _PickyWriter:
        return _PickyWriter(self.limit)

    def commit(self, epoch: Epoch, results: Any) -> None:
        self.inner.commit(epoch, results)


@dataclass(frozen=True)
class _PickyWriter(Writer):
    limit: int

    def open(self, task: int) -> _PickyTaskWriter:
        return _PickyTaskWriter(self.limit)


class _PickyTaskWriter(MemoryTaskWriter):
    def __init__(self, limit: int) -> None:
        super().__init__()
        self._limit = limit

    def check(self, batch: pa.RecordBatch) -> None:
        ids = batch.column("id").to_pylist()
        if None in ids or max(ids) >= self._limit:
            raise SchemaMismatchError("column 'id' does not fit", hint="mend it")

    def write(self, batch: pa.RecordBatch) -> None:
        self.check(batch)
        super().write(batch)


def stream(source: Source) -> DataStream:
    return Environment().from_source(source)


def run(pipeline: Pipeline, folder: Path, due: Callable[[int], bool] = lambda sink: True) -> list[WriteResult]:
    """One epoch in one task, committed; `due` tells which sinks lack it. Returns what the task wrote."""
    writes = pipeline._writes
    graph = JobGraph.of(writes)
    (read,) = graph.reads
    reader = read.source.open(SourceContext(str(folder / "state")))
    schemas = Schemas(lambda read: reader.schema)
    tree = grow(read, graph.ends, graph.followers, schemas, dictionaries=False)
    steps = tuple(
        SinkStep(schemas.known(write), write.sink.batch_size, label=write.brief, name=write.sink.label)
        for write in writes
    )
    opened = [write.sink.open(SinkContext("job", schemas.known(write), Metrics())) for write in writes]
    targets = DeadLetterSinks.open(graph, "job", Metrics())
    letters = targets.letters("job", EPOCH, [True] * len(targets.sinks))
    start = reader.initial_offset()
    splits = [InputSplit(0, split) for split in reader.splits(start, reader.latest_offset(start, None, None))]
    writers = tuple(each.writer(EPOCH) if due(sink) else None for sink, each in enumerate(opened))
    (results,) = list(Task(EPOCH.number, TaskPlan((reader,), (tree,), steps), writers, letters)(iter(splits)))
    for committer, result in zip([*opened, *(sink.committer for sink in targets.sinks)], results, strict=True):
        committer.commit(EPOCH, [result])
    return list(results)


def ids(sink: MemorySink) -> list[Any]:
    return [row["id"] for row in sink.rows()]


def payloads(sink: MemorySink) -> list[Any]:
    return [json.loads(row["payload"]) for row in sink.rows()]


def rows(*values: Any) -> MemorySource:
    return MemorySource([{"id": value} for value in values], schema="id long")


@pytest.fixture
def dead() -> MemorySink:
    return MemorySink("dead")


def test_a_dead_letter_tells_what_was_bad_where_and_when(dead: MemorySink, tmp_path: Path) -> None:
    before = datetime.now(UTC)
    sink = Picky("out", letters=dead)
    run(stream(rows(1, None, 3)).to_sink(sink), tmp_path)
    (letter,) = dead.rows()
    assert before <= letter.pop("time") <= datetime.now(UTC)
    assert letter == {
        "payload": '{"id": null}',
        "error": "column 'id' does not fit",
        "position": "memory:memory, row 2",
        "epoch": 3,
        "job": "job",
        "step": f"write {sink!r}",
        "column": "id",
        "source": "memory:memory",
        "format": "row",
        "sinks": json.dumps([sink.label]),
        "replayed": None,
    }
    assert dead.table().schema == SCHEMA


def price(value: str) -> DataStream:
    return stream(MemorySource([{"id": 1, "price": value, "tax": 2**62}], "id long, price string, tax long"))


@pytest.mark.parametrize(
    ("made", "step", "column"),
    [
        (lambda: price("n/a").with_column("cost", col("price").cast("double")), "with_column 'cost'", "price"),
        (lambda: price("n/a").select("id", cost=col("price").cast("double")), "select col('id')", "price"),
        (lambda: price("n/a").filter(col("price").cast("double") > 0), "filter", "price"),
        (lambda: price("1").with_column("cost", col("tax") * 4), "with_column 'cost'", "tax"),
        (lambda: price("1").with_columns(a=col("id"), b=col("tax") * (col("id") + 3)), "with_columns", None),
        (lambda: price("1").drop("tax").map(lambda row: {"id": 1 // 0}), "map ", None),
        (lambda: price("1").map(lambda row: {**row, "tax": "x"}), "map ", None),
    ],
    ids=["with_column", "select", "filter", "overflow", "several columns", "function", "value of a function"],
)
def test_a_dead_letter_tells_the_step_and_the_column(
    made: Callable[[], DataStream], step: str, column: str | None, dead: MemorySink, tmp_path: Path
) -> None:
    run(made().to_sink(Picky("out", letters=dead)), tmp_path)
    (letter,) = dead.rows()
    assert letter["step"].startswith(step)
    assert letter["column"] == column


@pytest.mark.parametrize("text", ["n/a", "12 34", "1.5"])
def test_the_error_of_a_cast_shows_the_text_that_is_no_number(text: str, dead: MemorySink, tmp_path: Path) -> None:
    run(price(text).with_column("cost", col("price").cast("int")).to_sink(Picky("out", letters=dead)), tmp_path)
    assert f"'{text}'" in dead.rows()[0]["error"]


UNREADABLE = {
    "a.json": [
        ('{"id": "x"}', "json", "id"),
        ('{"id": 1.5}', "json", "id"),
        ('{"id": 1, "price": "2.345"}', "json", "price"),
        ('{"id": 1, "at": "soon"}', "json", "at"),
        ('{"id": ', "json", None),
        ('{"id": "\xff"}', "text", None),
    ],
    "a.csv": [
        ("x,1.00,2026-01-01", 'csv ["id", "price", "at"]', "id"),
        ("1,2.345,2026-01-01", 'csv ["id", "price", "at"]', "price"),
        ("1,2.00", 'csv ["id", "price", "at"]', None),
        ("1,\xff,2026-01-01", "text", "price"),
        ('1,"2.00', "text", None),
    ],
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_a_dead_letter_of_a_line_tells_its_source_and_the_column_that_it_was_read_into(
    name: str, dead: MemorySink, tmp_path: Path
) -> None:
    lines = [line for line, _, _ in UNREADABLE[name]]
    head = ["id,price,at"] if name == "a.csv" else []
    (tmp_path / name).write_bytes("\n".join([*head, *lines, ""]).encode("latin-1"))
    source = FileSource(tmp_path / name, schema="id long, price decimal(9,2), at timestamp")
    run(stream(source).to_sink(Picky("out", letters=dead)), tmp_path)
    assert [(row["format"], row["column"]) for row in dead.rows()] == [told[1:] for told in UNREADABLE[name]]
    assert {row["source"] for row in dead.rows()} == {source.identity}
    assert {row["step"] for row in dead.rows()} == {stream(source)._node.brief}
    whole = [row["payload"] for row in dead.rows() if row["format"] != "text"]
    assert whole == [line for line, format, _ in UNREADABLE[name] if format != "text"]


@dataclass(frozen=True)
class Messages:
    """Messages of a topic, or requests."""

    values: list[bytes | None]

    def part(self, start: int, end: int) -> Messages:
        return Messages(self.values[start:end])

    def position(self, row: int) -> str:
        return f"message {row}"


def test_a_message_tells_its_format_and_column_and_is_only_text_if_bytes_are_lost() -> None:
    decoder = decoder_of("json", "id long, at timestamp", "fail", "unknown", {})
    rows = MessageRows(decoder, decoder.schema, lambda fields, chunk: [])
    values: list[bytes | None] = [b'{"id": "x"}', b'{"at": "soon"}', b'{"ID": 1}', b"\xff{}", b"[1]"]
    items = list(rows.read_tolerant([Messages([b'{"id": 1}', *values])]))
    told = [(item.format, item.column) for item in items if isinstance(item, BadRow)]
    assert told == [("json", "id"), ("json", "at"), ("json", "ID"), ("text", None), ("json", None)]


def test_a_dead_letter_names_all_sinks_that_lack_the_row(dead: MemorySink, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"id": 1}\n{"id":\n{"id": null}\n')
    first, second, third = MemorySink("first"), Picky("second", letters=dead), Picky("third", letters=dead)
    read = stream(FileSource(tmp_path / "a.json", schema="id long"))
    run(read.to_sink(first).to_sink(second).to_sink(third), tmp_path)
    assert [json.loads(row["sinks"]) for row in dead.rows()] == [
        [first.label, second.label, third.label],
        [second.label, third.label],
    ]


def explode(row: dict[str, Any]) -> dict[str, Any]:
    if row["id"] == 2:
        raise ValueError("on purpose")
    return row


def test_a_row_that_a_map_raises_for(dead: MemorySink, tmp_path: Path) -> None:
    sink = Picky("out", letters=dead)
    run(stream(rows(1, 2, 3)).map(explode).to_sink(sink), tmp_path)
    assert ids(sink) == [1, 3]
    assert payloads(dead) == [{"id": 2}]
    assert "on purpose" in dead.rows()[0]["error"]


def test_a_row_of_which_a_flat_map_makes_one_bad_row_is_rejected_whole(dead: MemorySink, tmp_path: Path) -> None:
    sink = Picky("out", letters=dead, limit=10)
    run(stream(rows(1, 6, 3)).flat_map(lambda row: [row, {"id": row["id"] * 2}]).to_sink(sink), tmp_path)
    assert ids(sink) == [1, 2, 3, 6]
    assert payloads(dead) == [{"id": 6}]


def test_a_bad_row_that_a_filter_drops_is_no_dead_letter(dead: MemorySink, tmp_path: Path) -> None:
    sink = Picky("out", letters=dead)
    run(stream(rows(1, None, 3, 4)).filter_expr(col("id") != 3).to_sink(sink), tmp_path)
    assert ids(sink) == [1, 4]
    assert dead.rows() == []


def test_a_cast_that_overflows(dead: MemorySink, tmp_path: Path) -> None:
    sink = Picky("out", letters=dead)
    run(stream(rows(1, 3_000_000_000)).with_column("small", col("id").cast("int")).to_sink(sink), tmp_path)
    assert ids(sink) == [1]
    assert payloads(dead) == [{"id": 3_000_000_000}]


def test_arithmetic_that_overflows(dead: MemorySink, tmp_path: Path) -> None:
    sink = Picky("out", letters=dead)
    run(stream(rows(2**62, 1)).with_column("id", col("id") * 4).to_sink(sink), tmp_path)
    assert ids(sink) == [4]
    assert payloads(dead) == [{"id": 2**62}]


def test_all_rows_bad(dead: MemorySink, tmp_path: Path) -> None:
    sink = Picky("out", letters=dead)
    results = run(stream(rows(*[None] * 2_500)).to_sink(sink), tmp_path)
    assert ids(sink) == []
    assert [result.rows for result in results] == [0, 2_500]
    assert [row["position"] for row in dead.rows()] == [f"memory:memory, row {i + 1}" for i in range(2_500)]


def test_a_row_rejected_by_the_second_sink_is_in_the_first(dead: MemorySink, tmp_path: Path) -> None:
    first, second = MemorySink("first"), Picky("second", letters=dead)
    run(stream(rows(1, None, 3)).to_sink(first).to_sink(second), tmp_path)
    assert (ids(first), ids(second)) == ([1, None, 3], [1, 3])
    assert payloads(dead) == [{"id": None}]


def test_a_row_rejected_by_the_first_sink_is_in_the_second(dead: MemorySink, tmp_path: Path) -> None:
    first, second = Picky("first", letters=dead), MemorySink("second")
    run(stream(rows(1, None, 3)).to_sink(first).to_sink(second), tmp_path)
    assert (ids(first), ids(second)) == ([1, 3], [1, None, 3])
    assert payloads(dead) == [{"id": None}]


def test_a_row_that_a_sink_without_dead_letter_refuses_stops_the_job_and_is_named(
    dead: MemorySink, tmp_path: Path
) -> None:
    pipeline = stream(rows(1, 5, 20)).to_sink(Picky("first", letters=dead, limit=2)).to_sink(Picky("second", limit=9))
    with pytest.raises(SchemaMismatchError, match=r"memory:memory, row 3: column 'id' does not fit") as caught:
        run(pipeline, tmp_path)
    assert caught.value.hint
    assert dead.rows() == []


def test_two_sinks_can_share_a_dead_letter(dead: MemorySink, tmp_path: Path) -> None:
    first, second = Picky("first", letters=dead, limit=9), Picky("second", letters=dead, limit=5)
    results = run(stream(rows(1, 20, 7)).to_sink(first).to_sink(second), tmp_path)
    assert (ids(first), ids(second)) == ([1, 7], [1])
    assert payloads(dead) == [{"id": 20}, {"id": 7}]
    assert len(results) == 3


def test_a_sink_that_has_the_epoch_already_gets_nothing(dead: MemorySink, tmp_path: Path) -> None:
    first, second = Picky("first", letters=dead), MemorySink("second")
    pipeline = stream(rows(1, None, 3)).to_sink(first).to_sink(second)
    results = run(pipeline, tmp_path, due=lambda sink: sink == 1)
    assert [result.rows for result in results] == [0, 3, 0]


def test_a_step_that_fails_for_a_row_keeps_it_from_the_sinks_behind_it_alone(dead: MemorySink, tmp_path: Path) -> None:
    plain, small, odd = Picky("plain", letters=dead), Picky("small", letters=dead), Picky("odd", letters=dead)
    read = stream(rows(1, 2, 3))
    mapped = read.map(explode)
    below, above = mapped.split(col("id") < 2)
    pipeline = Pipeline(
        (*read.to_sink(plain)._writes, *below.to_sink(small)._writes, *above.to_sink(odd)._writes), Environment()
    )
    run(pipeline, tmp_path)
    assert (ids(plain), ids(small), ids(odd)) == ([1, 2, 3], [1], [3])
    # Both sinks behind the step share a dead letter: the row is there once.
    assert payloads(dead) == [{"id": 2}]


def test_what_is_no_rows_fault_stops_the_job(dead: MemorySink, tmp_path: Path) -> None:
    def unreachable(row: dict[str, Any]) -> dict[str, Any]:
        raise StorageError("the disk is full")

    with pytest.raises(StorageError, match="the disk is full"):
        run(stream(rows(1)).map(unreachable).to_sink(Picky("out", letters=dead)), tmp_path)


def test_lines_that_can_not_be_read_go_to_the_first_dead_letter_there_is(dead: MemorySink, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"id": 1}\n{"id":\n\n{"id": null}\n')
    first, second = MemorySink("first"), Picky("second", letters=dead)
    run(stream(FileSource(tmp_path / "a.json", schema="id long")).to_sink(first).to_sink(second), tmp_path)
    assert [(row["payload"], row["position"].rpartition("/")[2]) for row in dead.rows()] == [
        ('{"id":', "a.json, line 2"),
        ('{"id": null}', "a.json, line 4"),
    ]
    assert sorted(ids(first), key=str) == [1, None]
    assert ids(second) == [1]


@pytest.mark.parametrize("value", [b"\xff\x00", "text", 1.5, True])
def test_payloads_hold_values_of_any_type(value: object, dead: MemorySink, tmp_path: Path) -> None:
    run(stream(MemorySource([{"value": value, "id": 9}])).to_sink(Picky("out", letters=dead, limit=1)), tmp_path)
    assert payloads(dead) == [{"value": "\\xff\x00" if isinstance(value, bytes) else value, "id": 9}]


def test_payloads_hold_times_that_python_has_no_value_for(dead: MemorySink, tmp_path: Path) -> None:
    table = pa.table({"at": pa.array([2**60], pa.timestamp("us")), "id": [9]})
    run(stream(MemorySource(table)).to_sink(Picky("out", letters=dead, limit=1)), tmp_path)
    assert payloads(dead) == [{"at": "38504-08-17 21:30:06.846976", "id": 9}]


@given(st.lists(st.one_of(st.none(), st.integers(0, 20)), max_size=80))
def test_each_row_is_in_the_sink_or_in_the_dead_letters(
    tmp_path_factory: pytest.TempPathFactory, values: list[int | None]
) -> None:
    dead = MemorySink("dead")
    sink = Picky("out", letters=dead, limit=10)
    run(stream(rows(*values)).to_sink(sink), tmp_path_factory.mktemp("state"))
    assert ids(sink) == [value for value in values if value is not None and value < 10]
    bad = [number for number, value in enumerate(values, 1) if value is None or value >= 10]
    assert [row["position"] for row in dead.rows()] == [f"memory:memory, row {number}" for number in bad]


@pytest.mark.parametrize(
    "pipeline",
    [
        lambda source: source.to_sink(Picky("out", limit=10)),
        lambda source: source.with_column("id", col("id") * 4).to_sink(MemorySink("out")),
        lambda source: source.map(explode).to_sink(MemorySink("out")),
    ],
    ids=["writer", "overflow", "function"],
)
def test_without_a_dead_letter_the_row_is_named(pipeline: Callable[[DataStream], Pipeline], tmp_path: Path) -> None:
    values = [1, 3, 2**62, 2]
    with pytest.raises(VolleyError, match=r"the row {.id.: (2|4611686018427387904)}") as caught:
        run(pipeline(stream(rows(*values))), tmp_path)
    assert caught.value.hint


def test_an_error_without_a_hint_is_a_job_error() -> None:
    from volley.task.sorter import _with_position

    assert isinstance(_with_position(pa.ArrowInvalid("overflow"), "row 1"), JobError)
