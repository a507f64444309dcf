"""What every sink promises: an epoch shows whole and once, whatever dies on the way. Iceberg's has tests of its own."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle

from tests.sinks import config_of
from volley import (
    CommitStateUnknownError,
    Committer,
    ConsoleSink,
    Epoch,
    FileSink,
    FileSource,
    FunctionSink,
    IcebergSink,
    MemorySink,
    Metrics,
    SourceContext,
    col,
    concat_str,
)
from volley.contracts.epoch import WriteResult
from volley.contracts.sink import Sink, SinkContext
from volley.formats.files import WrittenFormat
from volley.iceberg.sink import RoutedSink

SCHEMA = pa.schema({"id": pa.int64(), "name": pa.string()})
QUERY = str(uuid.UUID(int=1 << 127))
EPOCH = Epoch(QUERY, 0)

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Case:
    """A sink and how to see what it shows.

    Args:
        visible: The ids of all rows shown so far.
        remembers: Whether it knows after a restart which epochs it has shown.
        folder: Where its files are, if it has any.
        state: The folder of what it keeps with the checkpoint.
    """

    sink: Sink
    visible: Callable[[], list[int]]
    remembers: bool = True
    folder: Path | None = None
    state: str = ""

    def open(self) -> Committer:
        """As a new driver does."""
        return self.sink.open(SinkContext("job", SCHEMA, Metrics(), state=self.state))


def files(format: WrittenFormat, folder: Path) -> Case:
    def visible() -> list[int]:
        context = SourceContext(str(folder.parent / uuid.uuid4().hex))
        source = FileSource(folder, format=format, schema=SCHEMA, bounded=False).open(context)
        end = source.latest_offset(source.initial_offset(), None, None)
        splits = source.splits(source.initial_offset(), end)
        return sorted(row["id"] for split in splits for batch in source.read(split) for row in batch.to_pylist())

    return Case(FileSink(folder, format=format), visible, folder=folder)


def in_memory() -> Case:
    sink = MemorySink()
    return Case(sink, lambda: sorted(row["id"] for row in sink.rows()))


SEEN: list[int] = []


def collect(rows: pa.Table, epoch: Epoch) -> None:
    SEEN.extend(rows.column("id").to_pylist())


def function() -> Case:
    SEEN.clear()
    return Case(FunctionSink(collect, on_driver=True), lambda: sorted(SEEN), remembers=False)


def console(capsys: pytest.CaptureFixture[str]) -> Case:
    shown: list[str] = []

    def visible() -> list[int]:
        shown.append(capsys.readouterr().out)
        cells = [line.split("│")[1].strip() for line in "".join(shown).splitlines() if line.startswith("│")]
        return sorted(map(int, cells))

    return Case(ConsoleSink(), visible, remembers=False)


def routed(folder: Path) -> Case:
    config = config_of(folder, "all")
    sink = IcebergSink(config).routed(concat_str("part", (col("id") % 2).cast("string")))

    def visible() -> list[int]:
        catalog = config.ref.load_catalog()
        tables = [catalog.load_table(name) for name in catalog.list_tables("db")] if catalog.list_namespaces() else []
        return sorted(id for table in tables for id in table.scan().to_arrow()["id"].to_pylist())

    return Case(sink, visible, remembers=False, state=str(folder / "state"))


@pytest.fixture(params=["console", "function", "memory", "routed", "files-csv", "files-json", "files-parquet"])
def case(request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Case:
    kind, _, format = request.param.partition("-")
    if kind == "files":
        return files(format, tmp_path / "out")
    known: dict[str, Callable[[], Case]] = {
        "console": lambda: console(capsys),
        "function": function,
        "memory": in_memory,
        "routed": lambda: routed(tmp_path),
    }
    return known[kind]()


@pytest.fixture(params=["csv", "json", "parquet"])
def file_case(request: pytest.FixtureRequest, tmp_path: Path) -> Case:
    return files(request.param, tmp_path / "out")


def batch(*ids: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"id": each, "name": None if each % 2 else "even"} for each in ids], SCHEMA)


def shipped(value: Any) -> Any:
    """The value as another process gets it."""
    return cloudpickle.loads(cloudpickle.dumps(value))


def write(committer: Committer, epoch: Epoch, *tasks: list[pa.RecordBatch]) -> list[WriteResult]:
    """What Spark's tasks do: each with its own copy of the writer; results travel back."""
    writer = committer.writer(epoch)
    results = []
    for number, batches in enumerate(tasks):
        task = shipped(writer).open(number)
        for each in batches:
            task.write(each)
        results.append(shipped(task.close()))
    return results


def left(case: Case) -> list[str]:
    """Names of files in the sink's folder other than marks of queries."""
    assert case.folder is not None
    return sorted(path.name for path in case.folder.iterdir() if path.name != "_volley")


def test_an_epoch_shows_when_it_is_committed_and_not_before(case: Case) -> None:
    committer = case.open()
    results = write(committer, EPOCH, [batch(1, 2), batch(3)], [], [batch(4)])
    assert case.visible() == []
    committer.commit(EPOCH, results)
    assert case.visible() == [1, 2, 3, 4]
    following = replace(EPOCH, number=1)
    committer.commit(following, write(committer, following, [batch(5)]))
    assert case.visible() == [1, 2, 3, 4, 5]


def test_results_count_what_was_written(case: Case) -> None:
    result, empty = write(case.open(), EPOCH, [batch(1, 2, 3), batch(4)], [])
    assert (result.rows, result.batches, result.batch_size_min, result.batch_size_max) == (4, 2, 1, 3)
    assert empty == WriteResult()
    if case.folder:
        (staged,) = (case.folder / name for name in left(case))
        assert (result.files, result.bytes) == (1, staged.stat().st_size)


def test_the_last_epoch_is_known_to_the_next_driver(case: Case) -> None:
    committer = case.open()
    assert committer.last_epoch(QUERY) is None
    for number in (0, 1):
        epoch = Epoch(QUERY, number)
        committer.commit(epoch, write(committer, epoch, [batch(number)]))
    known = 1 if case.remembers else None
    assert committer.last_epoch(QUERY) == case.open().last_epoch(QUERY) == known
    assert committer.last_epoch(str(uuid.UUID(int=2))) is None


def test_an_epoch_without_rows_is_an_epoch(case: Case) -> None:
    committer = case.open()
    committer.commit(EPOCH, write(committer, EPOCH, [], []))
    assert case.visible() == []
    assert committer.last_epoch(QUERY) == (0 if case.remembers else None)


def test_a_driver_that_dies_before_the_commit_leaves_nothing_behind(case: Case) -> None:
    write(case.open(), EPOCH, [batch(1)], [batch(2)])
    committer = case.open()
    assert committer.last_epoch(QUERY) is None
    committer.commit(EPOCH, write(committer, EPOCH, [batch(1, 2)]))
    assert case.visible() == [1, 2]
    if case.folder:
        assert len(left(case)) == 1


def test_an_epoch_that_was_published_but_not_marked_is_replaced(file_case: Case) -> None:
    committer = file_case.open()
    results = write(committer, EPOCH, [batch(1)], [batch(2)])
    assert file_case.folder is not None
    # Where the mark should be written stands a folder: the driver loses its storage at the worst moment.
    in_the_way = file_case.folder / "_volley" / f"{QUERY}.json.tmp"
    in_the_way.mkdir()
    with pytest.raises(CommitStateUnknownError, match="epoch 0"):
        committer.commit(EPOCH, results)
    in_the_way.rmdir()
    committer = file_case.open()
    assert committer.last_epoch(QUERY) is None
    # The second try has fewer tasks, so that its names do not cover the first one's.
    committer.commit(EPOCH, write(committer, EPOCH, [batch(1, 2)]))
    assert file_case.visible() == [1, 2]
    assert file_case.open().last_epoch(QUERY) == 0


def test_a_task_that_aborts_leaves_nothing(case: Case) -> None:
    committer = case.open()
    writer = committer.writer(EPOCH)
    task = writer.open(0)
    task.write(batch(1))
    task.abort()
    writer.open(1).abort()
    assert case.visible() == []
    if case.folder:
        assert left(case) == []


def test_an_epoch_that_is_aborted_leaves_nothing(case: Case) -> None:
    committer = case.open()
    committer.abort(EPOCH, write(committer, EPOCH, [batch(1)], [batch(2)]))
    assert case.visible() == []
    if case.folder:
        assert left(case) == []


def test_an_epoch_published_by_half_is_taken_back(file_case: Case) -> None:
    committer = file_case.open()
    results = write(committer, EPOCH, [batch(1)], [batch(2)])
    assert file_case.folder is not None
    staged, _ = results[1].committables[0]
    (file_case.folder / staged).unlink()
    with pytest.raises(Exception, match="publishing") as caught:
        committer.commit(EPOCH, results)
    assert not isinstance(caught.value, CommitStateUnknownError)
    committer.abort(EPOCH, results)
    assert left(file_case) == []


def test_what_it_can_clear_is_gone(case: Case) -> None:
    committer = case.open()
    committer.commit(EPOCH, write(committer, EPOCH, [batch(1, 2)]))
    if not committer.can_clear:
        return
    # A start over has a new checkpoint.
    committer = replace(case, state=f"{case.state}-2").open()
    committer.clear()
    following = Epoch(str(uuid.UUID(int=2)), 0)
    committer.commit(following, write(committer, following, [batch(3)]))
    # What was printed stays; each table of a route is emptied when it gets its next rows.
    kept = [1, 2] if isinstance(case.sink, ConsoleSink) else [2] if isinstance(case.sink, RoutedSink) else []
    assert case.visible() == [*kept, 3]


def test_a_sink_with_a_table_returns_its_rows(case: Case) -> None:
    committer = case.open()
    committer.commit(EPOCH, write(committer, EPOCH, [batch(1, 2)]))
    assert case.sink.has_table == isinstance(case.sink, MemorySink)
    if isinstance(case.sink, MemorySink):
        assert case.sink.to_arrow(1).num_rows == 1
        assert case.sink.table().column("id").to_pylist() == [1, 2]


def test_two_attempts_of_one_task_do_not_collide(case: Case) -> None:
    committer = case.open()
    writer = committer.writer(EPOCH)
    slow, quick = shipped(writer).open(0), shipped(writer).open(0)
    slow.write(batch(1))
    quick.write(batch(1))
    result = quick.close()
    slow.close()
    slow.abort()
    committer.commit(EPOCH, [result])
    assert case.visible() == [1]


def test_two_queries_share_a_target(case: Case) -> None:
    epochs = [EPOCH, Epoch(str(uuid.UUID(int=2)), 0)]
    committers = [case.open(), replace(case, state=f"{case.state}-2").open()]
    results = [write(committers[i], epochs[i], [batch(i)]) for i in range(2)]
    for committer, epoch, result in zip(committers, epochs, results, strict=True):
        committer.commit(epoch, result)
    assert case.visible() == [0, 1]


def test_the_sink_is_a_value_that_shows_no_secret(case: Case) -> None:
    assert shipped(case.sink) == case.sink
    assert hash(shipped(case.sink)) == hash(case.sink)
    assert "hunter2" not in repr(FileSink("s3://b/x", storage_options={"secret": "hunter2"}))
    assert len(repr(case.sink)) < 200


def test_marks_are_json_behind_a_line(file_case: Case) -> None:
    committer = file_case.open()
    committer.commit(EPOCH, write(committer, EPOCH, [batch(1)]))
    assert file_case.folder is not None
    line, _, mark = (file_case.folder / "_volley" / f"{QUERY}.json").read_text().partition("\n")
    assert line.startswith("volley sink-mark 2 ")
    assert json.loads(mark) == {
        "epoch": 0,
        "offsets": "",
        "job": "job",
    }
