"""Entries of a journal: numbered without gaps, published once, named when they are damaged or gone."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from volley import StorageError
from volley.storage.envelope import StateFormat
from volley.store.journal import Journal, NumberedFiles

FORMAT = StateFormat("example")


def journal(url: str) -> Journal[Any]:
    return Journal(url, FORMAT, lambda number, value: value["text"], merged=StateFormat("merged-example"))


@pytest.fixture(params=["disk", "memory"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A folder on a disk, and one of a storage that has no folders and no links."""
    return str(tmp_path / "journal") if request.param == "disk" else f"memory://{tmp_path}"


def test_entries_are_numbered_in_their_order(url: str) -> None:
    entries = journal(url)
    assert entries.entries() == {}
    entries.append({"text": "a"})
    entries.append({"text": "b"}, {"text": "c"})
    assert list(journal(url).entries().items()) == [(1, "a"), (2, "b"), (3, "c")]


def test_several_writers_at_once_publish_each_entry_once(tmp_path: Path) -> None:
    def write(writer: int) -> None:
        own = journal(str(tmp_path))
        for number in range(0, 10, 2):
            own.append({"text": f"{writer}-{number}"}, {"text": f"{writer}-{number + 1}"})

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    entries = journal(str(tmp_path)).entries()
    assert list(entries) == list(range(1, 41))
    for writer in range(4):
        own = [text for text in entries.values() if text.startswith(f"{writer}-")]
        assert own == [f"{writer}-{number}" for number in range(10)]


def test_entries_keep_their_order_where_another_writer_takes_the_first_number(url: str) -> None:
    class Overtaken(Journal[Any]):
        """A journal of which another writer publishes an entry behind the first look at it."""

        def numbers(self) -> list[int]:
            numbers = super().numbers()
            if not numbers:
                journal(url).append({"text": "other"})
            return numbers

    overtaken = Overtaken(url, FORMAT, lambda number, value: value["text"])
    overtaken.append({"text": "a"}, {"text": "b"}, {"text": "c"})
    assert journal(url).entries() == {1: "other", 2: "a", 3: "b", 4: "c"}


def test_the_first_of_two_entries_of_one_number_stays(url: str) -> None:
    assert journal(url).publish({7: {"text": "first"}}) == {7: "first"}
    assert journal(url).publish({7: {"text": "second"}, 8: {"text": "third"}}) == {7: "first", 8: "third"}


def test_a_replaced_and_a_deleted_entry(url: str) -> None:
    entries = journal(url)
    entries.publish({3: {"text": "old"}, 4: {"text": "old"}})
    entries.replace({3: {"text": "new"}})
    entries.delete(4)
    assert entries.entries() == journal(url).entries() == {3: "new"}


def test_what_a_dead_writer_has_begun_is_no_entry(tmp_path: Path) -> None:
    journal(str(tmp_path)).append({"text": "a"})
    (tmp_path / "000002.json.tmp").write_bytes(b"volley exam")
    journal(str(tmp_path)).append({"text": "b"})
    assert journal(str(tmp_path)).entries() == {1: "a", 2: "b"}


@pytest.mark.parametrize(
    "data", [b"", b"{", b"{}", FORMAT.dump({"text": "a"})[:-1], StateFormat("other").dump({"text": 1})]
)
def test_a_damaged_entry_is_named(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "000001.json").write_bytes(data)
    with pytest.raises(StorageError, match=r"000001\.json is damaged"):
        journal(str(tmp_path)).entries()


def test_an_entry_that_is_gone_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"000005\.json is missing"):
        journal(str(tmp_path))[5]


def test_merged_entries_are_read_by_all(url: str) -> None:
    writer, reader = journal(url), journal(url)
    writer.append(*({"text": text} for text in "abcde"))
    assert reader.numbers() == [1, 2, 3, 4, 5]
    writer.merge([{"text": text} for text in "abc"])
    writer.append({"text": "f"})
    writer.merge([{"text": text} for text in "abcd"])
    whole = dict(enumerate("abcdef", 1))
    for entries in (reader, writer, journal(url)):
        assert (entries[1], entries.entries(), entries.end) == ("a", whole, 4)
    assert sorted(NumberedFiles(url, "{:06}.json").sizes()) == [5, 6]
    assert NumberedFiles(url, "to-{:06}.json").numbers() == [4]


def test_a_damaged_merged_file_is_named(tmp_path: Path) -> None:
    journal(str(tmp_path)).append({"text": "a"})
    journal(str(tmp_path)).merge([{"text": "a"}])
    (tmp_path / "to-000001.json").write_bytes(b"[")
    with pytest.raises(StorageError, match=r"to-000001\.json is damaged"):
        journal(str(tmp_path)).entries()
