"""The loads of a PostgreSQL source on disk: what an epoch reads of them again."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.local import LocalFileSystem

from volley.connectors.postgres.loads import Fence, Load, Loads


def test_an_epoch_reads_only_the_fences_that_are_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer, loads = Loads(str(tmp_path)), Loads(str(tmp_path))
    fences = {oid: Fence(700 + oid, (oid,), 5_000) for oid in range(20)}
    read: list[str] = []
    cat_file = LocalFileSystem.cat_file

    def noted(self: LocalFileSystem, path: str, **more: Any) -> Any:
        read.append(Path(path).parent.name)
        return cat_file(self, path, **more)

    monkeypatch.setattr(LocalFileSystem, "cat_file", noted)
    for count, (oid, fence) in enumerate(fences.items(), 1):
        writer.add(Load(0, oid))
        writer.begin(writer.listed()[-1:], fence)
        read.clear()
        known = loads.fences(count)
        assert {oid: (each.xmax, each.running) for oid, each in known.items()} == {
            oid: (fence.xmax, fence.running) for oid, fence in list(fences.items())[:count]
        }
        assert read == ["loads", "fences"]


def numbered(count: int, first: int = 0) -> list[Load]:
    return [Load(0, oid) for oid in range(first, first + count)]


def test_a_start_merges_the_loads_that_have_begun(tmp_path: Path) -> None:
    loads, fence = Loads(str(tmp_path)), Fence(735, (731, 733), 5_000)
    loads.add(*numbered(300))
    loads.begin(loads.listed()[:299], fence)
    before = loads.listed()
    old = Loads(str(tmp_path))
    assert len(old.listed()) == 300
    loads.merge()
    assert len([*tmp_path.rglob("*.json")]) == 2
    for reader in (Loads(str(tmp_path)), old, loads):
        assert reader.listed() == before
        assert reader.fences(299) == dict.fromkeys(range(299), fence)
    new = Loads(str(tmp_path))
    new.add(Load(0, 7, anew=True), Load(0, 8))
    assert [(load.number, load.oid) for load in new.listed()[299:]] == [(300, 299), (301, 7), (302, 8)]
    assert new.begin(new.listed()[290:], fence) == new.listed()[290:]
    assert new.begin(new.listed()[:1], Fence(800, (), 6_000)) == []
    assert new.listed()[-1] == Load(303, 0, anew=True, repeats=1)


def test_a_merge_that_dies_before_it_deletes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loads, fence = Loads(str(tmp_path)), Fence(735, (), 5_000)
    for first in (0, 20):
        loads.add(*numbered(20, first))
        loads.begin(loads.listed()[first:], fence)
        with monkeypatch.context() as dying:
            dying.setattr(Loads, "_delete_merged", lambda self: None)
            loads.merge()
    again = Loads(str(tmp_path))
    assert [load.oid for load in again.listed()] == [*range(40)]
    again.merge()
    assert [path.name for path in tmp_path.rglob("*.json")] == ["to-000040.json"]
    assert Loads(str(tmp_path)).fences(40) == dict.fromkeys(range(40), fence)


def test_receivers_that_add_at_the_same_time(tmp_path: Path) -> None:
    writers = [Loads(str(tmp_path)) for _ in range(4)]
    with ThreadPoolExecutor() as pool:
        [*pool.map(lambda number: writers[number].add(*numbered(25, 100 * number)), range(4))]
    listed = Loads(str(tmp_path)).listed()
    assert [load.number for load in listed] == [*range(1, len(listed) + 1)]
    assert sorted({load.oid for load in listed}) == [100 * n + oid for n in range(4) for oid in range(25)]
