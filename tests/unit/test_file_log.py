"""The log of a FileSource's files: merged as it grows, read in parts, the same for every copy of a reader."""

from __future__ import annotations

import hashlib
import json
import os
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tiers import examples
from volley import FileSource, SourceContext, StorageError
from volley.connectors.files import entries, log
from volley.connectors.files.entries import Names, rows_of
from volley.connectors.files.listing import LoggedFile
from volley.connectors.files.log import FileLog
from volley.storage.state_formats import FILE_LOG

Listed = list[LoggedFile]


def file(number: int) -> LoggedFile:
    return LoggedFile(f"in/{number}.json", number, 1_000.25 + number)


def offset_by_hand(listed: Listed) -> dict[str, Any]:
    """The offset behind these files, computed as every version of Volley has done it."""
    digest = b""
    for each in listed:
        entry = json.dumps([each.path, each.size, each.modified]).encode()
        digest = hashlib.blake2b(digest + entry, digest_size=12).digest()
    return {"files": len(listed), "hash": digest.hex()}


def count_calls(patch: pytest.MonkeyPatch, files: type, method: str, calls: list[str]) -> None:
    """Note each call of a method of a file system, with the name of the file."""
    real = getattr(files, method)

    def noted(self: Any, path: str, *args: Any, **more: Any) -> Any:
        calls.append(f"{method} {Path(path).name}")
        return real(self, path, *args, **more)

    patch.setattr(files, method, noted)


@contextmanager
def folder_in_memory() -> Iterator[str]:
    """A folder in which nothing is forced to disk."""
    yield (url := f"memory://{uuid.uuid4()}/files")
    if MemoryFileSystem().exists(url):
        MemoryFileSystem().rm(url, recursive=True)


@pytest.fixture
def url() -> Iterator[str]:
    with folder_in_memory() as url:
        yield url


def names(url: str) -> list[str]:
    return sorted(path.rpartition("/")[2] for path in MemoryFileSystem().ls(url, detail=False))


def test_a_start_reads_few_files_however_many_epochs_there_were(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    writer, most = FileLog(url), 0
    for number in range(434):
        writer.append([file(number)])
        most = max(most, len(names(url)) if number % 100 == 99 else 0)
    # A file for each hundred, for each ten after them, and the last ones.
    assert most < 30
    assert len(names(url)) == 4 + 3 + 4
    read: list[str] = []
    count_calls(monkeypatch, MemoryFileSystem, "cat_file", read)
    count_calls(monkeypatch, MemoryFileSystem, "open", read)
    driver, planner = FileLog(url), FileLog(url)
    end = offset_by_hand(list(map(file, range(434))))
    assert driver.count(end) == planner.count(end) == 434
    planner.append([file(number) for number in range(435)])
    assert driver.files(433, driver.count(planner.offset(435))) == [file(433), file(434)]
    assert 0 < len(read) < 60


@settings(max_examples=examples(0.2))
@given(sizes=st.lists(st.integers(1, 45), max_size=11), restarts=st.sets(st.integers(0, 11)), data=st.data())
def test_any_listings_and_any_restarts_give_the_same_entries_and_offsets(
    sizes: list[int], restarts: set[int], data: st.DataObject
) -> None:
    with pytest.MonkeyPatch.context() as patch, folder_in_memory() as url:
        patch.setattr(log, "_FAN_IN", 3)
        patch.setattr(entries, "BLOCK", 20)
        patch.setattr(log, "BLOCK", 20)
        writer, driver = FileLog(url), FileLog(url)
        listed: Listed = []
        for number, size in enumerate(sizes):
            if number in restarts:
                writer = FileLog(url)
            listed += [file(len(listed) + each) for each in range(size)]
            writer.append(listed)
            first = data.draw(st.integers(0, len(listed)))
            assert driver.count(writer.offset(len(listed))) == len(listed)
            assert driver.files(first) == writer.files(first) == listed[first:]
        for count in {len(listed), len(listed) // 2} - {0}:
            for each in (writer, driver, FileLog(url)):
                assert each.offset(count) == offset_by_hand(listed[:count])
                assert each.count(offset_by_hand(listed[:count])) == count
        assert all(each.path in FileLog(url) for each in listed)


@pytest.mark.parametrize("sealed", [True, False], ids=["not-yet-merged", "0.2.0"])
def test_a_log_with_a_file_for_each_epoch_goes_on_and_is_merged(url: str, sealed: bool) -> None:
    listed = list(map(file, range(250)))
    for each in listed:
        values = [{"path": each.path, "size": each.size, "modified": each.modified}]
        data = FILE_LOG.dump(values) if sealed else json.dumps(values).encode()
        MemoryFileSystem().pipe_file(f"{url}/{each.size:012}.json", data)
    again = FileLog(url)
    assert again.count(offset_by_hand(listed[:249])) == 249
    again.append(listed)
    assert names(url) == ["000000000000-000000000250-1.arrow"]
    assert again.files() == FileLog(url).files() == listed
    assert again.offset(250) == FileLog(url).offset(250) == offset_by_hand(listed)


def test_a_copy_of_the_reader_that_listed_before_a_merge_reads_on(url: str) -> None:
    writer, driver = FileLog(url), FileLog(url)
    for number in range(10):
        writer.append([file(number)])
    writer.append([])
    assert driver.files() == writer.files()
    for number in range(10, 101):
        writer.append([file(number)])
    # Its merged file is gone.
    assert driver.files(0, 10) == [file(number) for number in range(10)]
    assert driver.count(writer.offset(101)) == 101


def test_files_that_can_not_be_deleted_stop_nothing(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rm_file = MemoryFileSystem.rm_file

    def refuse(self: MemoryFileSystem, path: str) -> None:
        if not path.endswith(".tmp"):
            raise PermissionError(path)
        rm_file(self, path)

    with monkeypatch.context() as denied:
        denied.setattr(MemoryFileSystem, "rm_file", refuse)
        writer = FileLog(url)
        for number in range(12):
            writer.append([file(number)])
        assert len(names(url)) == 13
        assert FileLog(url).files() == writer.files() == list(map(file, range(12)))
    writer = FileLog(url)
    for number in range(12, 21):
        writer.append([file(number)])
    assert len(names(url)) == 3
    assert FileLog(url).files() == list(map(file, range(21)))


def test_a_missing_merged_file_is_named(url: str) -> None:
    writer = FileLog(url)
    for number in range(12):
        writer.append([file(number)])
    MemoryFileSystem().rm_file(f"{url}/000000000000-000000000010-1.arrow")
    with pytest.raises(StorageError, match=r"000000000000\.json is missing, and so is 000000000000-\*\.arrow: .*10"):
        FileLog(url).files()


def test_a_damaged_merged_file_is_named(url: str) -> None:
    writer = FileLog(url)
    for number in range(12):
        writer.append([file(number)])
    path = f"{url}/000000000000-000000000010-1.arrow"
    data = bytearray(MemoryFileSystem().cat_file(path))
    data[200] ^= 1
    MemoryFileSystem().pipe_file(path, bytes(data))
    with pytest.raises(StorageError, match=r"000000000000-000000000010-1\.arrow is damaged: batch 0 does not fit"):
        FileLog(url).files()


def test_names_are_known_by_their_hashes_whatever_these_end_with() -> None:
    names, known = Names(), [LoggedFile(f"{number}", 1) for number in range(12_000)]
    names.load([rows_of(known[:3_000], b"").column("name"), rows_of(known[3_000:4_000], b"").column("name")[500:]])
    names.load([rows_of(known[3_000:4_000], b"").column("name")[:500]])
    for first in range(4_000, 12_000, 2_000):
        names.add(rows_of(known[first : first + 2_000], b"").column("name"))
    others = [LoggedFile(f"{number}", 1) for number in range(12_000, 24_000)]
    mixed = [each for pair in zip(known, others, strict=True) for each in pair]
    assert names.unknown(mixed) == others
    assert "7" in names
    assert "12000" not in names
    assert Names().unknown(others[:2]) == others[:2]


def test_a_file_whose_name_is_no_text_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "_FAN_IN", 2)
    (tmp_path / "in").mkdir()
    source = FileSource(tmp_path / "in", format="json", schema="id long", bounded=False)
    reader = source.open(SourceContext(str(tmp_path / "state")))
    start = reader.initial_offset()
    for number, name in enumerate([b"a\xff.json", b"b.json", b"c.json"]):
        with open(os.fsencode(tmp_path / "in") + b"/" + name, "w") as written:
            written.write(f'{{"id": {number}}}\n')
        end = reader.latest_offset(start, None, None)
    reader = source.open(SourceContext(str(tmp_path / "state")))
    assert reader.latest_offset(end, None, None) == end
    splits = reader.splits(start, end)
    assert [row["id"] for split in splits for batch in reader.read(split) for row in batch.to_pylist()] == [0, 1, 2]


def test_a_source_of_one_file_that_was_archived_has_nothing_new(tmp_path: Path) -> None:
    """The file is known by its path in the log."""
    (tmp_path / "a.json").write_text('{"id": 1}\n')
    source = FileSource(tmp_path / "a.json", schema="id long", bounded=False)
    reader = source.open(SourceContext(str(tmp_path / "state")))
    end = reader.latest_offset(reader.initial_offset(), None, None)
    (tmp_path / "a.json").unlink()
    reader = source.open(SourceContext(str(tmp_path / "state")))
    assert reader.latest_offset(end, None, None) == end


def test_a_merge_is_forced_to_disk_before_what_it_replaces_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    monkeypatch.setattr("volley.store.files.sync", lambda files, path: steps.append(f"sync {Path(path).name}"))
    count_calls(monkeypatch, LocalFileSystem, "mv", steps)
    count_calls(monkeypatch, LocalFileSystem, "rm_file", steps)
    monkeypatch.setattr(log, "_FAN_IN", 2)
    writer = FileLog(str(tmp_path / "files"))
    for number in range(3):
        writer.append([file(number)])
    merged = "000000000000-000000000002-1.arrow"
    expected = [f"sync {merged}.tmp", f"mv {merged}.tmp", "sync files", "rm_file 000000000000.json"]
    # Until it is published, its name has a part of its own.
    named = [re.sub(r"\.[0-9a-f]{32}", "", step) for step in steps]
    assert named[2:7] == [*expected, "rm_file 000000000001.json"]
    assert oct((tmp_path / "files" / merged).stat().st_mode)[-3:] == "600"
