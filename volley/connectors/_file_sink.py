"""How a FileSink commits: files are staged under hidden names, then published under names that tell epoch and task."""

from __future__ import annotations

import json
import posixpath
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from volley._secrets import mask_uri, presentable
from volley.connectors._file_encoders import ENCODERS
from volley.connectors._paths import filesystem
from volley.errors import CommitStateUnknownError, StorageAccessError, StorageError, VolleyError
from volley.sink import Epoch, WriteResult

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["FileCommitter"]


@contextmanager
def _storage(path: str, action: str) -> Iterator[None]:
    """Whatever the storage's driver raises as one of ours."""
    path = mask_uri(path)
    try:
        yield
    except VolleyError:
        raise
    except PermissionError as error:
        raise StorageAccessError(
            f"{action} {path} was refused: {mask_uri(str(error))}", hint="check credentials and rights"
        ) from presentable(error)
    except Exception as error:
        raise StorageError(
            f"{action} {path} failed: {mask_uri(str(error))}", hint="check that the folder is there and has room"
        ) from presentable(error)


class FileCommitter:
    """Publishes staged files by renaming them; a marker file a query holds its last epoch.

    Final names depend on epoch and task only. A crash between renaming and the marker repeats the epoch: what the
    first try left behind is removed before the second begins.
    """

    def __init__(self, path: str, format: str, options: dict[str, Any], schema: pa.Schema) -> None:
        self._path = path
        self._format = format
        self._options = options
        self._schema = schema
        self._is_clear = False
        with _storage(path, "making"):
            self._fs, self._root = filesystem(path, options)
            self._fs.makedirs(f"{self._root}/_volley", exist_ok=True)

    @property
    def target(self) -> None:
        return None

    def last_epoch(self, query_id: str) -> int | None:
        marker = self._marker(query_id)
        with _storage(marker, "reading"):
            self._fs.invalidate_cache()
            if not self._fs.exists(marker):
                return None
            last: int = json.loads(self._fs.cat_file(marker))["epoch"]
            return last

    def writer(self, epoch: Epoch) -> _FileWriter:
        if not self._is_clear:
            # Only a process that died leaves files behind; listing the folder in every epoch would get slow.
            self._clear(epoch)
            self._is_clear = True
        return _FileWriter(self._path, self._format, self._schema, epoch, self._options)

    def commit(self, epoch: Epoch, results: Sequence[WriteResult]) -> None:
        with _storage(self._path, "publishing files in"):
            for staged, final in _committables(results):
                self._fs.mv(f"{self._root}/{staged}", f"{self._root}/{final}")
        marker = self._marker(epoch.query_id)
        try:
            self._fs.pipe_file(f"{marker}.tmp", json.dumps({"epoch": epoch.number}).encode())
            self._fs.mv(f"{marker}.tmp", marker)
        except Exception as error:
            raise CommitStateUnknownError(
                f"epoch {epoch.number} is published in {mask_uri(self._path)}, but its mark may not be: {error}",
                hint="start again: if the mark is missing, the epoch is repeated in its place",
            ) from error

    def abort(self, epoch: Epoch, results: Sequence[WriteResult]) -> None:
        for pair in _committables(results):
            for name in pair:
                _remove(self._fs, f"{self._root}/{name}")

    def orphans(self, epoch: Epoch) -> Sequence[str]:
        # `writer` clears what it finds.
        return ()

    def _clear(self, epoch: Epoch) -> None:
        """Remove what an earlier process left: this query's staged files, and what it published of this epoch."""
        query = _query_prefix(epoch.query_id)
        with _storage(self._path, "clearing"):
            for pattern in (f".volley-*-{query}-*", f"{_final_prefix(epoch)}*"):
                for leftover in self._fs.glob(f"{_escaped(self._root)}/{pattern}"):
                    self._fs.rm_file(leftover)

    def _marker(self, query_id: str) -> str:
        return f"{self._root}/_volley/{query_id}.json"


def _committables(results: Sequence[WriteResult]) -> list[tuple[str, str]]:
    """Staged and final names of all files."""
    return [pair for result in results for pair in result.committables]


def _query_prefix(query_id: str) -> str:
    return query_id[:8]


def _final_prefix(epoch: Epoch) -> str:
    return f"{_query_prefix(epoch.query_id)}-epoch-{epoch.number:06}-"


def _escaped(path: str) -> str:
    """The path as a glob that matches only itself."""
    return "".join(f"[{char}]" if char in "*?[" else char for char in path)


def _remove(files: Any, path: str) -> None:
    """Delete the file if it can be; what stays is hidden or will be replaced."""
    with suppress(Exception):
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
        self._fs, root = filesystem(writer.path, writer.options)
        self._full = posixpath.join(root, self._staged)
        self._file: Any = None
        self._encoder: Any = None
        self._result = WriteResult()
        self._seconds = 0.0

    def check(self, batch: pa.RecordBatch) -> None:
        """Every row of the stream's schema fits."""

    def write(self, batch: pa.RecordBatch) -> None:
        began = time.perf_counter()
        with _storage(self._full, "writing"):
            if self._file is None:
                self._file = self._fs.open(self._full, "wb")
                self._encoder = ENCODERS[self._writer.format](self._file, self._writer.schema)
            self._encoder.write_batch(batch)
        self._result = self._result.with_batch(batch.num_rows)
        self._seconds += time.perf_counter() - began

    def close(self) -> WriteResult:
        if self._file is None:
            return WriteResult()
        with _storage(self._full, "closing"):
            self._encoder.close()
            size = self._file.tell()
            self._file.close()
        pair = self._staged, self._final
        return replace(self._result, bytes=size, seconds=self._seconds, files=1, committables=(pair,))

    def abort(self) -> None:
        if self._file is not None:
            with suppress(Exception):
                self._encoder.close()
            with suppress(Exception):
                self._file.close()
            _remove(self._fs, self._full)
