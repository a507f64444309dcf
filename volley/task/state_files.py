"""Files of batches of a job's state by key on any fsspec storage: written whole or not at all, checked when read."""

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
from volley.storage.state_formats import STATE
from volley.store.batch_file import Batches, BatchFileWriter, Damaged, damage, open_batches

__all__ = ["OpenFile", "StateFile", "new_file", "open_file"]


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
def new_file(url: str, durable: bool = True) -> Iterator[BatchFileWriter]:
    """Write a file of batches under another name, then rename it; only if the block does not raise.

    Args:
        url: The file's URL.
        durable: True to force it to disk before it is renamed.

    Raises:
        StorageError: If it can't be written.
    """
    files, path = filesystem(url, {})
    hidden = f"{path}.{uuid.uuid4().hex}.tmp"
    try:
        begin_file(files, hidden)
        with files.open(hidden, "wb") as sink:
            writer = BatchFileWriter(sink, STATE)
            yield writer
            writer.close()
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


@dataclass(frozen=True)
class OpenFile:
    """An open file of states.

    Args:
        path: Its path, for errors.
        batches: Its batches.
    """

    path: str
    batches: Batches

    def batch(self, number: int) -> pa.RecordBatch:
        """Return a batch.

        Raises:
            StorageError: If it is damaged.
        """
        with _readable(self.path):
            return self.batches.batch(number)


def open_file(url: str, size: int | None = None) -> OpenFile:
    """Open a file of states.

    Args:
        url: The file's URL.
        size: The bytes that it must have; None = unknown.

    Raises:
        StorageError: If it is missing or damaged, or a newer Volley wrote it.
    """
    files, path = filesystem(url, {})
    with _readable(path):
        found = files.size(path)
        if size is not None and found != size:
            raise _damaged(path, f"has {found:,} bytes and not {size:,}")
        # Not mapped: the pages of a whole file would count as the worker's memory.
        source = pa.OSFile(path) if "file" in files.protocol else pa.PythonFile(files.open(path, "rb"), "r")
        return OpenFile(path, open_batches(source, STATE, path))


@contextmanager
def _readable(path: str) -> Iterator[None]:
    """Turn what a missing or damaged file raises into a StorageError."""
    try:
        with damage():
            yield
    except FileNotFoundError as error:
        raise _damaged(path, "is missing") from error
    except Damaged as error:
        raise _damaged(path, f"is damaged: {error}") from error


def _damaged(path: str, fault: str) -> StorageError:
    return StorageError(
        f"state {path} {fault}",
        hint="restore the checkpoint from a backup, or start over: fresh=True reads the sources from the beginning",
    )
