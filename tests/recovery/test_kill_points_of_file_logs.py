"""Drivers die while they merge the log of a FileSource: each epoch has its files, and each file is read once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.drivers import Drivers
from tests.recovery.listed_files import FAN_IN, follow, opened
from tests.tiers import some
from volley.connectors.files import log
from volley.task.failpoints import FILE_LOG_POINTS

FILES = FAN_IN**3 + 1


@pytest.mark.parametrize("point", some(FILE_LOG_POINTS))
def test_a_merge_that_dies_loses_and_doubles_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    (tmp_path / "in").mkdir()
    entries = FAN_IN**2
    Drivers().die(f"{point}@{entries}", follow, tmp_path, FILES)
    left = logged(tmp_path)
    if point == "before-merged-log":
        # The last three of the log, beside two files that have three each.
        assert left == {"000000000000-000000000003-1.arrow", "000000000003-000000000006-1.arrow", *listings(6, 9)}
    else:
        gone = point == "in-deletion-of-log"
        assert {"000000000006-000000000009-1.arrow", *listings(6 + gone, 9)} <= left
    check(tmp_path, entries)

    assert Drivers().run(follow, tmp_path, FILES) == 0
    assert logged(tmp_path) == {f"000000000000-{FAN_IN**3:012}-3.arrow", *listings(FAN_IN**3, FILES)}
    assert not list(tmp_path.rglob("*.tmp"))
    check(tmp_path, FILES)
    monkeypatch.setattr(log, "_FAN_IN", FAN_IN)
    offset = {"files": FILES}
    assert opened(tmp_path).latest_offset(offset, None, None) == offset


def listings(first: int, end: int) -> set[str]:
    return {f"{number:012}.json" for number in range(first, end)}


def logged(folder: Path) -> set[str]:
    """The files of the log; one without a name is written again by the next start."""
    return {path.name for path in (folder / "state" / "files").iterdir() if path.suffix != ".tmp"}


def check(folder: Path, epochs: int) -> None:
    """Each epoch is read again by a new reader, which finds its one file."""
    reader = opened(folder)
    start = reader.initial_offset()
    planned = [json.loads(line) for line in (folder / "offsets").read_text().splitlines()]
    assert len(planned) == epochs
    for number, end in enumerate(planned):
        (split,) = reader.splits(start, end)
        assert [row["id"] for batch in reader.read(split) for row in batch.to_pylist()] == [number]
        start = end
