"""The loads of a PostgreSQL source on disk: what an epoch reads of them again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.local import LocalFileSystem

from volley.connectors.postgres.fence import Fence
from volley.connectors.postgres.loads import Loads


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
        writer.add(oid)
        writer.begin(writer.listed()[-1], fence)
        read.clear()
        known = loads.fences(count)
        assert {oid: (each.xmax, each.running) for oid, each in known.items()} == {
            oid: (fence.xmax, fence.running) for oid, fence in list(fences.items())[:count]
        }
        assert read == ["loads", "fences"]
