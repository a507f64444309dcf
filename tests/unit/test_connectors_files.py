"""Which files a FileSource takes and when, what its checkpoint remembers, and how its configuration is checked."""

from __future__ import annotations

import errno
import gzip
import json
import lzma
import os
import pickle
import re
import shutil
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import example, given
from hypothesis import strategies as st

from volley import (
    ConfigError,
    Environment,
    Epoch,
    FileSink,
    FileSource,
    Metrics,
    MissingDependencyError,
    Reader,
    SinkContext,
    SourceContext,
    SourceError,
    StorageError,
)
from volley.connectors.files.listing import LoggedFile
from volley.contracts.rows import taken_notes
from volley.formats import files
from volley.formats.files import FORMATS, FileFormat, pack
from volley.formats.options import CsvOptions, JsonOptions

START = {"files": 0}


def put(folder: Path, name: str, *ids: int, age: int = 0) -> Path:
    """A JSON file with these ids, written `age` seconds before the others."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({"id": each}) + "\n" for each in ids))
    os.utime(path, (1_000_000 - age, 1_000_000 - age))
    return path


def opened(path: Path | str, state: Path | str, **settings: Any) -> Reader:
    return FileSource(path, **{"format": "json", "schema": "id long", **settings}).open(SourceContext(str(state)))


def ids(source: Reader, start: dict[str, int], end: dict[str, int]) -> list[int]:
    splits = source.splits(start, end)
    return [row["id"] for split in splits for batch in source.read(split) for row in batch.to_pylist()]


def everything(source: Reader) -> list[int]:
    return ids(source, START, source.latest_offset(START, None, None))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    # Of earlier tests.
    taken_notes()
    (tmp_path / "in").mkdir()
    return tmp_path / "in"


def test_files_come_oldest_first_then_by_name(folder: Path, tmp_path: Path) -> None:
    put(folder, "b.json", 3)
    put(folder, "a.json", 2)
    put(folder, "deep/er/z.json", 1, age=10)
    source = opened(folder, tmp_path / "state")
    assert ids(source, START, source.latest_offset(START, None, None)) == [1, 2, 3]


def test_files_that_are_hidden_or_not_finished_are_left_alone(folder: Path, tmp_path: Path) -> None:
    put(folder, "a.json", 1)
    for name in (".a.json", "_a.json", "a.json.tmp", ".a.json.crc", "_work/a.json", ".git/a.json", "sub/_x/a.json"):
        put(folder, name, 2)
    for path in (str(folder), f"{folder}/**/*", f"{folder}/**"):
        source = opened(path, tmp_path / "state")
        assert ids(source, START, source.latest_offset(START, None, None)) == [1]


@pytest.mark.parametrize(
    "name",
    [
        *("a.json._COPYING_", "a.json.part", "a.json.crdownload", "a.json.partial", "a.json.filepart", "a.json~"),
        *("a.json.TMP", "a.json.temp", "a.json.download", "a.json.inprogress", "a.json_.gstmp", "a.json.aria2"),
        *("a.json.writing", "a.json.uploading", "a.json.!ut", "a.json.!qB", "a.json.$$$", "a.json.lock", "a.json.lck"),
        *("#a.json#", "~$a.json", "batch.part/a.json", "batch.tmp/deep/a.json"),
    ],
)
def test_a_file_that_is_still_copied_is_read_once_under_its_final_name(name: str, folder: Path, tmp_path: Path) -> None:
    for path in (folder, f"{folder}/**"):
        shutil.rmtree(folder)
        put(folder, "first.json", 1)
        put(folder, name, 2)
        source = opened(path, tmp_path / ("folder" if path == folder else "glob"), bounded=False)
        offset = source.latest_offset(START, None, None)
        assert ids(source, START, offset) == [1]
        (folder / name).rename(folder / "final.json")
        assert ids(source, offset, source.latest_offset(offset, None, None)) == [2]


def notes() -> list[str]:
    return [str(note) for note in taken_notes()]


@pytest.mark.parametrize("restarts", [False, True])
def test_a_file_that_is_written_again_is_told_once(folder: Path, tmp_path: Path, restarts: bool) -> None:
    for number in range(20):
        put(folder, f"{number}.json", number, age=100 - number)
    source = opened(folder, tmp_path / "state", bounded=False)
    offset = source.latest_offset(START, None, None)
    assert notes() == []
    put(folder, "3.json", 3, 33, age=10)
    put(folder, "4.json", 7, age=9)
    put(folder, "new.json", 100, age=5)
    if restarts:
        source = opened(folder, tmp_path / "state", bounded=False)
    end = source.latest_offset(offset, None, None)
    assert ids(source, offset, end) == [100]
    told = "{} was written again after it was found: it had 10 bytes, it has {} now; it is not read again"
    assert notes() == [told.format(folder / "3.json", 21), told.format(folder / "4.json", 10)]
    # Not twice, though it goes on growing, and by its new time alone.
    put(folder, "3.json", 3, 33, 333, age=1)
    assert source.latest_offset(end, None, None) == end
    assert notes() == []


def test_a_file_whose_time_is_that_of_the_newest_is_the_same(folder: Path, tmp_path: Path) -> None:
    put(folder, "a.json", 1)
    source = opened(folder, tmp_path / "state", bounded=False)
    offset = source.latest_offset(START, None, None)
    put(folder, "b.json", 2)
    source.latest_offset(offset, None, None)
    assert notes() == []


def test_files_of_a_log_without_times_are_told_by_their_size(folder: Path, tmp_path: Path) -> None:
    put(folder, "a.json", 1)
    put(folder, "b.json", 2)
    offset = opened(folder, tmp_path / "state", bounded=False).latest_offset(START, None, None)
    (listing,) = (tmp_path / "state" / "files").iterdir()
    entries = [{"path": str(folder / name), "size": 10} for name in ("a.json", "b.json")]
    # As Volley 0.2 wrote it.
    listing.write_text(json.dumps(entries))
    put(folder, "b.json", 2, 22)
    opened(folder, tmp_path / "state", bounded=False).latest_offset({"files": offset["files"]}, None, None)
    assert [note.partition(" was")[0] for note in notes()] == [str(folder / "b.json")]


@pytest.mark.parametrize("name", ["a.json.bak", "a.json.old", "block.json", "#a.json", "a~1.json", "a.lock.json"])
def test_backups_and_names_that_only_look_alike_are_data(name: str, folder: Path, tmp_path: Path) -> None:
    put(folder, name, 1)
    assert everything(opened(folder, tmp_path / "state")) == [1]


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Lets the operating system refuse to look into a folder, as it does for folders of others; root may always."""

    def close(folder: Path) -> None:
        for name in ("scandir", "stat"):
            monkeypatch.setattr(os, name, refused(getattr(os, name), folder))

    def refused(function: Callable[..., Any], folder: Path) -> Callable[..., Any]:
        def call(path: Any, *options: Any, **named: Any) -> Any:
            below = f"{os.fspath(path)}/".startswith(f"{folder}/")
            if below and (function is scandir or os.fspath(path) != str(folder)):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
            return function(path, *options, **named)

        return call

    scandir = os.scandir
    return close


@pytest.mark.parametrize("pattern", ["", "/**", "/*/*"])
def test_a_folder_that_can_t_be_looked_into_is_an_error(
    pattern: str, folder: Path, tmp_path: Path, closed: Callable[[Path], None]
) -> None:
    put(folder, "a/1.json", 1)
    put(folder, "b/2.json", 2)
    closed(folder / "b")
    source = opened(f"{folder}{pattern}", tmp_path / "state", bounded=False)
    with pytest.raises(SourceError, match=f"folder {folder}/b can't be listed: .*Permission denied") as caught:
        source.latest_offset(START, None, None)
    assert "let this user read it" in str(caught.value.hint)


@pytest.mark.parametrize("name", ["lost+found", "_b", ".b"])
def test_a_folder_that_is_never_read_need_not_be_readable(
    name: str, folder: Path, tmp_path: Path, closed: Callable[[Path], None]
) -> None:
    put(folder, "a/1.json", 1)
    (folder / name).mkdir()
    closed(folder / name)
    assert everything(opened(folder, tmp_path / "state")) == [1]


def test_a_path_that_can_t_be_seen_is_not_a_missing_one(
    folder: Path, tmp_path: Path, closed: Callable[[Path], None]
) -> None:
    put(folder, "a/1.json", 1)
    closed(folder)
    with pytest.raises(SourceError, match=r"can't be listed: .*Permission denied"):
        opened(folder / "a", tmp_path / "state")


def test_a_file_that_may_not_be_read_is_not_said_to_be_gone(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(folder, "a.json", 1)
    source = opened(folder, tmp_path / "state")
    offset = source.latest_offset(START, None, None)

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(LocalFileSystem, "open", refuse)
    with pytest.raises(SourceError, match="Permission denied") as caught:
        ids(source, START, offset)
    assert caught.value.hint == "let this user read it"


def test_the_folder_asked_for_may_be_hidden(tmp_path: Path) -> None:
    file = put(tmp_path / ".cache" / "_in", "a.json", 1)
    for number, path in enumerate((str(file.parent), str(file), f"{file.parent}/*.json")):
        source = opened(path, tmp_path / f"state-{number}")
        assert ids(source, START, source.latest_offset(START, None, None)) == [1]


def test_new_files_are_found_whatever_their_time_or_name(folder: Path, tmp_path: Path) -> None:
    put(folder, "m.json", 1)
    source = opened(folder, tmp_path / "state", bounded=False)
    first = source.latest_offset(START, None, None)
    put(folder, "a.json", 2, age=1_000)
    second = source.latest_offset(first, None, None)
    assert (first["files"], second["files"]) == (1, 2)
    assert ids(source, first, second) == [2]
    assert ids(source, START, second) == [1, 2]
    assert source.latest_offset(second, None, None) == second


def test_a_bounded_run_leaves_new_files_to_the_next(folder: Path, tmp_path: Path) -> None:
    put(folder, "a.json", 1)
    source = opened(folder, tmp_path / "state")
    target = source.latest_offset(START, None, None)
    put(folder, "b.json", 2)
    assert source.latest_offset(START, None, target) == target
    assert target["files"] == 1
    # It does not even look for them: listing a large folder in each epoch is slow.
    assert len(list((tmp_path / "state" / "files").iterdir())) == 1
    again = opened(folder, tmp_path / "state")
    end = again.latest_offset(START, None, None)
    assert ids(again, target, again.latest_offset(target, None, end)) == [2]


def test_a_restart_reads_only_the_log(folder: Path, tmp_path: Path) -> None:
    for number in range(5):
        put(folder, f"{number}.json", number, age=number)
    source = opened(folder, tmp_path / "state", max_files_per_epoch=2)
    assert source.limit == 2
    offset = source.latest_offset(START, 2, None)
    wanted = ids(source, START, offset)
    put(folder, "older-than-all.json", 9, age=100)
    again = opened(folder, tmp_path / "state")
    assert ids(again, START, offset) == wanted == [4, 3]


def test_an_offset_is_in_the_log_before_it_is_told(folder: Path, tmp_path: Path) -> None:
    put(folder, "a.json", 1)
    source = opened(folder, tmp_path / "state")
    for name in ("b", "c", "d"):
        end = source.latest_offset(START, None, None)
        reader = opened(folder, tmp_path / "state")
        assert ids(reader, START, end) == ids(source, START, end)
        put(folder, f"{name}.json", 2)
    assert len(list((tmp_path / "state" / "files").iterdir())) == 3


def test_a_lost_log_is_not_taken_for_an_empty_folder(folder: Path, tmp_path: Path) -> None:
    put(folder, "a.json", 1)
    source = opened(folder, tmp_path / "other")
    for ask in (
        lambda: source.splits(START, {"files": 3}),
        lambda: source.latest_offset({"files": 3}, None, None),
        lambda: source.latest_offset(START, None, {"files": 3}),
    ):
        with pytest.raises(StorageError, match="has read 3 files, its log of files has") as caught:
            ask()
        assert "volley.repair" in str(caught.value.hint)


def test_a_checkpoint_of_volley_0_2_goes_on(folder: Path, tmp_path: Path) -> None:
    """Its offsets are counts, and its log has no times."""
    old = [put(folder, f"{number}.json", number) for number in (1, 2, 3)]
    log = tmp_path / "state" / "files"
    log.mkdir(parents=True)
    (log / f"{0:012}.json").write_text(json.dumps([{"path": str(path), "size": path.stat().st_size} for path in old]))
    source = opened(folder, tmp_path / "state")
    assert ids(source, {"files": 1}, {"files": 3}) == [2, 3]
    assert source.latest_offset({"files": 3}, None, None) == {"files": 3}
    put(folder, "4.json", 4)
    end = source.latest_offset({"files": 2}, None, None)
    assert ids(opened(folder, tmp_path / "state"), {"files": 2}, end) == [3, 4]


def test_a_log_of_other_files_is_not_taken_for_the_checkpoint_s(folder: Path, tmp_path: Path) -> None:
    put(folder, "a.json", 1)
    offset = opened(folder, tmp_path / "state").latest_offset(START, None, None)
    put(folder, "a.json", 2, age=5)
    other = opened(folder, tmp_path / "other")
    other.latest_offset(START, None, None)
    for ask in (lambda: other.splits(START, offset), lambda: other.latest_offset(offset, None, None)):
        with pytest.raises(StorageError, match="has other files than the 1 that the checkpoint has read"):
            ask()


@pytest.mark.parametrize("schema", ["id long", None])
def test_new_files_do_not_take_the_places_of_lost_entries(folder: Path, tmp_path: Path, schema: str | None) -> None:
    read = [put(folder, f"{number}.json", number) for number in (1, 2, 3)]
    end = opened(folder, tmp_path / "state", schema=schema).latest_offset(START, None, None)
    for path in read:
        path.unlink()
    for number in (4, 5, 6, 7):
        put(folder, f"{number}.json", number)
    shutil.rmtree(tmp_path / "state")
    source = opened(folder, tmp_path / "state", schema=schema)
    with pytest.raises(StorageError, match=r"000000000000\.json is missing, .*: the checkpoint has read 3 files"):
        source.latest_offset(end, None, None)


def test_what_goes_to_executors_holds_no_log(folder: Path, tmp_path: Path) -> None:
    put(folder, "a.json", 1)
    source = FileSource(folder, format="json").open(SourceContext(str(tmp_path / "state")))
    before = len(pickle.dumps(source))
    for number in range(100):
        put(folder, f"a-rather-long-name-{number}.json", 1)
    source.latest_offset(START, None, None)
    assert len(pickle.dumps(source)) == before


def test_the_driver_knows_files_that_the_planner_has_found_since(folder: Path, tmp_path: Path) -> None:
    driver = opened(folder, tmp_path / "state", bounded=False)
    planner, start = pickle.loads(pickle.dumps(driver)), START
    for number in range(4):
        put(folder, f"{number}.json", number)
        end = planner.latest_offset(start, None, None)
        assert ids(driver, start, end) == [number]
        start = end


def test_an_empty_file_gives_no_rows_wherever_it_stands(folder: Path, tmp_path: Path) -> None:
    for number, rows in enumerate([(), (1,), (), (2,), ()]):
        put(folder, f"{number}.json", *rows)
    source = opened(folder, tmp_path / "state")
    assert ids(source, START, source.latest_offset(START, None, None)) == [1, 2]


@pytest.mark.parametrize("change", ["removed", "grown"])
def test_a_file_that_changed_is_an_error(folder: Path, tmp_path: Path, change: str) -> None:
    path = put(folder, "a.json", 1)
    source = opened(folder, tmp_path / "state")
    end = source.latest_offset(START, None, None)
    path.unlink() if change == "removed" else put(folder, "a.json", 1, 2)
    with pytest.raises(SourceError, match=r"in/a\.json") as caught:
        ids(source, START, end)
    assert caught.value.hint


def test_small_files_share_a_split_and_large_parquet_files_are_cut(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, rows in (("a", 10), ("b", 10), ("c", 3000), ("d", 10)):
        table = pa.table({"id": range(rows)})
        pq.write_table(table, folder / f"{name}.parquet", row_group_size=100, compression="none", use_dictionary=False)
        os.utime(folder / f"{name}.parquet", (1, 1))
    monkeypatch.setattr(files, "_SMALLEST_SPLIT", 5_000)
    monkeypatch.setattr(files, "_LARGEST_SPLIT", 10_000)
    monkeypatch.setattr(files, "_OPENING", 0)
    source = opened(folder, tmp_path / "state", format="parquet")
    end = source.latest_offset(START, None, None)
    splits = source.splits(START, end)
    taken = [(Path(file.path).stem, part) for split in splits for file, part in split]
    assert taken == [("a", (0, 1)), ("b", (0, 1)), *(("c", (part, 3)) for part in range(3)), ("d", (0, 1))]
    assert len(splits) == 3
    sizes = [sum(batch.num_rows for batch in source.read(split)) for split in splits]
    assert sum(sizes) == 3030
    assert max(sizes) - min(sizes) <= 110


def packed(
    files: list[LoggedFile], divides: Callable[[str], bool], parallelism: int
) -> list[list[tuple[LoggedFile, tuple[int, int]]]]:
    return pack([(file, file.size, divides(file.path)) for file in files], parallelism)


@given(st.lists(st.integers(0, 300 << 20) | st.integers(0, 1), max_size=30), st.integers(1, 16), st.booleans())
@example([1, 0], 1, False)
def test_splits_are_alike_in_size_and_keep_the_order_of_files(
    sizes: list[int], parallelism: int, divisible: bool
) -> None:
    logged = [LoggedFile(f"f{number:02}", size) for number, size in enumerate(sizes)]
    splits = packed(logged, lambda path: divisible, parallelism)
    taken = [(file.path, part) for split in splits for file, part in split]
    assert taken == sorted(taken)
    for file in logged:
        parts = [part for path, part in taken if path == file.path]
        assert parts == [(number, len(parts)) for number in range(len(parts))]
    weights = [[file.size / part[1] + (1 << 20) for file, part in split] for split in splits]
    most = max((weight for split in weights for weight in split), default=0)
    # A split has its share, or as much more as the pieces at its two ends reach over its borders.
    assert all(sum(split) <= sum(map(sum, weights)) / len(splits) + most for split in weights)
    even = min(128 << 20, max(4 << 20, sum(sizes) / parallelism))
    assert not divisible or most < 1.5 * even + (1 << 20) + 1
    # Each makes a data file: no more than there are cores, or than the data needs.
    assert len(splits) <= max(parallelism, sum(sizes) / even + 1)


def test_tens_of_thousands_of_small_files_are_spread_over_all_cores() -> None:
    logged = [LoggedFile(f"f{number:05}", 1_000) for number in range(50_000)]
    assert [len(split) for split in packed(logged, lambda path: False, 8)] == [6_250] * 8


def test_a_few_small_files_are_one_split() -> None:
    assert len(packed([LoggedFile(f"f{number}", 1_000) for number in range(5)], lambda path: False, 8)) == 1


@pytest.mark.parametrize(
    ("name", "options", "parts"),
    [
        ("a.json", {}, 24),
        ("a.jsonl", {}, 24),
        ("a.json.gz", {}, 1),
        ("a.csv", {}, 1),
        ("a.csv", {"newlines_in_values": True}, 1),
        ("a.csv", {"quote": None}, 24),
        ("a.csv", {"quote": None, "escape": "/"}, 1),
        ("a.csv", {"newlines_in_values": False}, 24),
        ("a.csv.zst", {"newlines_in_values": False}, 1),
        ("a.parquet", {}, 24),
    ],
)
def test_large_files_are_cut_where_it_is_safe(name: str, options: dict[str, Any], parts: int) -> None:
    format = FORMATS[str(FileSource(name, options=options).format)]
    given = format.options(**options)
    splits = packed([LoggedFile(name, 3 << 30)], lambda path: format.undivided(path, given) is None, 2)
    assert [part for split in splits for _, part in split] == [(number, parts) for number in range(parts)]
    assert len(splits) == parts


def test_the_schema_is_inferred_once(folder: Path, tmp_path: Path) -> None:
    put(folder, "empty.json", age=10)
    put(folder, "a.json", 1, age=5)
    assert opened(folder, tmp_path / "state", schema=None).schema == pa.schema({"id": pa.int64()})
    (folder / "a.json").unlink()
    (folder / "b.json").write_text('{"other": "x"}\n')
    assert opened(folder, tmp_path / "state", schema=None).schema == pa.schema({"id": pa.int64()})


@pytest.mark.parametrize("format", ["json", "parquet", "csv"])
def test_only_the_columns_that_are_used_are_read(folder: Path, tmp_path: Path, format: FileFormat) -> None:
    """A bad value in a column that is not used is no fault; CSV is read by the places of its columns."""
    other = {"other": 0} if format == "csv" else {}
    rows = pa.table({"id": [1, 2], "other": ["0", "0"] if other else ["x", "y"], "name": ["a", "b"]})
    with duckdb.connect() as connection:
        connection.register("rows", rows).execute(f"copy rows to '{folder}/0.{format}' (format {format})")
    source = FileSource(folder, format=format, schema="id long, other long, name string", include=["file"])

    def read(*columns: str) -> list[dict[str, Any]]:
        reader = source.open(SourceContext(str(tmp_path / "state"), columns=frozenset(columns)))
        (split,) = reader.splits(START, reader.latest_offset(START, None, None))
        return [row for batch in reader.read(split) for row in batch.to_pylist()]

    file = f"{folder}/0.{format}"
    ids = [{"id": 1}, {"id": 2}] if other else [{}, {}]
    assert read("name", "file_path") == [
        {**first, **other, "name": name, "file_path": file} for first, name in zip(ids, "ab", strict=True)
    ]
    # Without columns of the files, the first one tells how many rows there are.
    assert [row["file_path"] for row in read("file_path")] == [file] * 2
    if not other:
        with pytest.raises(SourceError, match="other"):
            read("id", "unknown")


@pytest.mark.parametrize(
    ("name", "empty", "rows"),
    [
        ("json", "\ufeff\n \n", '{"id": 1}\n'),
        ("json.gz", "", '{"id": 1}\n'),
        ("csv", "id", "id\n1\n"),
        ("csv", "id,name\n", "id\n1\n"),
    ],
)
def test_a_file_without_rows_says_nothing_about_the_types(
    folder: Path, tmp_path: Path, name: str, empty: str, rows: str
) -> None:
    for number, text in enumerate([empty, rows, empty]):
        data = text.encode()
        (folder / f"{number}.{name}").write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    source = FileSource(folder / f"*.{name}").open(SourceContext(str(tmp_path / "state")))
    assert source.schema == pa.schema({"id": pa.int64()})
    assert ids(source, START, source.latest_offset(START, None, None)) == [1]


@pytest.mark.parametrize("format", ["json", "parquet"])
def test_rows_without_columns_say_nothing_about_the_schema(folder: Path, tmp_path: Path, format: FileFormat) -> None:
    if format == "json":
        (folder / "a.json").write_text("{}\n{}\n")
    else:
        pq.write_table(pa.table({}), folder / "a.parquet")
    with pytest.raises(SourceError, match="no rows with columns to infer a schema from") as caught:
        FileSource(folder, format=format).open(SourceContext(str(tmp_path / "state")))
    assert "declare" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("path", "told"),
    [
        (
            "a.json.7z",
            r"files that end in \.7z, as 'a\.json\.7z', are packed in a way .*\n.*unpack them, or compress them",
        ),
        ("in/a.tar.gz", r"files that end in \.tar, as 'in/a\.tar\.gz', are packed"),
        ("in", r"the format of 'in' is not known: it has no extension\n.*format= one of 'json', 'csv', 'parquet'"),
        ("s3://b/*.dat.gz", r"the format of .* is not known: it ends in \.dat, which is no format's extension"),
    ],
)
def test_a_path_that_tells_no_format_says_what_it_tells(path: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        FileSource(path)
    assert FileSource(path, format="csv").format == "csv"


@pytest.mark.parametrize("schema", ["id long", None])
@pytest.mark.parametrize("format", ["json", "csv"])
@pytest.mark.parametrize("ending", ["7z", "lz4", "tar.gz"])
def test_a_file_that_is_packed_in_another_way_is_named(
    ending: str, format: str, schema: str | None, folder: Path, tmp_path: Path
) -> None:
    put(folder, f"a.{format}.{ending}", 1)
    with pytest.raises(SourceError, match=rf"in/a\.{format}\.{ending} is packed in a way .*\n.*\.gz, \.bz2, \.zst"):
        everything(opened(folder, tmp_path / "state", format=format, schema=schema))


def test_a_schema_is_not_inferred_from_a_line_that_is_cut(folder: Path, tmp_path: Path) -> None:
    (folder / "a.json").write_text(json.dumps({"id": 1, "text": "x" * (1 << 20)}) + "\n")
    with pytest.raises(SourceError, match=r"a\.json, line 1: the first line has more than 1,048,576 bytes\n.*schema="):
        opened(folder, tmp_path / "state", schema=None)
    source = opened(folder, tmp_path / "state")
    assert ids(source, START, source.latest_offset(START, None, None)) == [1]


def test_nothing_to_infer_a_schema_from(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no rows with columns to infer") as caught:
        FileSource(folder, format="json", bounded=False).open(SourceContext(str(tmp_path / "state")))
    assert "declare" in str(caught.value.hint)


@pytest.mark.parametrize("schema", ["id long", None])
@pytest.mark.parametrize("bounded", [True, False])
@pytest.mark.parametrize("path", ["event", "event/2024", "event/*.json", "event/*/in.json", "event/2024/a.json"])
def test_a_missing_path_is_told_when_the_job_starts(
    tmp_path: Path, path: str, bounded: bool, schema: str | None
) -> None:
    (tmp_path / "events").mkdir()
    with pytest.raises(SourceError, match=r"does not exist") as caught:
        opened(tmp_path / path, tmp_path / "state", schema=schema, bounded=bounded)
    assert path in caught.value.message
    assert f"{tmp_path} has 'events'" in str(caught.value.hint)
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize("schema", ["id long", None])
@pytest.mark.parametrize("pattern", ["*.jsonl", "2*/*.json", "[x]*"])
def test_a_glob_that_matches_nothing_is_an_error_where_nothing_more_can_come(
    folder: Path, tmp_path: Path, pattern: str, schema: str | None
) -> None:
    put(folder, "a.json", 1)
    with pytest.raises(SourceError, match="matches no file to read") as caught:
        opened(f"{folder}/{pattern}", tmp_path / "state", schema=schema)
    assert f"{folder}/{pattern}" in caught.value.message
    assert f"{folder} has 'a.json'" in str(caught.value.hint)


@pytest.mark.parametrize("name", ["_a.json", ".a.json", "a.json.tmp", "_work/a.json", "link.json"])
@pytest.mark.parametrize("pattern", ["", "/**"])
def test_files_that_are_all_left_out_are_an_error_that_says_why(
    folder: Path, tmp_path: Path, name: str, pattern: str
) -> None:
    if name == "link.json":
        (folder / name).symlink_to(put(tmp_path / "other", "a.json", 1))
    else:
        put(folder, name, 1)
    with pytest.raises(SourceError, match="matches no file to read") as caught:
        opened(f"{folder}{pattern}", tmp_path / "state")
    assert name in str(caught.value.hint)
    assert "begin with ., _ or ~$" in str(caught.value.hint)


def test_a_single_file_that_is_left_out_is_an_error(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    for path in (put(tmp_path, "a.json.tmp", 1), tmp_path / "pipe.json"):
        with pytest.raises(SourceError, match="matches no file to read"):
            opened(path, tmp_path / "state")


def test_the_folder_of_a_sink_without_rows_is_an_empty_folder(folder: Path, tmp_path: Path) -> None:
    sink = FileSink(folder, format="json").open(SinkContext("job", pa.schema({"id": pa.int64()}), Metrics()))
    task = sink.writer(Epoch("2b6f8a5e", 0)).open(0)
    task.write(pa.record_batch({"id": [1]}))
    task.close()
    with pytest.raises(SourceError, match="is there, but has no file to read"):
        opened(folder, tmp_path / "state")
    source = opened(folder, tmp_path / "state", bounded=False)
    assert source.latest_offset(START, None, None) == START


def test_an_empty_folder_has_no_rows_yet(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=f"{folder} is there, but has no file to read") as caught:
        opened(folder, tmp_path / "state")
    assert "bounded=False" in str(caught.value.hint)
    source = opened(folder, tmp_path / "state", bounded=False)
    assert source.latest_offset(START, None, None) == START
    put(folder, "a.json", 1)
    assert ids(source, START, opened(folder, tmp_path / "state").latest_offset(START, None, None)) == [1]


def test_a_glob_of_a_source_that_goes_on_may_match_nothing_yet(folder: Path, tmp_path: Path) -> None:
    source = opened(f"{folder}/*.json", tmp_path / "state", bounded=False)
    assert source.latest_offset(START, None, None) == START
    put(folder, "a.json", 1)
    assert ids(source, START, source.latest_offset(START, None, None)) == [1]


@pytest.mark.parametrize("path", ["in/*.json", "in", "in/a.json"])
@pytest.mark.parametrize("schema", ["id long", None])
def test_files_may_go_once_they_are_read(folder: Path, tmp_path: Path, path: str, schema: str | None) -> None:
    file = put(folder, "a.json", 1)
    end = opened(tmp_path / path, tmp_path / "state", schema=schema).latest_offset(START, None, None)
    file.unlink()
    assert opened(tmp_path / path, tmp_path / "state", schema=schema).latest_offset(end, None, None) == end


def test_a_local_folder_that_goes_is_an_error(folder: Path, tmp_path: Path) -> None:
    file = put(folder, "a.json", 1)
    source = opened(folder, tmp_path / "state")
    end = source.latest_offset(START, None, None)
    file.unlink()
    folder.rmdir()
    for path in (folder, f"{folder}/*.json"):
        with pytest.raises(SourceError, match="does not exist"):
            opened(path, tmp_path / "state")
    with pytest.raises(SourceError, match="does not exist"):
        source.latest_offset(end, None, None)


def test_a_relative_path_means_the_same_everywhere(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(folder, "a.json", 1)
    monkeypatch.chdir(tmp_path)
    source = FileSource("in", format="json", schema="id long")
    assert source.identity == FileSource(folder, format="json").identity == f"files:json:{folder}"
    running = source.open(SourceContext(str(tmp_path / "state")))
    monkeypatch.chdir("/")
    assert ids(running, START, running.latest_offset(START, None, None)) == [1]


@pytest.mark.parametrize("name", ["[x] *", "é?[!a]", ".hidden[1]"])
def test_a_relative_glob_takes_its_working_folder_by_its_name(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, path in enumerate(("in/a.json", "in/b/c.json", "in/_left/d.json", "[1].json"), 1):
        put(tmp_path / name, path, number, age=-number)
    monkeypatch.chdir(tmp_path / name)
    for number, (path, wanted) in enumerate(
        {"in/*.json": [1], "in/**": [1, 2], "[1].json": [4], "./i?/*/*": [2]}.items()
    ):
        source = opened(path, tmp_path / f"state-{number}")
        assert ids(source, START, source.latest_offset(START, None, None)) == wanted
    with pytest.raises(SourceError, match=f"there is no folder {re.escape(str(tmp_path / name / 'out'))}"):
        opened("out/*.json", tmp_path / "state")


@pytest.fixture
def object_store() -> Iterator[str]:
    """A file system of another kind: objects, no local paths, times as datetimes."""
    yield "memory://volley-test"
    MemoryFileSystem().rm("/volley-test", recursive=True)


def test_any_file_system(object_store: str) -> None:
    store = fsspec.filesystem("memory")
    for number in range(3):
        store.pipe_file(f"/volley-test/in/{number}.json", json.dumps({"id": number}).encode())
    source = FileSource(f"{object_store}/in/*.json", schema="id long").open(SourceContext(f"{object_store}/state"))
    end = source.latest_offset(START, None, None)
    assert ids(source, START, end) == [0, 1, 2]
    assert (
        FileSource(f"{object_store}/in", format="json", schema="id long")
        .open(SourceContext(f"{object_store}/state"))
        .splits(START, end)
    )


@pytest.mark.parametrize("path", ["in", "in/*.json"])
def test_an_object_store_has_no_empty_folders(object_store: str, path: str) -> None:
    store = fsspec.filesystem("memory")
    store.pipe_file("/volley-test/in/a.json", b'{"id": 1}\n')
    source = opened(f"{object_store}/{path}", f"{object_store}/state", bounded=False)
    end = source.latest_offset(START, None, None)
    store.rm("/volley-test/in", recursive=True)
    assert opened(f"{object_store}/{path}", f"{object_store}/state").latest_offset(end, None, None) == end
    assert source.latest_offset(end, None, None) == end


class CachedListings(LocalFileSystem):  # type: ignore[misc]
    """Lists a folder once and for all, as clients of object stores do until they are told otherwise."""

    protocol = "cachedlistings"

    def find(self, path: str, *args: Any, **kwargs: Any) -> Any:
        if path not in self.dircache:
            self.dircache[path] = super().find(path, *args, **kwargs)
        return self.dircache[path]

    def glob(self, path: str, *args: Any, **kwargs: Any) -> Any:
        if path not in self.dircache:
            self.dircache[path] = super().glob(path, *args, **kwargs)
        return self.dircache[path]

    def invalidate_cache(self, path: str | None = None) -> None:
        self.dircache.clear()


def test_a_cached_listing_does_not_make_a_glob_match_nothing(folder: Path, tmp_path: Path) -> None:
    fsspec.register_implementation("cachedlistings", CachedListings, clobber=True)
    assert fsspec.filesystem("cachedlistings").glob(f"{folder}/*.json", detail=True) == {}
    put(folder, "a.json", 1)
    assert opened(f"cachedlistings://{folder}/*.json", tmp_path / "state").schema.names == ["id"]


def test_cached_listings_do_not_hide_new_files(folder: Path, tmp_path: Path) -> None:
    fsspec.register_implementation("cachedlistings", CachedListings, clobber=True)
    put(folder, "a.json", 1)
    source = opened(f"cachedlistings://{folder}", tmp_path / "state")
    assert source.latest_offset(START, None, None)["files"] == 1
    put(folder, "b.json", 2)
    assert source.latest_offset(START, None, None)["files"] == 2


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"path": "in"}, "the format of .* is not known: it has no extension"),
        ({"path": "in", "format": "jsn"}, "'jsn'"),
        ({"path": "in.json", "options": {"delimiter": ";"}}, "json files have no option 'delimiter'"),
        ({"path": "in.csv", "options": {"delimeter": ";"}}, "no option 'delimeter'"),
        ({"path": "in.csv", "options": {"delimiter": "::"}}, "not one character"),
        ({"path": "in.csv", "options": {"null_values": "NA"}}, "null_values 'NA' is not a list"),
        ({"path": "in.csv", "options": {"null_values": [None]}}, "is not a list of texts"),
        ({"path": "in.csv", "options": {"newlines_in_values": "no"}}, "newlines_in_values 'no' is not valid"),
        ({"path": "in.csv", "options": {"header": 1}}, "header 1 is not valid"),
        ({"path": "in.csv", "options": {"header": True, "column_names": ["a"]}}, "and header is True"),
        ({"path": "in.csv", "options": {"column_names": ["a", "a"]}}, "don't name each column once"),
        ({"path": "in.csv", "options": {"column_names": []}}, "don't name each column once"),
        ({"path": "in.csv", "options": {"skip_rows": -1}}, "skip_rows -1 is not valid"),
        ({"path": "in.csv", "options": {"quote": "é"}}, "quote 'é' is not one character of ASCII"),
        ({"path": "in.csv", "options": {"escape": '"'}}, "quote and escape are both '\"'"),
        ({"path": "in.csv", "options": {"escape": "\\", "null_values": ["-", "\\N"]}}, "with the escape"),
        ({"path": "in.csv", "options": {"quote": ","}}, "delimiter and quote are both ','"),
        ({"path": "in.csv", "options": {"decimal_point": "1"}}, "decimal_point '1' can't be one"),
        ({"path": "in.csv", "options": {"date_formats": "%d.%m.%q"}}, "date_formats has '%d.%m.%q' with %q"),
        ({"path": "in.csv", "options": {"date_formats": ["%S.%f"]}}, "'%S.%f' with %f"),
        ({"path": "in.csv", "include": ["rows"]}, "include 'rows' is unknown"),
        ({"path": "in.csv", "max_files_per_epoch": 0}, "max_files_per_epoch 0"),
        ({"path": "in.csv", "schema": "id lng"}, "lng"),
    ],
)
def test_wrong_settings_are_refused_when_given(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        FileSource(**settings)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("path", "format"),
    [
        ("a.json", "json"),
        ("a/*.jsonl.gz", "json"),
        ("s3://b/*.ndjson.zst", "json"),
        ("a.csv.bz2", "csv"),
        ("a.parquet", "parquet"),
    ],
)
def test_the_format_is_known_by_the_extension(path: str, format: str) -> None:
    assert FileSource(path).format == format


def test_secrets_are_not_shown() -> None:
    source = FileSource("s3://me:hunter2@b/in", format="json", storage_options={"secret": "hunter2", "anon": False})
    assert "hunter2" not in repr(source) + source.identity
    assert repr(FileSource("in.json", max_files_per_epoch=3)) == (
        "FileSource(path='in.json', format='json', max_files_per_epoch=3)"
    )


def test_file_systems_that_are_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "adlfs", None)
    monkeypatch.delitem(sys.modules["fsspec.registry"]._registry, "abfs", raising=False)
    with pytest.raises(ConfigError, match="nosuch://") as caught:
        opened("nosuch://b/in", tmp_path)
    assert caught.value.hint
    with pytest.raises(MissingDependencyError, match=r"abfs://") as missing:
        opened("abfs://b/in", tmp_path)
    assert missing.value.hint == 'pip install "volley-stream[azure]"'


@pytest.mark.parametrize("compressed", [False, True])
def test_text_in_another_encoding(compressed: bool, tmp_path: Path) -> None:
    rows = [{"id": 1, "name": "Ärger"}, {"id": 2, "name": "5 €, „so“"}]
    pack_bytes = gzip.compress if compressed else bytes
    ending = ".gz" if compressed else ""
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    (tmp_path / f"a.json{ending}").write_bytes(pack_bytes(lines.encode("cp1252")))
    (tmp_path / f"a.csv{ending}").write_bytes(pack_bytes("id;name\n1;Ärger\n2;5 €, „so“\n".encode("utf-16")))
    for name, options in (("json", {"encoding": "cp1252"}), ("csv", {"encoding": "utf-16", "delimiter": ";"})):
        source = FileSource(tmp_path / f"a.{name}{ending}", options=options)
        assert Environment().from_source(source).to_arrow().to_pylist() == rows
    # In UTF-16 a line's end is two bytes: such a file is not cut.
    assert FORMATS["csv"].undivided("a.csv", CsvOptions(encoding="utf-16", newlines_in_values=False))
    assert FORMATS["json"].undivided("a.json", JsonOptions(encoding="utf-16"))


def test_bytes_of_no_encoding_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"id,name\n1,\x81\n")
    with pytest.raises(SourceError, match=r"a\.csv is not in the encoding 'cp1252'") as caught:
        Environment().from_source(FileSource(tmp_path / "a.csv", options={"encoding": "cp1252"})).to_arrow()
    assert "encoding" in str(caught.value.hint)
    with pytest.raises(ConfigError, match="encoding 'klingon' is unknown"):
        FileSource(tmp_path / "a.csv", options={"encoding": "klingon"})


def follow(source: Reader, offset: dict[str, int]) -> tuple[list[int], dict[str, int]]:
    """The rows that came since an offset, and the offset behind them."""
    end = source.latest_offset(offset, None, None)
    return ids(source, offset, end), end


def test_a_file_that_is_written_again_is_read_again_on_request(folder: Path, tmp_path: Path) -> None:
    put(folder, "a.json", 1, age=50)
    put(folder, "b.json", 2, age=10)
    state = tmp_path / "state"
    rows, offset = follow(opened(folder, state, bounded=False), START)
    assert rows == [1, 2]
    source = opened(folder, state, bounded=False, on_replaced="read")
    # Another size at an earlier time than that of the newest, the same size at another time, and a new one.
    put(folder, "a.json", 3, 4, age=40)
    put(folder, "b.json", 5, age=5)
    put(folder, "c.json", 6)
    rows, offset = follow(source, offset)
    assert rows == [3, 4, 5, 6]
    assert follow(source, offset) == ([], offset)
    # So after a restart, and if it is what it was before: that version has been read.
    source = opened(folder, state, bounded=False, on_replaced="read")
    put(folder, "a.json", 1, age=50)
    assert follow(source, offset) == ([], offset)
    put(folder, "b.json", 7, 8, age=5)
    assert follow(source, offset)[0] == [7, 8]
    # What was read again is no surprise where replaced files are warned of.
    source = opened(folder, state, bounded=False)
    assert notes() == []


def test_a_file_that_is_written_again_before_it_is_read_is_read_once(folder: Path, tmp_path: Path) -> None:
    put(folder, "a.json", 1, age=50)
    put(folder, "b.json", 2, age=50)
    source = opened(folder, tmp_path / "state", bounded=False, on_replaced="read")
    offset = source.latest_offset(START, None, None)
    # One byte for one byte.
    put(folder, "a.json", 3, age=40)
    assert ids(source, START, offset) == [2]
    assert [str(folder / "a.json") in note for note in notes()] == [True]
    assert follow(source, offset)[0] == [3]
    (folder / "b.json").unlink()
    with pytest.raises(SourceError, match=r"b\.json can't be read"):
        ids(source, START, offset)


def test_a_file_that_is_written_again_is_an_error_on_request(folder: Path, tmp_path: Path) -> None:
    put(folder, "a.json", 1, age=50)
    source = opened(folder, tmp_path / "state", bounded=False, on_replaced="fail")
    rows, offset = follow(source, START)
    assert (rows, follow(source, offset)) == ([1], ([], offset))
    put(folder, "a.json", 2, age=60)
    put(folder, "b.json", 3)
    with pytest.raises(SourceError, match=r"a\.json was written again after it was found") as error:
        source.latest_offset(offset, None, None)
    assert 'on_replaced="read"' in str(error.value.hint)
    # Nothing was logged: "b.json" comes once the user has decided.
    assert follow(opened(folder, tmp_path / "state", bounded=False, on_replaced="read"), offset)[0] == [2, 3]


def test_names_that_are_left_out(folder: Path, tmp_path: Path) -> None:
    for name in ("a.json", "a.bak.json", "old/b.json", "new/c.json", "new/x-1.json", "new/X-1.json"):
        put(folder, name, len(name))
    exclude = ["*.bak.*", "old", "x-?.json"]
    expected = sorted(map(len, ("a.json", "new/c.json", "new/X-1.json")))
    for number, path in enumerate((str(folder), f"{folder}/**/*.json")):
        assert sorted(everything(opened(path, tmp_path / str(number), exclude=exclude))) == expected
    # A folder above the path has any name.
    assert everything(opened(folder / "old", tmp_path / "above", exclude="old")) == [10]
    with pytest.raises(SourceError, match="matches no file to read"):
        opened(folder / "old", tmp_path / "none", exclude="b*")


def zipped(path: Path, contents: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as whole:
        for name, content in contents.items():
            whole.writestr(name, content)
    return path


def test_files_in_a_zip(folder: Path, tmp_path: Path) -> None:
    contents = {"a.csv": b"id,name\n1,x\n2,y\n", "sub/b.csv": b"name,id\nz,3\n", "empty.csv": b"", "sub/": b""}
    path = zipped(folder / "all.csv.zip", {**contents, "__MACOSX/._a.csv": b"\x00"})
    source = opened(folder, tmp_path / "a", format="csv", schema="id long, name string", include=["file", "row"])
    end = source.latest_offset(START, None, None)
    rows = [row for split in source.splits(START, end) for batch in source.read(split) for row in batch.to_pylist()]
    assert end["files"] == 1
    assert [(row["id"], row["name"], row["file_path"], row["file_row"]) for row in rows] == [
        (1, "x", f"{path}/a.csv", 1),
        (2, "y", f"{path}/a.csv", 2),
        (3, "z", f"{path}/sub/b.csv", 1),
    ]
    # Their schema is that of the first one with rows, and the format that of the name.
    inferred = FileSource(f"{folder}/*.csv.zip").open(SourceContext(str(tmp_path / "b")))
    assert inferred.schema.names == ["id", "name"]


def test_files_of_xz(folder: Path, tmp_path: Path) -> None:
    lines = b"".join(b'{"id": %d}\n' % number for number in range(50_000))
    # Several streams, with zeros in fours between them: Python's own reader stops there.
    whole = lzma.compress(lines[:100_000]) + bytes(8) + lzma.compress(lines[100_000:]) + bytes(4)
    (folder / "a.json.xz").write_bytes(whole)
    assert everything(opened(folder, tmp_path / "a")) == [*range(50_000)]


@pytest.mark.parametrize("ending", ["xz", "zip"])
def test_a_packed_file_that_is_damaged_is_named(ending: str, folder: Path, tmp_path: Path) -> None:
    lines = b'{"id": 1}\n' * 20_000
    path = folder / f"a.json.{ending}"
    path.write_bytes(lzma.compress(lines)) if ending == "xz" else zipped(path, {"a.json": lines})
    whole = path.read_bytes()
    middle = len(whole) // 2
    for number, content in enumerate(
        (whole[:middle], whole[:middle] + b"damage" + whole[middle + 6 :], b"no", whole + b"behind" * 99)
    ):
        path.write_bytes(content)
        source = opened(folder, tmp_path / str(number))
        if number == 3 and ending == "zip":
            # A zip is found from its end, and may have a comment.
            continue
        with pytest.raises(SourceError, match=rf"a\.json\.{ending} can't be read"):
            everything(source)
