"""Arrow files of a job's state by key on any fsspec storage: written whole or not at all, checked when read."""

from __future__ import annotations

import posixpath
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import pyarrow as pa

from volley.errors import StorageError
from volley.storage.durable import sync
from volley.storage.paths import filesystem
from volley.storage.private import begin_file

__all__ = ["StateFile", "new_file", "open_file"]


@dataclass(frozen=True)
class StateFile:
    """A file with the states of some buckets: a batch for each of them.

    Args:
        url: Its URL.
        first: The first bucket.
        buckets: The number of buckets.
        size: Its bytes.
    """

    url: str
    first: int
    buckets: int
    size: int

    def batch_of(self, bucket: int) -> int | None:
        """Return the number of a bucket's batch; None if the bucket is in another file."""
        number = bucket - self.first
        return number if 0 <= number < self.buckets else None


@contextmanager
def new_file(url: str, schema: pa.Schema, durable: bool = True) -> Iterator[pa.RecordBatchFileWriter]:
    """Write an Arrow file under another name, then rename it; only if the block does not raise.

    Args:
        url: The file's URL.
        schema: The schema of its batches.
        durable: True to force it to disk before it is renamed.

    Raises:
        StorageError: If it can't be written.
    """
    files, path = filesystem(url, {})
    hidden = f"{path}.{uuid.uuid4().hex}.tmp"
    try:
        begin_file(files, hidden)
        with files.open(hidden, "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
            yield writer
        if durable:
            sync(files, hidden)
        files.mv(hidden, path)
        if durable:
            sync(files, posixpath.dirname(path))
    except BaseException as error:
        with suppress(Exception):
            files.rm(hidden)
        if isinstance(error, OSError):
            raise StorageError(
                f"state {path} can't be written: {error}",
                hint="make room there, or check that it can be written, and start the job again: nothing is lost",
            ) from error
        raise


def open_file(url: str, size: int | None = None) -> pa.RecordBatchFileReader:
    """Open an Arrow file.

    Args:
        url: The file's URL.
        size: The bytes that it must have; None = unknown.

    Raises:
        StorageError: If it is missing or damaged.
    """
    files, path = filesystem(url, {})
    try:
        found = files.size(path)
        if size is not None and found != size:
            raise _damaged(path, f"has {found:,} bytes and not {size:,}")
        # Not mapped: the pages of a whole file would count as the worker's memory.
        source = pa.OSFile(path) if "file" in files.protocol else files.open(path, "rb")
        return pa.ipc.open_file(source)
    except FileNotFoundError as error:
        raise _damaged(path, "is missing") from error
    except (OSError, pa.ArrowInvalid) as error:
        raise _damaged(path, f"can't be read: {error}") from error


def _damaged(path: str, fault: str) -> StorageError:
    return StorageError(
        f"state {path} {fault}",
        hint="restore the checkpoint from a backup, or start over: fresh=True reads the sources from the beginning",
    )
