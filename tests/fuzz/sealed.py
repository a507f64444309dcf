"""State that a job writes and reads again: each file has a checksum, so a mutation gives the same rows or an error."""

from __future__ import annotations

import shutil
from abc import abstractmethod
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa

from tests.fuzz.target import Target
from tests.windows.local import windows
from volley import FileSource, MemorySource, SourceContext, WebhookSource, count, max_, sum_, tumbling
from volley.connectors.webhook.frames import Entry
from volley.connectors.webhook.log import Log
from volley.connectors.webhook.reader import WebhookReader
from volley.environment import Environment

__all__ = ["SEALED"]


class Sealed(Target):
    """State below a folder; reading it may write more, so that each read has a copy."""

    sealed = True

    def read(self, folder: Path) -> Any:
        copy = folder / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(folder / "state", copy)
        return self.go_on(copy)

    @abstractmethod
    def go_on(self, folder: Path) -> Any:
        """Return what a job makes of the state. Raises like `read`."""


class WindowState(Sealed):
    """The state of a window after two epochs; the third one's rows are the value."""

    name = "state of windows"
    _schema = pa.schema({"k": pa.string(), "n": pa.int64(), "at": pa.timestamp("us", "UTC")})

    def make(self, folder: Path) -> list[Path]:
        step = self._step(folder / "state")
        for number in range(2):
            step.epoch(number, [(0, [self._rows(number)])])
        return sorted(path for path in (folder / "state" / "1").iterdir() if path.is_file())

    def go_on(self, folder: Path) -> Any:
        return (
            self._step(folder)
            .epoch(2, [(0, [self._rows(20)])])
            .sort_by([("window_start", "ascending"), ("k", "ascending")])
        )

    def _step(self, folder: Path) -> Any:
        rows = MemorySource(pa.Table.from_batches([self._rows(0)]))
        keyed = Environment().from_source(rows).key_by("k")
        stream = keyed.window(tumbling("10s"), on="at").aggregate(n=count(), total=sum_("n"), most=max_("n"))
        return windows(stream, self._schema, folder)

    def _rows(self, number: int) -> pa.RecordBatch:
        times = pa.array([number * 1_000_000 + i * 100_000 for i in range(30)], pa.timestamp("us", "UTC"))
        return pa.record_batch([[f"key {i % 4}" for i in range(30)], [*range(30)], times], schema=self._schema)


class WebhookLog(Sealed):
    """The log of a webhook receiver."""

    name = "log of webhooks"

    def make(self, folder: Path) -> list[Path]:
        (folder / "state").mkdir()
        log = Log(self._reader(folder / "state").folder)
        for number in range(5):
            log.append([Entry(b"", b"", b'{"id": %d}' % (3 * number + i)) for i in range(3)])
        log.close()
        return sorted(
            path for path in (folder / "state" / "log").iterdir() if path.suffix != ".sqlite" and path.stat().st_size
        )

    def go_on(self, folder: Path) -> Any:
        reader = self._reader(folder)
        start = reader.initial_offset()
        splits = reader.splits(start, reader.latest_offset(start, None, None))
        return sorted(row["id"] for split in splits for batch in reader.read(split) for row in batch.to_pylist())

    def _reader(self, folder: Path) -> WebhookReader:
        reader = WebhookSource(0, schema="id long", folder=str(folder / "log")).open(SourceContext(str(folder)))
        assert isinstance(reader, WebhookReader)
        return reader


class FileLog(Sealed):
    """The log of files that a file source has found, two of them merged; the rows of an epoch are the value."""

    name = "log of a file source"

    def make(self, folder: Path) -> list[Path]:
        (folder / "state" / "in").mkdir(parents=True)
        reader, offset = None, None
        for number in range(3):
            (folder / "state" / "in" / f"{number}.json").write_text(f'{{"id": {number}}}\n')
            reader = self._reader(folder / "state")
            with patch("volley.connectors.files.log._FAN_IN", 2):
                offset = reader.latest_offset(offset or reader.initial_offset(), None, None)
        return sorted(path for path in (folder / "state" / "source").rglob("*") if path.is_file())

    def go_on(self, folder: Path) -> Any:
        reader = self._reader(folder)
        start = reader.initial_offset()
        splits = reader.splits(start, reader.latest_offset(start, None, None))
        return sorted(row["id"] for split in splits for batch in reader.read(split) for row in batch.to_pylist())

    def _reader(self, folder: Path) -> Any:
        source = FileSource(str(folder / "in"), format="json", schema="id long")
        return source.open(SourceContext(str(folder / "source")))


SEALED: tuple[Target, ...] = (WindowState(), WebhookLog(), FileLog())
