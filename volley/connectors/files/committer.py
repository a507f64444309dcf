"""Runs a FileSink: tasks write files under hidden names; the commit renames them to names with epoch and task."""

from __future__ import annotations

import posixpath
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

from volley.connectors.files.listing import HIDDEN_PREFIX, MARKERS
from volley.contracts.epoch import Epoch, WriteResult
from volley.contracts.sink import Committer, SinkContext, TaskWriter, Writer
from volley.errors import CommitConflictError, CommitStateUnknownError, StorageAccessError, StorageError, VolleyError
from volley.formats.encoders import ENCODERS, check_rows
from volley.secrets import redact_uri, redacted
from volley.storage.durable import write_durably
from volley.storage.paths import filesystem
from volley.storage.remembered import MALFORMED
from volley.storage.state_formats import SINK_FOLDER, SINK_MARK

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["FileCommitter"]

_FOLDER = "folder.json"


@contextmanager
def _storage(path: str, action: str) -> Iterator[None]:
    """Translate exceptions of the storage into StorageErrors."""
    path = redact_uri(path)
    try:
        yield
    except VolleyError:
        raise
    except PermissionError as error:
        raise StorageAccessError(
            f"{action} {path} was refused: {redact_uri(str(error))}", hint="check credentials and rights"
        ) from redacted(error)
    except Exception as error:
        raise StorageError(
            f"{action} {path} failed: {redact_uri(str(error))}", hint="check that the folder is there and has room"
        ) from redacted(error)


class FileCommitter(Committer):
    """Publishes hidden files by renaming them; a marker file per query records its last epoch.

    Final names depend only on epoch and task. After a crash between renaming and writing the marker, the epoch is
    repeated: files of the first attempt are deleted before those of the second one are renamed.
    """

    can_clear = True

    def __init__(self, path: str, format: str, options: dict[str, Any], context: SinkContext) -> None:
        self._path = path
        self._format = format
        self._options = options
        self._context = context
        self._is_clear = self._has_published = False
        self._moved: set[str] = set()
        with _storage(path, "opening"):
            self._fs, self._root = filesystem(path, options)
            self._identity = self._read_identity()

    def _read_identity(self) -> str:
        """Return the folder's id; write one for a new folder."""
        path = f"{self._root}/{MARKERS}/{_FOLDER}"
        if not self._fs.exists(path):
            if self._context.resumed:
                raise StorageError(
                    f"{redact_uri(self._path)} is gone: it has no {MARKERS}/{_FOLDER}, which job "
                    f"{self._context.job!r} has written there",
                    hint="restore the folder, or start over with fresh=True to fill a new one",
                )
            write_durably(self._fs, path, SINK_FOLDER.dump({"id": str(uuid.uuid4())}), shared=True)
        try:
            return str(SINK_FOLDER.load(self._fs.cat_file(path), path)["id"])
        except MALFORMED as error:
            raise StorageError(
                f"{redact_uri(self._path)} has a damaged {MARKERS}/{_FOLDER}: {error}",
                hint="restore it from a backup, or start over in another folder",
            ) from error

    def __str__(self) -> str:
        return redact_uri(self._path)

    @property
    def identity(self) -> str:
        return self._identity

    def last_epoch(self, query_id: str) -> int | None:
        mark = self._mark(query_id)
        return None if mark is None else int(mark["epoch"])

    def landed_offsets(self, epoch: Epoch) -> str | None:
        mark = self._mark(epoch.query_id)
        return None if mark is None or mark["epoch"] != epoch.number else mark.get("offsets")

    def earlier_rows(self, query_id: str) -> str | None:
        with _storage(self._path, "listing"):
            for other in self._queries() - {query_id}:
                mark = self._mark(other)
                if mark and mark.get("job") == self._context.job and self._published(other):
                    return f"{self} has the rows of an earlier query of this job, up to its epoch {mark['epoch']}"
        return None

    def clear(self) -> None:
        with _storage(self._path, "emptying"):
            for query_id in self._queries():
                if self._context.shared and (mark := self._mark(query_id)) and mark.get("job") != self._context.job:
                    continue
                for path in self._published(query_id):
                    self._fs.rm_file(path)
                self._fs.rm_file(self._marker(query_id))

    def _queries(self) -> set[str]:
        """Return the ids of the queries that have published epochs in this folder."""
        names = (posixpath.basename(path) for path in self._fs.ls(f"{self._root}/{MARKERS}", detail=False))
        return {name.removesuffix(".json") for name in names if name.endswith(".json") and name != _FOLDER}

    def _published(self, query_id: str) -> list[str]:
        paths: list[str] = self._fs.glob(f"{_escaped(self._root)}/{_query_prefix(query_id)}-epoch-*")
        return paths

    def _mark(self, query_id: str) -> dict[str, Any] | None:
        marker = self._marker(query_id)
        with _storage(marker, "reading"):
            self._fs.invalidate_cache()
            if not self._fs.exists(marker):
                return None
            data = self._fs.cat_file(marker)
        try:
            mark: dict[str, Any] = SINK_MARK.load(data, redact_uri(marker))
            int(mark["epoch"])
        except MALFORMED as error:
            raise StorageError(
                f"{redact_uri(marker)} is damaged: it does not tell the last epoch that a job has written there",
                hint='restore it from a backup; or start over: fresh=True, into="replace"',
            ) from error
        return mark

    def writer(self, epoch: Epoch) -> _FileWriter:
        if not self._is_clear:
            # Only a process that died leaves files behind; listing the folder in every epoch would be slow.
            self._clear(f"{HIDDEN_PREFIX}*-{_query_prefix(epoch.query_id)}-*")
            self._is_clear = True
        return _FileWriter(self._path, self._format, self._context.schema, epoch, self._options)

    def commit(self, epoch: Epoch, results: Sequence[WriteResult]) -> None:
        if self._is_marked(epoch):
            raise CommitConflictError(
                f"epoch {epoch.number} of query {epoch.query_id} is in {self} already, published by another driver",
                hint="the same job runs twice on one checkpoint: stop one of them; no row is lost or doubled",
            )
        if not self._has_published:
            # Published before a process died. Only here, as another driver may be about to write the epoch's mark.
            self._clear(f"{_final_prefix(epoch)}*")
            self._has_published = True
        with _storage(self._path, "publishing files in"):
            for hidden_name, final_name in _committables(results):
                self._fs.mv(f"{self._root}/{hidden_name}", f"{self._root}/{final_name}")
                self._moved.add(final_name)
        self._moved.clear()
        marker = self._marker(epoch.query_id)
        try:
            mark = {"epoch": epoch.number, "offsets": epoch.offsets, "job": self._context.job}
            write_durably(self._fs, marker, SINK_MARK.dump(mark), shared=True)
        except Exception as error:
            raise CommitStateUnknownError(
                f"epoch {epoch.number} is published in {redact_uri(self._path)}, but its mark may not be: {error}",
                hint="start again: if the mark is missing, the epoch is repeated in its place",
            ) from error

    def abort(self, epoch: Epoch, results: Sequence[WriteResult]) -> None:
        # Another driver's files of the epoch have the same names: those of a published epoch stay.
        own = set() if not self._moved or self._is_marked(epoch) else self._moved
        for hidden_name, final_name in _committables(results):
            for name in (hidden_name, *own & {final_name}):
                _remove(self._fs, f"{self._root}/{name}")
        self._moved.clear()

    def _is_marked(self, epoch: Epoch) -> bool:
        last = self.last_epoch(epoch.query_id)
        return last is not None and last >= epoch.number

    def _clear(self, pattern: str) -> None:
        """Delete files that an earlier process left."""
        with _storage(self._path, "clearing"):
            for leftover in self._fs.glob(f"{_escaped(self._root)}/{pattern}"):
                self._fs.rm_file(leftover)

    def _marker(self, query_id: str) -> str:
        return f"{self._root}/{MARKERS}/{query_id}.json"


def _committables(results: Sequence[WriteResult]) -> list[tuple[str, str]]:
    """Return the hidden and final name of each file."""
    return [pair for result in results for pair in result.committables]


def _query_prefix(query_id: str) -> str:
    return query_id[:8]


def _final_prefix(epoch: Epoch) -> str:
    return f"{_query_prefix(epoch.query_id)}-epoch-{epoch.number:06}-"


def _escaped(path: str) -> str:
    """Return a glob that matches only this path."""
    return "".join(f"[{char}]" if char in "*?[" else char for char in path)


def _remove(files: Any, path: str) -> None:
    """Delete a file; ignore errors: a file that stays is hidden or will be replaced."""
    with suppress(Exception):
        files.rm_file(path)


@dataclass(frozen=True)
class _FileWriter(Writer):
    suits_driver: ClassVar[bool] = True
    path: str
    format: str
    schema: pa.Schema
    epoch: Epoch
    options: dict[str, Any] = field(repr=False)

    def open(self, task: int) -> _FileTaskWriter:
        return _FileTaskWriter(self, f"{_final_prefix(self.epoch)}{task:05}.{self.format}")


class _FileTaskWriter(TaskWriter):
    def __init__(self, writer: _FileWriter, final_name: str) -> None:
        self._writer = writer
        self._final_name = final_name
        self._hidden_name = f"{HIDDEN_PREFIX}{uuid.uuid4().hex}-{final_name}"
        self._fs, root = filesystem(writer.path, writer.options)
        self._path = posixpath.join(root, self._hidden_name)
        self._file: Any = None
        self._encoder: Any = None
        self._result = WriteResult()
        self._seconds = 0.0

    def check(self, batch: pa.RecordBatch) -> None:
        check_rows(self._writer.format, batch)

    def write(self, batch: pa.RecordBatch) -> None:
        began = time.perf_counter()
        self.check(batch)
        with _storage(self._path, "writing"):
            if self._file is None:
                self._file = self._fs.open(self._path, "wb")
                self._encoder = ENCODERS[self._writer.format](self._file, self._writer.schema)
            self._encoder.write_batch(batch)
        self._result = self._result.with_batch(batch.num_rows)
        self._seconds += time.perf_counter() - began

    def close(self) -> WriteResult:
        if self._file is None:
            return WriteResult()
        with _storage(self._path, "closing"):
            self._encoder.close()
            size = self._file.tell()
            self._file.close()
        pair = self._hidden_name, self._final_name
        return replace(self._result, bytes=size, seconds=self._seconds, files=1, committables=(pair,))

    def abort(self) -> None:
        if self._file is not None:
            with suppress(Exception):
                self._encoder.close()
            with suppress(Exception):
                self._file.close()
            _remove(self._fs, self._path)
