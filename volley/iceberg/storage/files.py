"""What pyiceberg's storage lacks: sizes of many files, listings, deletion of many files, uploads in the background."""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from itertools import count
from typing import Any, NamedTuple, cast

from fsspec import AbstractFileSystem
from fsspec.asyn import AsyncFileSystem, sync
from fsspec.core import strip_protocol
from fsspec.implementations.local import LocalFileSystem
from fsspec.spec import AbstractBufferedFile
from pyiceberg.io import FileIO
from pyiceberg.table import Table, TableProperties

from volley.iceberg.pyiceberg_private.access import file_system
from volley.iceberg.storage.errors import storage_error
from volley.secrets import redact
from volley.storage.paths import modified_time
from volley.task.failpoints import reach

__all__ = [
    "ListedFile",
    "Upload",
    "data_folder",
    "delete_files",
    "delete_new_files",
    "deletion_error",
    "file_system",
    "files_of_table",
    "is_there",
    "list_folder",
    "listed_files",
    "name_of",
    "remove_empty_folders",
    "sizes",
    "uploaded",
]

_log = logging.getLogger(__name__)

_THREADS = 16
# The most keys of one DeleteObjects request.
_CHUNK = 1000
FilesOf = Callable[[str], AbstractFileSystem]
_PART_BYTES = 16 << 20
_WAITING_BYTES = 32 << 20


class ListedFile(NamedTuple):
    """A file of a folder.

    Args:
        path: Its path as fsspec writes it.
        size: Its size in bytes.
        written: When it was last written; now, if its file system does not report it.
    """

    path: str
    size: int
    written: datetime


def is_there(io: FileIO, path: str) -> bool:
    """Return True if a file exists; pyiceberg's own ``exists`` finds no local file by its URL."""
    return bool(file_system(io, path).exists(path))


def data_folder(table: Table) -> str:
    """Return the URL of the folder of the table's data files."""
    return table.properties.get(TableProperties.WRITE_DATA_PATH, f"{table.location().rstrip('/')}/data")


def files_of_table(table: Table) -> FilesOf:
    """Return what gives the file system of a table's path or folder: its data files may lie in a place of their own."""
    places = (table.location(), data_folder(table))
    known = {str(strip_protocol(place)).rstrip("/"): file_system(table.io, place) for place in places}
    own, *_ = known

    def of(path: str) -> AbstractFileSystem:
        plain = f"{strip_protocol(path)}/"
        return known[max((place for place in known if plain.startswith(f"{place}/")), key=len, default=own)]

    return of


def name_of(path: str) -> str:
    """Return the last part of a path; it has a UUID in data files of Volley and of other Iceberg writers."""
    return path.rpartition("/")[2]


def sizes(files: AbstractFileSystem, paths: Sequence[str]) -> list[int | None]:
    """Return the size of each file in bytes; None for a file that does not exist."""
    if isinstance(files, AsyncFileSystem):
        return cast(list[int | None], sync(files.loop, _sizes, files, paths))
    return [_size(files, path) for path in paths]


def _size(files: AbstractFileSystem, path: str) -> int | None:
    try:
        return int(files.info(path)["size"])
    except FileNotFoundError:
        return None


async def _sizes(files: Any, paths: Sequence[str]) -> list[int | None]:
    async def size(path: str) -> int | None:
        try:
            return int((await files._info(path))["size"])
        except FileNotFoundError:
            return None

    return list(await asyncio.gather(*map(size, paths)))


def list_folder(files: AbstractFileSystem, folder: str) -> dict[str, datetime]:
    """Return the files below a folder: their paths as fsspec writes them, and when each was last written.

    A file without a time counts as written now, so that it is never taken for an old orphan.
    """
    files.invalidate_cache()
    try:
        details = files.find(folder, detail=True)
    finally:
        # Later calls must query the storage, not the cache of this listing.
        files.invalidate_cache()
    return {path: _written(info) for path, info in details.items()}


def listed_files(files: AbstractFileSystem, folder: str) -> Iterator[ListedFile]:
    """Yield the files below a folder; on a local disk, what is in memory does not grow with their number.

    A file without a time counts as written now, so that it is never taken for an old orphan.
    """
    if isinstance(files, LocalFileSystem):
        yield from _local_files(folder)
        return
    files.invalidate_cache()
    try:
        details = files.find(folder, detail=True)
    finally:
        # Later calls must query the storage, not the cache of this listing.
        files.invalidate_cache()
    while details:
        path, info = details.popitem()
        yield ListedFile(path, int(info.get("size") or 0), _written(info))


def _local_files(folder: str) -> Iterator[ListedFile]:
    if not os.path.isdir(folder):
        return
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _local_files(entry.path)
            else:
                details = entry.stat(follow_symlinks=False)
                yield ListedFile(entry.path, details.st_size, datetime.fromtimestamp(details.st_mtime, UTC))


def _written(info: dict[str, Any]) -> datetime:
    seconds = modified_time(info)
    return datetime.now(UTC) if seconds is None else datetime.fromtimestamp(seconds, UTC)


def delete_files(
    files_of: FilesOf, paths: Sequence[str], may_go_on: Callable[[], bool] = lambda: True
) -> tuple[int, dict[str, Exception]]:
    """Delete files in chunks, in their order. A file that is gone counts as deleted.

    Args:
        files_of: Returns the file system of a path.
        paths: Their paths or URLs, as that file system takes them; a ``*`` in one stands for itself.
        may_go_on: Asked before each chunk; False ends the deletion.

    Returns:
        The number of files, from the first on, that were to be deleted by then, and the exception for each of them
        that can't be deleted.
    """
    failures: dict[str, Exception] = {}
    with ThreadPoolExecutor(_THREADS) as pool:
        for start in range(0, len(paths), _CHUNK):
            if not may_go_on():
                return start, failures
            chunk = paths[start : start + _CHUNK]
            remaining = _remaining_on_s3(files_of(chunk[0]), chunk)
            outcomes = pool.map(partial(_delete, files_of), remaining, count(start + 1))
            failures |= {path: failure for path, failure in zip(remaining, outcomes, strict=True) if failure}
    return len(paths), failures


def delete_new_files(io: FileIO, paths: Iterable[str]) -> None:
    """Delete files that no snapshot refers to; one that can't be deleted stays as an orphan."""
    for path in paths:
        try:
            # Missing files are no orphans: a routed sink deletes those of a table's failed commit twice.
            with suppress(FileNotFoundError):
                io.delete(path)
        except Exception:
            _log.warning("orphan file left behind: %s", path, exc_info=True)


def deletion_error(error: Exception, path: str) -> str:
    """Return the reason for which a file can't be deleted, without secrets."""
    translated = storage_error(error, path, "deleting")
    return translated.message if translated else redact(str(error)) or type(error).__name__


def _delete(files_of: FilesOf, path: str, number: int) -> Exception | None:
    """Delete the file with this number; return the exception if it can't be deleted."""
    failure = _failure(files_of, path)
    reach("in-deletion", number)
    return failure


def _failure(files_of: FilesOf, path: str) -> Exception | None:
    try:
        # Not `rm`: it would take * and [ in a path for a pattern.
        files_of(path).rm_file(path)
    except FileNotFoundError:
        pass
    except Exception as error:
        return error
    return None


def _remaining_on_s3(files: Any, paths: Sequence[str]) -> Sequence[str]:
    """Delete files by one request; return those that it has not deleted: all, if there is no such request.

    Not `rm` of s3fs: it takes * for a pattern, and reports no failures.
    """
    if "s3" not in files.protocol:
        return paths
    by_key = {files.split_path(path)[:2]: path for path in paths}
    buckets = {bucket for bucket, _ in by_key}
    if len(buckets) > 1:
        return paths
    (bucket,) = buckets
    request = {"Objects": [{"Key": key} for _, key in by_key], "Quiet": True}
    try:
        answer = files.call_s3("delete_objects", Bucket=bucket, Delete=request)
    except Exception:
        return paths
    return [by_key[bucket, failure["Key"]] for failure in answer.get("Errors", ())]


def remove_empty_folders(files: AbstractFileSystem, location: str) -> None:
    """Remove the folders of partitions that have no files any more: their names are values. Object stores have none."""
    if not isinstance(files, LocalFileSystem):
        return
    for folder, _, _ in os.walk(str(strip_protocol(location)), topdown=False):
        if "=" in os.path.basename(folder):
            with suppress(OSError):  # it is not empty
                os.rmdir(folder)


def uploaded(stream: Any) -> Any:
    """Return the stream to write a file to: a local stream unchanged, else one that uploads parts in the background.

    Args:
        stream: The file as fsspec opened it.
    """
    if not isinstance(stream, AbstractBufferedFile):
        return stream
    # Some clients buffer 50 MB before they send anything: a file of usual size would be sent only when it is closed.
    stream.blocksize = _PART_BYTES
    return Upload(stream)


class Upload:
    """Writes to a stream in order, in a thread of its own.

    At most `waiting` bytes are queued: `write` blocks beyond that. An error is raised by the next `write`, or by
    `close`.

    Args:
        waiting: The maximum number of queued bytes, besides those of one write.
    """

    def __init__(self, stream: Any, waiting: int = _WAITING_BYTES) -> None:
        self._stream = stream
        self._limit = waiting
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="volley-upload")
        self._queue: deque[tuple[Future[Any], int]] = deque()
        self._waiting = 0
        self._written = 0
        self._failed = False
        self.closed = False

    def write(self, data: Any) -> int:
        """Queue bytes, or a buffer that is not changed afterwards; return their number."""
        size = memoryview(data).nbytes
        self._wait(self._limit)
        self._queue.append((self._thread.submit(self._send, data), size))
        self._waiting += size
        self._written += size
        return size

    def tell(self) -> int:
        """Return how many bytes were written so far."""
        return self._written

    def close(self) -> None:
        """Wait until all bytes are uploaded."""
        if self.closed:
            return
        self.closed = True
        try:
            self._wait(0)
        finally:
            self._thread.shutdown(cancel_futures=True)
            self._stream.close()

    def _send(self, data: Any) -> None:
        """Write to the stream, in the thread; skip everything after a failed write."""
        if self._failed:
            return
        try:
            self._stream.write(data)
        except BaseException:
            self._failed = True
            raise

    def _wait(self, limit: int) -> None:
        """Wait until at most this many bytes are queued; raise the error of a failed write."""
        while self._queue and (self._waiting > limit or self._queue[0][0].done()):
            future, size = self._queue.popleft()
            self._waiting -= size
            future.result()
