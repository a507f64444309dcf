"""A source that lets go of what is committed: a folder of files, one an epoch, which its reader deletes."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from volley import Reader, Source, SourceContext, SourceError
from volley.contracts.source import Offset

__all__ = ["Spool", "SpoolReader", "calls", "fill", "note"]

ROWS = 3


def note(folder: Path, *call: object) -> None:
    """Add a call to a folder's log, which outlives the process."""
    with (folder / "calls").open("a") as log:
        log.write(json.dumps(call) + "\n")


def calls(folder: Path) -> list[tuple[Any, ...]]:
    """What was noted since this was asked last."""
    log = folder / "calls"
    found = [tuple(json.loads(line)) for line in log.read_text().splitlines()] if log.exists() else []
    log.unlink(missing_ok=True)
    return found


def fill(folder: Path, numbers: range) -> list[int]:
    """Put files into a folder; the ids in them."""
    folder.mkdir(exist_ok=True)
    ids = {number: list(range(number * ROWS, (number + 1) * ROWS)) for number in numbers}
    for number, rows in ids.items():
        (folder / f"{number}.json").write_text(json.dumps(rows))
    return [row for rows in ids.values() for row in rows]


@dataclass(frozen=True)
class Spool(Source):
    """The files of a folder.

    Args:
        folder: The folder; a file named as a call in it makes that call fail, once.
        dies_at: Kills the process when this many files are committed.
    """

    folder: Path
    dies_at: int | None = None

    bounded = True

    @property
    def identity(self) -> str:
        return f"spool:{self.folder}"

    def open(self, context: SourceContext) -> Reader:
        return SpoolReader(self.folder, self.dies_at)


@dataclass(frozen=True)
class SpoolReader(Reader):
    folder: Path
    dies_at: int | None

    schema = pa.schema({"id": pa.int64()})
    limit = 1
    acknowledges = True

    def initial_offset(self) -> Offset:
        return {"files": 0}

    def latest_offset(self, start: Offset, limit: int | None, target: Offset | None) -> Offset:
        there = [int(file.stem) + 1 for file in self.folder.glob("*.json")]
        last = max([start["files"], *there]) if target is None else target["files"]
        return {"files": max(start["files"], last if limit is None else min(last, start["files"] + limit))}

    def splits(self, start: Offset, end: Offset) -> list[int]:
        return list(range(start["files"], end["files"]))

    def read(self, split: int) -> Iterator[pa.RecordBatch]:
        file = self.folder / f"{split}.json"
        if not file.exists():
            raise SourceError(f"{file} was let go of")
        yield pa.record_batch({"id": json.loads(file.read_text())}, self.schema)

    def committed(self, offset: Offset) -> None:
        self._note("committed", offset["files"])
        for number in range(offset["files"]):
            (self.folder / f"{number}.json").unlink(missing_ok=True)
        if offset["files"] == self.dies_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def start(self) -> None:
        self._note("start")

    def stop(self) -> None:
        self._note("stop")

    def _note(self, *call: object) -> None:
        note(self.folder, *call)
        if (self.folder / str(call[0])).exists():
            (self.folder / str(call[0])).unlink()
            raise OSError("as the test wants it")
