"""A sink of one's own: an Arrow file for each task, and a list of files for each epoch, which makes it exactly once.

Run it with ``python -m examples.own_sink [FOLDER]``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import uuid4

import pyarrow as pa

from volley import Committer, Environment, Epoch, MemorySource, Sink, SinkContext, TaskWriter, Writer, WriteResult


@dataclass(frozen=True)
class ArrowFiles(Sink):
    """A folder of Arrow files.

    Args:
        folder: The folder; it must exist.
    """

    folder: Path

    def open(self, context: SinkContext) -> Committer:
        return ArrowCommitter(ArrowWriter(self.folder, context.schema))

    def rows(self) -> pa.Table:
        """Read the files of all epochs that are committed."""
        lists = [json.loads(path.read_text()) for path in sorted(self.folder.glob("*.json"))]
        return pa.concat_tables(pa.ipc.open_file(self.folder / name).read_all() for names in lists for name in names)


@dataclass(frozen=True)
class ArrowWriter(Writer):
    """Opens a file of its own for each attempt of a task."""

    folder: Path
    schema: pa.Schema

    def open(self, task: int) -> TaskWriter:
        return ArrowTaskWriter(self.folder / f"{task}-{uuid4()}.arrow", self.schema)


class ArrowCommitter(Committer):
    """Writes an epoch's list of files under its final name in one step: all of the files count, or none."""

    def __init__(self, writer: ArrowWriter) -> None:
        self._writer, self._folder = writer, writer.folder

    def last_epoch(self, query_id: str) -> int | None:
        lists = self._folder.glob(f"{query_id}_*.json")
        return max((int(path.stem.rpartition("_")[2]) for path in lists), default=None)

    def writer(self, epoch: Epoch) -> Writer:
        return self._writer

    def commit(self, epoch: Epoch, results: Sequence[WriteResult]) -> None:
        part = self._folder / f"{epoch.query_id}.part"
        part.write_text(json.dumps([name for result in results for name in result.committables]))
        part.rename(self._folder / f"{epoch.query_id}_{epoch.number}.json")


class ArrowTaskWriter(TaskWriter):
    """Writes the rows of one attempt of a task."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._path, self._file, self._result = path, pa.ipc.new_file(path, schema), WriteResult()

    def write(self, batch: pa.RecordBatch) -> None:
        self._file.write_batch(batch)
        self._result = self._result.with_batch(batch.num_rows)

    def close(self) -> WriteResult:
        self._file.close()
        return replace(self._result, files=1, committables=(self._path.name,))

    def abort(self) -> None:
        self._path.unlink(missing_ok=True)


def main(folder: Path) -> list[int]:
    """Write three epochs; return the ids in the files."""
    sink = ArrowFiles(folder / "arrow")
    sink.folder.mkdir(parents=True)
    source = MemorySource([{"id": number} for number in range(30)], rows_per_epoch=10)
    job = Environment(checkpoint_dir=str(folder / "checkpoints")).from_source(source).to_sink(sink).execute("arrow")
    print(f"{job.progress.rows} rows in {job.progress.epochs} epochs and {job.progress.files} files")
    return sorted(sink.rows()["id"].to_pylist())


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else ".volley/arrow"))
