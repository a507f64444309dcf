"""How far a job is behind the files of its source, as the driver's reader tells it."""

from __future__ import annotations

import json
import os
import pickle
import time
from pathlib import Path
from typing import Any

from volley import FileSource, Lag, SourceContext
from volley.connectors.files.listing import LoggedFile
from volley.connectors.files.log import FileLog
from volley.contracts.source import Offset, Reader


def write(folder: Path, name: str, rows: int, age: float) -> int:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text("".join(json.dumps({"id": number}) + "\n" for number in range(rows)))
    os.utime(path, (time.time() - age, time.time() - age))
    return path.stat().st_size


def opened(tmp_path: Path, **settings: Any) -> tuple[Reader, Reader]:
    """The driver's reader, and the copy of it that plans."""
    source = FileSource(str(tmp_path / "in"), format="json", schema="id long", **settings)
    reader = source.open(SourceContext(str(tmp_path / "state")))
    return reader, pickle.loads(pickle.dumps(reader))


def lag(reader: Reader, offset: Offset) -> tuple[int | None, int | None, int]:
    assert reader.knows_lag
    found = reader.lag(offset)
    assert isinstance(found, Lag)
    assert found.seconds is not None
    assert (found.rows, found.source[-3:]) == (None, "/in")
    return found.files, found.bytes, round(found.seconds / 10) * 10


def test_what_waits_is_counted_as_epochs_take_it(tmp_path: Path) -> None:
    sizes = [write(tmp_path / "in", f"{number}.json", number + 1, age) for number, age in enumerate((90, 60, 30))]
    reader, planner = opened(tmp_path, max_files_per_epoch=1)
    offset = planner.initial_offset()
    seen = []
    for _ in range(3):
        offset = planner.latest_offset(offset, 1, None)
        seen.append(lag(reader, offset))
    assert seen == [(2, sizes[1] + sizes[2], 60), (1, sizes[2], 30), (0, 0, 0)]
    sizes.append(write(tmp_path / "in", "new.json", 5, -1))
    sizes.append(write(tmp_path / "in", "newer.json", 6, -2))
    assert lag(reader, planner.latest_offset(offset, 1, None)) == (1, sizes[4], 0)


def test_a_job_without_a_limit_has_read_what_it_found(tmp_path: Path) -> None:
    write(tmp_path / "in", "1.json", 1, 50)
    reader, planner = opened(tmp_path)
    assert lag(reader, planner.latest_offset(planner.initial_offset(), None, None)) == (0, 0, 0)


def test_an_epoch_that_is_repeated_is_behind_again(tmp_path: Path) -> None:
    sizes = [write(tmp_path / "in", f"{number}.json", 1, 20) for number in range(2)]
    reader, planner = opened(tmp_path, max_files_per_epoch=1)
    first = planner.latest_offset(planner.initial_offset(), 1, None)
    assert lag(reader, planner.latest_offset(first, 1, None)) == (0, 0, 0)
    assert lag(reader, first) == (1, sizes[1], 20)


def test_many_files_are_added_up_in_parts(tmp_path: Path) -> None:

    log = FileLog(str(tmp_path / "log"))
    log.append([LoggedFile(f"{number}.json", number, 1.0) for number in range(70_000)])
    assert log.size(3, 70_000) == sum(range(3, 70_000))
