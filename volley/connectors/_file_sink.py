"""How a FileSink writes and commits: staged under hidden names, published under names that tell epoch and task."""

from __future__ import annotations

import json
import posixpath
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from volley.errors import StorageAccessError, StorageError
from volley.sink import Epoch, WriteResult

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["FileCommitter"]


def _files(path: str, options: Mapping[str, Any]) -> tuple[Any, str]:
    import fsspec

    files, root = fsspec.core.url_to_fs(path, **options)
    return files, root.rstrip("/")


@contextmanager
def _storage(path: str, action: str) -> Iterator[None]:
    try:
        yield
    except PermissionError as error:
        raise StorageAccessError(
            f"{action} {path} was refused: {error}", hint="check credentials and rights"
        ) from error
    except OSError as error:
        raise StorageError(
            f"{action} {path} failed: {error}", hint="check that the folder is there and has room"
        ) from error


class FileCommitter:
    """Publishes staged files by renaming them; a marker file a query holds its last epoch.

    Final names depend on epoch and task only. A crash between renaming and the marker repeats the epoch: leftovers
    of the first try are removed before the second is published.
    """

    def __init__(self, path: str, format: str, options: dict[str, Any], schema: pa.Schema) -> None:
        self._path = path
        self._format = format
        self._options = options
        self._schema = schema
        with _storage(path, "making"):
            self._fs, self._root = _files(path, options)
            self._fs.makedirs(f"{self._root}/_volley", exist_ok=True)

    def last_epoch(self, query_id: str) -> int | None:
        marker = self._marker(query_id)
        with _storage(marker, "reading"):
            if not self._fs.exists(marker):
                return None
            self._fs.invalidate_cache()
            last: int = json.loads(self._fs.cat_file(marker))["epoch"]
            return last

    def writer(self, epoch: Epoch) -> _FileWriter:
        return _FileWriter(self._path, self._format, self._schema, epoch, self._options)

    def commit(self, epoch: Epoch, results: Sequence[WriteResult]) -> None:
        marker = self._marker(epoch.query_id)
        with _storage(self._path, "publishing files in"):
            for leftover in self._fs.glob(f"{self._root}/{_final_prefix(epoch)}*"):
                self._fs.rm_file(leftover)
            for staged, final in (pair for result in results for pair in result.committables):
                self._fs.mv(f"{self._root}/{staged}", f"{self._root}/{final}")
            self._fs.pipe_file(f"{marker}.tmp", json.dumps({"epoch": epoch.number}).encode())
            self._fs.mv(f"{marker}.tmp", marker)

    def abort(self, epoch: Epoch, results: Sequence[WriteResult]) -> None:
        for staged, _ in (pair for result in results for pair in result.committables):
            _remove(self._fs, f"{self._root}/{staged}")

    def _marker(self, query_id: str) -> str:
        return f"{self._root}/_volley/{query_id}.json"


def _final_prefix(epoch: Epoch) -> str:
    return f"{epoch.query_id[:8]}-epoch-{epoch.number:06}-"


def _remove(files: Any, path: str) -> None:
    with suppress(OSError):
        files.rm_file(path)


@dataclass(frozen=True)
class _FileWriter:
    path: str
    format: str
    schema: pa.Schema
    epoch: Epoch
    options: dict[str, Any] = field(repr=False)

    def open(self, task: int) -> _FileTaskWriter:
        return _FileTaskWriter(self, f"{_final_prefix(self.epoch)}{task:05}.{self.format}")


class _FileTaskWriter:
    def __init__(self, writer: _FileWriter, final: str) -> None:
        self._writer = writer
        self._final = final
        self._staged = f".volley-{uuid.uuid4().hex}-{final}"
        self._fs, root = _files(writer.path, writer.options)
        self._full = posixpath.join(root, self._staged)
        self._file: Any = None
        self._encoder: Any = None
        self._sizes: list[int] = []
        self._seconds = 0.0

    def write(self, batch: pa.RecordBatch) -> None:
        began = time.perf_counter()
        with _storage(self._full, "writing"):
            if self._file is None:
                self._file = self._fs.open(self._full, "wb")
                self._encoder = _ENCODERS[self._writer.format](self._file, self._writer.schema)
            self._encoder.write_batch(batch)
        self._sizes.append(batch.num_rows)
        self._seconds += time.perf_counter() - began

    def close(self) -> WriteResult:
        if self._file is None:
            return WriteResult()
        with _storage(self._full, "closing"):
            self._encoder.close()
            size = self._file.tell()
            self._file.close()
        sizes, pair = self._sizes, (self._staged, self._final)
        return WriteResult(sum(sizes), size, self._seconds, len(sizes), min(sizes), max(sizes), 1, (pair,))

    def abort(self) -> None:
        if self._file is not None:
            with suppress(OSError):
                self._file.close()
            _remove(self._fs, self._full)


class _JsonLines:
    def __init__(self, file: Any, schema: pa.Schema) -> None:
        self._file = file

    def write_batch(self, batch: pa.RecordBatch) -> None:
        lines = (json.dumps(row, default=str, ensure_ascii=False) for row in batch.to_pylist())
        self._file.write("".join(f"{line}\n" for line in lines).encode())

    def close(self) -> None:
        """Nothing is buffered."""


def _parquet(file: Any, schema: pa.Schema) -> Any:
    import pyarrow.parquet as pq

    return pq.ParquetWriter(file, schema)


def _csv(file: Any, schema: pa.Schema) -> Any:
    import pyarrow.csv as pcsv

    return pcsv.CSVWriter(file, schema)


_ENCODERS = {"json": _JsonLines, "parquet": _parquet, "csv": _csv}
