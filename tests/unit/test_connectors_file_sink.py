"""Which files a FileSink leaves, what can be read back from them, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from volley import (
    CommitConflictError,
    Committer,
    ConfigError,
    Epoch,
    FileSink,
    FileSource,
    Metrics,
    SchemaMismatchError,
    SourceContext,
    StorageError,
    WriteResult,
)
from volley.connectors.files import committer as committer_module
from volley.connectors.kafka.client import Client
from volley.connectors.kafka.committer import Destination, KafkaCommitter
from volley.contracts.sink import SinkContext
from volley.formats import encoders
from volley.formats.files import WrittenFormat

EPOCH = Epoch("0123456789abcdef", 12)

PLAIN = pa.table(
    {
        "i": pa.array([1, None], pa.int32()),
        "d": [1.5, None],
        "b": [True, None],
        "s": ['ä, "✓"\nx', None],
        "empty": ["", None],
        "m": pa.array([Decimal("1.25"), None], pa.decimal128(10, 2)),
        "day": [date(2024, 2, 29), None],
        "at": pa.array([datetime(2024, 1, 1, 0, 0, 0, 1, UTC), None], pa.timestamp("us", "UTC")),
        "local": [datetime(1969, 1, 1, 0, 0, 0, 5), None],
        "t": pa.array([3_600_000_001, None], pa.int64()).cast(pa.time64("us")),
    }
)
NESTED = pa.table({"l": [["a", None], None], "p": [{"x": 1, "at": date(2024, 1, 1)}, None]})
MAP = pa.table({"m": pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int64()))})
BYTES = pa.table({"raw": [b"\xff", None]})


def written(sink: FileSink, table: pa.Table) -> None:
    committer = sink.open(SinkContext("job", table.schema, Metrics()))
    task = committer.writer(EPOCH).open(3)
    for batch in table.to_batches(max_chunksize=1):
        task.write(batch)
    committer.commit(EPOCH, [task.close()])


def staged(committer: Committer, epoch: Epoch, *ids: int) -> list[WriteResult]:
    """What a task for each id has written."""
    writer, results = committer.writer(epoch), []
    for task, number in enumerate(ids):
        opened = writer.open(task)
        opened.write(pa.record_batch({"i": [number]}))
        results.append(opened.close())
    return results


def read_back(folder: Path, format: WrittenFormat, schema: pa.Schema) -> list[dict[str, Any]]:
    source = FileSource(folder, format=format, schema=schema).open(SourceContext(f"{folder}-state"))
    splits = source.splits({"files": 0}, source.latest_offset({"files": 0}, None, None))
    return [row for split in splits for batch in source.read(split) for row in batch.to_pylist()]


@pytest.mark.parametrize(
    ("format", "table"),
    [
        *((format, PLAIN) for format in ("parquet", "json", "csv")),
        *((format, NESTED) for format in ("parquet", "json")),
        *(("parquet", table) for table in (MAP, BYTES)),
    ],
)
def test_what_is_written_is_read_back(tmp_path: Path, format: WrittenFormat, table: pa.Table) -> None:
    folder = tmp_path / "out"
    written(FileSink(folder, format=format), table)
    assert [path.name for path in folder.glob("0*")] == [f"01234567-epoch-000012-00003.{format}"]
    assert read_back(folder, format, table.schema) == table.to_pylist()


def test_maps_are_json_objects(tmp_path: Path) -> None:
    written(FileSink(tmp_path, format="json"), MAP)
    (file,) = tmp_path.glob("0*")
    assert [json.loads(line) for line in file.read_text().splitlines()] == [{"m": {"a": 1}}, {"m": None}]


@pytest.mark.parametrize(
    ("format", "table", "named"),
    [("csv", NESTED, ["'l'", "'p'"]), ("csv", BYTES, ["'raw'"]), ("json", BYTES, ["'raw'"]), ("csv", MAP, ["'m'"])],
)
def test_columns_that_a_format_can_not_hold(
    tmp_path: Path, format: WrittenFormat, table: pa.Table, named: list[str]
) -> None:
    with pytest.raises(SchemaMismatchError, match=f"{format} files can't hold") as caught:
        written(FileSink(tmp_path / "out", format=format), table)
    assert all(name in caught.value.message for name in named)
    assert caught.value.hint
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["i", "s", "at"])
def test_a_null_that_would_be_an_empty_line_of_csv_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(SchemaMismatchError, match=f"column '{name}' has 1 nulls: alone in a row of CSV"):
        written(FileSink(tmp_path / "out", format="csv"), PLAIN.select([name]))
    written(FileSink(tmp_path / "two", format="csv"), PLAIN.select([name, "b"]))
    assert read_back(tmp_path / "two", "csv", PLAIN.select([name]).schema) == PLAIN.select([name]).to_pylist()


@pytest.mark.parametrize("kind", [pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC")])
@pytest.mark.parametrize(("day", "year"), [(-12687428, "-32767-01-01"), (11248737, "32767-12-31")])
def test_times_that_csv_has_no_text_for_are_refused(tmp_path: Path, kind: pa.DataType, day: int, year: str) -> None:
    unit = 1 if kind == pa.date32() else 86_400_000_000
    written(FileSink(tmp_path, format="csv"), pa.table({"at": pa.array([day * unit], kind)}))
    (file,) = tmp_path.glob("0*")
    assert year in file.read_text()
    beyond = (day + (1 if day > 0 else -1)) * unit
    with pytest.raises(SchemaMismatchError, match="column 'at' has a time beyond the years"):
        written(FileSink(tmp_path / "out", format="csv"), pa.table({"at": pa.array([beyond], kind)}))


DEEP = pa.map_(pa.string(), pa.map_(pa.string(), pa.int64()))
MAPS = [("a", []), ("b", [("c", 1), ("d", 2)])]


@pytest.mark.parametrize("twice", [[("a", []), ("a", [])], [("a", [("c", 1), ("c", 2)])]])
@pytest.mark.parametrize(
    ("kind", "around"),
    [(DEEP, lambda m: m), (pa.list_(DEEP), lambda m: [m]), (pa.struct({"m": DEEP}), lambda m: {"m": m})],
)
def test_a_map_with_a_key_twice_is_a_bad_row_of_json(
    tmp_path: Path, kind: pa.DataType, around: Callable[[Any], Any], twice: Any
) -> None:
    values = [around(MAPS), None, around([]), around(twice), around(MAPS)]
    table = pa.table({"id": range(5), "v": pa.array(values, kind)})
    good = table.slice(0, 3)
    written(FileSink(tmp_path / "good", format="json"), good)
    with pytest.raises(SchemaMismatchError, match="column 'v' has a map with a key twice"):
        written(FileSink(tmp_path / "bad", format="json"), table.slice(1))
    written(FileSink(tmp_path / "parquet", format="parquet"), table)
    kafka = KafkaCommitter(Destination(Client("127.0.0.1:1"), "topic", "json", None, None)).writer(EPOCH).open(0)
    kafka.check(good.combine_chunks().to_batches()[0])
    with pytest.raises(SchemaMismatchError, match="a key twice"):
        kafka.check(table.to_batches()[0])


@pytest.mark.parametrize(("limit", "groups"), [(1 << 20, 1), (8 * 150, 4)])
def test_row_groups_are_more_than_a_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int, groups: int
) -> None:
    monkeypatch.setattr(encoders, "_ROW_GROUP_BYTES", limit)
    committer = FileSink(tmp_path).open(SinkContext("job", pa.schema({"id": pa.int64()}), Metrics()))
    task = committer.writer(EPOCH).open(0)
    for start in range(0, 1000, 50):
        task.write(pa.record_batch({"id": range(start, start + 50)}))
    committer.commit(EPOCH, [task.close()])
    (file,) = tmp_path.glob("0*")
    found = pq.ParquetFile(file)
    assert found.num_row_groups == (1 if groups == 1 else 7)
    assert found.read().column("id").to_pylist() == list(range(1000))


def test_a_folder_that_can_not_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StorageError, match="file/out") as caught:
        written(FileSink(tmp_path / "file" / "out"), PLAIN)
    assert caught.value.hint


def test_a_folder_with_a_glob_in_its_name(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    other = tmp_path / "a" / f"01234567-epoch-{EPOCH.number:06}-00000.parquet"
    other.write_text("not ours")
    written(FileSink(tmp_path / "[a]"), PLAIN)
    assert other.read_text() == "not ours"
    assert len(list((tmp_path / "[a]").glob("0*"))) == 1


@pytest.mark.parametrize("mark", ["", "[]", "{}", '{"epoch": null}', '{"epoch": [1]}', "1"])
def test_a_mark_that_does_not_tell_an_epoch(tmp_path: Path, mark: str) -> None:
    written(FileSink(tmp_path, format="json"), MAP)
    (tmp_path / "_volley" / f"{EPOCH.query_id}.json").write_text(mark)
    committer = FileSink(tmp_path, format="json").open(SinkContext("job", MAP.schema, Metrics()))
    with pytest.raises(StorageError, match=rf"_volley/{EPOCH.query_id}\.json is damaged") as caught:
        committer.last_epoch(EPOCH.query_id)
    assert 'into="replace"' in str(caught.value.hint)
    # So a start over does.
    committer.clear()
    assert (committer.last_epoch(EPOCH.query_id), list(tmp_path.glob("0*"))) == (None, [])


def test_an_unknown_format() -> None:
    with pytest.raises(ConfigError, match="'parket'") as caught:
        FileSink("out", format="parket")  # type: ignore[arg-type]
    assert "'parquet'" in str(caught.value.hint)


def test_of_two_drivers_of_a_job_one_publishes_an_epoch(tmp_path: Path) -> None:
    """The other one, which is late, deletes none of its files, whose names are those of its own."""
    folder = tmp_path / "out"
    context = SinkContext("job", pa.schema({"i": pa.int64()}), Metrics())
    first, second = (FileSink(folder).open(context) for _ in range(2))
    late = staged(second, EPOCH, 1, 2)
    prompt = staged(first, EPOCH, 1, 2)
    first.commit(EPOCH, prompt)
    with pytest.raises(CommitConflictError, match="published by another driver"):
        second.commit(EPOCH, late)
    second.abort(EPOCH, late)
    assert read_back(folder, "parquet", context.schema) == [{"i": 1}, {"i": 2}]
    assert first.last_epoch(EPOCH.query_id) == EPOCH.number


def test_a_driver_that_is_about_to_mark_an_epoch_keeps_its_files(tmp_path: Path) -> None:
    """Another driver begins the epoch meanwhile, and fails at another sink."""
    folder = tmp_path / "out"
    context = SinkContext("job", pa.schema({"i": pa.int64()}), Metrics())
    first, second = (FileSink(folder).open(context) for _ in range(2))
    results = staged(first, EPOCH, 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(committer_module, "write_durably", lambda *args, **options: second.writer(EPOCH))
        first.commit(EPOCH, results)
    second.abort(EPOCH, staged(second, EPOCH, 1))
    assert read_back(folder, "parquet", context.schema) == [{"i": 1}]


def test_an_epoch_that_can_t_be_published_as_a_whole_is_taken_back(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    context = SinkContext("job", pa.schema({"i": pa.int64()}), Metrics())
    committer = FileSink(folder).open(context)
    results = staged(committer, EPOCH, 1, 2)
    ((hidden, _),) = results[1].committables
    (folder / hidden).unlink()
    with pytest.raises(StorageError, match="publishing files"):
        committer.commit(EPOCH, results)
    committer.abort(EPOCH, results)
    assert [path.name for path in folder.iterdir()] == ["_volley"]
