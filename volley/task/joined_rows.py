"""The rows of a joined table as files below the checkpoint: the driver writes them, the tasks map them.

``joins/<table>/<epoch>.json`` names the version of the table that the epoch is joined with, ``….files`` the files with
its rows: one, or one for each bucket of a table that is larger than memory.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
import uuid
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from volley.columns.join_index import JoinBuckets, JoinIndex
from volley.contracts.dimension import Version
from volley.errors import StorageError
from volley.storage.envelope import StateFormat
from volley.storage.local import temporary_folder
from volley.storage.paths import filesystem
from volley.storage.remembered import MALFORMED
from volley.storage.state_formats import JOIN_LIST, JOIN_PIN, JOIN_ROWS
from volley.store.files import open_file
from volley.task.worker import task_context

__all__ = [
    "EpochRows",
    "LoadedRows",
    "TableFile",
    "begin_epoch",
    "bucket_file",
    "digest",
    "list_file",
    "pin_file",
    "read_index",
    "read_list",
    "read_pin",
]

if TYPE_CHECKING:
    from pyspark import SparkContext

T = TypeVar("T")

_EPOCH = "volley.epoch"
_on_driver: ContextVar[int] = ContextVar(_EPOCH)


def begin_epoch(context: SparkContext, epoch: int) -> None:
    """Tell the number of the running epoch to tasks that join a table, those of Spark and those in this thread."""
    context.setLocalProperty(_EPOCH, str(epoch))
    _on_driver.set(epoch)


def digest(*parts: object) -> str:
    """Return a short name for values that are JSON or texts."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def pin_file(folder: str, epoch: int) -> str:
    """Return the URL of the file that names an epoch's version of a table."""
    return f"{folder}/{epoch}.json"


def list_file(folder: str, layout: str, version: Version) -> str:
    """Return the URL of the file that names the files of a version."""
    return f"{folder}/{layout}-{digest(version)}.files"


def bucket_file(folder: str, layout: str, version: Version, bits: int, bucket: int) -> str:
    """Return the URL of the file with the indexed rows of a bucket of a version."""
    return f"{folder}/{layout}-{digest(version)}-{bucket}-of-{1 << bits}.arrow"


@dataclass(frozen=True)
class TableFile:
    """A file with the indexed rows of a bucket.

    Args:
        name: Its name in the table's folder.
    """

    name: str
    size: int


def read_pin(folder: str, epoch: int) -> Version:
    """Return an epoch's version of a table.

    Raises:
        FileNotFoundError: If it has none.
        StorageError: If the file that names it is damaged.
    """
    version: Version = _parsed(pin_file(folder, epoch), JOIN_PIN, lambda value: value)
    return version


def read_list(url: str) -> list[TableFile]:
    """Return the files of a version, in the order of the buckets.

    Raises:
        FileNotFoundError: If it does not exist.
        StorageError: If it is damaged.
    """
    return _parsed(url, JOIN_LIST, lambda value: [TableFile(**file) for file in value])


def _parsed(url: str, format: StateFormat, parse: Callable[[Any], T]) -> T:
    files, path = filesystem(url, {})
    try:
        return parse(format.load(files.cat_file(path), path))
    except MALFORMED as error:
        raise StorageError(
            f"{path}, which tells with what an epoch joins a table, is damaged: {error}",
            hint="restore the checkpoint from a backup, or start over: fresh=True",
        ) from error


def read_index(url: str) -> JoinIndex:
    """Return the index that a file has; a local file is mapped.

    Raises:
        FileNotFoundError: If it does not exist.
        StorageError: If it is damaged, or a newer Volley wrote it.
    """
    return JoinIndex.of(open_file(url, JOIN_ROWS, _fault, mapped=True).batch(0))


def _fault(path: str, fault: str) -> StorageError:
    return StorageError(
        f"{path}, which has the rows of a joined table, {fault}",
        hint="delete it, then start the job again: it is copied or read again",
    )


@dataclass(frozen=True)
class LoadedRows:
    """The rows of a table in this process."""

    schema: pa.Schema
    loaded: Sequence[JoinIndex]

    def buckets(self) -> JoinBuckets:
        """Return the rows."""
        return JoinBuckets(_bits(self.loaded), self.loaded.__getitem__)


@dataclass(frozen=True)
class EpochRows:
    """The rows of a table that a task's epoch is joined with; picklable.

    Args:
        schema: The table's columns.
        folder: The URL of the table's folder.
        layout: The digest of the join's keys, columns and `max_bytes`.
        max_bytes: The most bytes of files that a process maps.
    """

    schema: pa.Schema
    folder: str
    layout: str
    max_bytes: int

    def buckets(self) -> JoinBuckets:
        """Return the rows of the running task's epoch.

        Raises:
            StorageError: If the checkpoint can't be read here; also when a bucket is loaded.
        """
        task = task_context()
        if task is None:
            files = _of_epoch(self.folder, self.layout, _on_driver.get())
        else:
            epoch = int(str(task.getLocalProperty(_EPOCH)))
            files = _of_task(self.folder, self.layout, epoch, task.taskAttemptId())
        mapped = _mapped(self.folder, self.layout, self.max_bytes)
        return JoinBuckets(
            _bits(files), lambda bucket: mapped.index(files, bucket), lambda bucket: mapped.has(files[bucket])
        )


def _bits(buckets: Sequence[object]) -> int:
    return len(buckets).bit_length() - 1


@lru_cache(maxsize=64)
def _of_task(folder: str, layout: str, epoch: int, task: int) -> list[TableFile]:
    """Return the files that the epoch is joined with: read once by each task, as another job may use the folder."""
    return _of_epoch(folder, layout, epoch)


def _of_epoch(folder: str, layout: str, epoch: int) -> list[TableFile]:
    try:
        return read_list(list_file(folder, layout, read_pin(folder, epoch)))
    except FileNotFoundError as error:
        raise _unreachable(folder) from error


class _MappedFiles:
    """The files of a join that this process maps: the last used ones, up to so many bytes, at least one."""

    def __init__(self, folder: str, max_bytes: int) -> None:
        self._folder = folder
        self._free = max_bytes
        self._indices: dict[TableFile, JoinIndex] = {}

    def has(self, file: TableFile) -> bool:
        """Return True if the process maps a file."""
        return file in self._indices

    def index(self, files: Sequence[TableFile], bucket: int) -> JoinIndex:
        """Return the index of a bucket.

        Raises:
            StorageError: If the file can't be read here.
        """
        file = files[bucket]
        index = self._indices.pop(file, None)
        if index is None:
            self._free -= file.size
            while self._free < 0 and self._indices:
                oldest = next(iter(self._indices))
                del self._indices[oldest]
                self._free += oldest.size
            index = _index_of(f"{self._folder}/{file.name}", {other.name for other in files})
        self._indices[file] = index
        return index


@lru_cache(maxsize=8)
def _mapped(folder: str, layout: str, max_bytes: int) -> _MappedFiles:
    """Return the files of a join in this process, of whatever version."""
    return _MappedFiles(folder, max_bytes)


def _index_of(url: str, current: set[str]) -> JoinIndex:
    """Return the index that a file has; this process maps a local file, also a copy of a remote one."""
    files, path = filesystem(url, {})
    try:
        local = path if "file" in files.protocol else _copied(files, path, current)
        return read_index(local)
    except FileNotFoundError as error:
        raise _unreachable(path) from error


def _copied(files: Any, path: str, current: set[str]) -> str:
    """Return the local copy of a remote file; the first process of a machine that needs it fetches it."""
    copies = temporary_folder() / "joins"
    copies.mkdir(mode=0o700, exist_ok=True)
    folder, name = posixpath.split(path)
    local = copies / f"{digest(folder)}-{name}"
    if not local.exists():
        hidden = copies / f"{uuid.uuid4().hex}.tmp"
        files.get_file(path, str(hidden))
        hidden.replace(local)
        # Processes that have mapped an older version keep it.
        layout = name.partition("-")[0]
        kept = {f"{digest(folder)}-{current_name}" for current_name in current}
        for older in copies.glob(f"{digest(folder)}-{layout}-*"):
            if older.name not in kept:
                older.unlink(missing_ok=True)
    return str(local)


def _unreachable(path: str) -> StorageError:
    return StorageError(
        f"an executor can't find {path}, which has the rows of a joined table",
        hint="the checkpoint_dir of a job that joins a table must be a folder that all executors reach",
    )
