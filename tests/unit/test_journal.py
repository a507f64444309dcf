"""Entries of a journal: numbered without gaps, published once, named when they are damaged or gone."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from volley import StorageError
from volley.storage.envelope import Format
from volley.store.journal import Journal

FORMAT = Format("example")


def journal(url: str) -> Journal[Any]:
    return Journal(url, FORMAT, lambda number, value: value["text"])


@pytest.fixture(params=["disk", "memory"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A folder on a disk, and one of a storage that has no folders and no links."""
    return str(tmp_path / "journal") if request.param == "disk" else f"memory://{tmp_path}"


def test_entries_are_numbered_in_their_order(url: str) -> None:
    entries = journal(url)
    assert entries.entries() == {}
    assert [entries.append({"text": text}) for text in "abc"] == [1, 2, 3]
    assert list(journal(url).entries().items()) == [(1, "a"), (2, "b"), (3, "c")]


def test_several_writers_at_once_publish_each_entry_once(tmp_path: Path) -> None:
    texts = [f"{writer}-{number}" for writer in range(4) for number in range(10)]

    def write(writer: int) -> list[int]:
        own = journal(str(tmp_path))
        return [own.append({"text": text}) for text in texts if text.startswith(f"{writer}-")]

    with ThreadPoolExecutor(4) as pool:
        numbers = [number for written in pool.map(write, range(4)) for number in written]
    entries = journal(str(tmp_path)).entries()
    assert list(entries) == list(range(1, 41))
    assert [entries[number] for number in numbers] == texts


def test_the_first_of_two_entries_of_one_number_stays(url: str) -> None:
    assert journal(url).publish(7, {"text": "first"}) == "first"
    assert journal(url).publish(7, {"text": "second"}) == "first"


def test_a_replaced_and_a_deleted_entry(url: str) -> None:
    entries = journal(url)
    for number in (3, 4):
        entries.publish(number, {"text": "old"})
    entries.replace(3, {"text": "new"})
    entries.delete(4)
    assert entries.entries() == journal(url).entries() == {3: "new"}


def test_what_a_dead_writer_has_begun_is_no_entry(tmp_path: Path) -> None:
    journal(str(tmp_path)).append({"text": "a"})
    (tmp_path / "000002.json.tmp").write_bytes(b"volley exam")
    assert journal(str(tmp_path)).append({"text": "b"}) == 2


@pytest.mark.parametrize("data", [b"", b"{", b"{}", FORMAT.dump({"text": "a"})[:-1], Format("other").dump({"text": 1})])
def test_a_damaged_entry_is_named(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "000001.json").write_bytes(data)
    with pytest.raises(StorageError, match=r"000001\.json is damaged"):
        journal(str(tmp_path)).entries()


def test_an_entry_that_is_gone_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"000005\.json is missing"):
        journal(str(tmp_path))[5]
