"""Files of batches below a checkpoint, on any fsspec storage: written whole or not at all, checked when read."""

from __future__ import annotations

import posixpath
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import pyarrow as pa

from volley.errors import StorageError
from volley.storage.durable import sync
from volley.storage.envelope import Format
from volley.storage.local import no_room
from volley.storage.paths import filesystem
from volley.storage.private import begin_file
from volley.store.batch_file import Batches, BatchFileWriter, Damaged, damage, open_batches

__all__ = ["Fault", "OpenFile", "checked", "new_file", "open_file"]

Fault = Callable[[str, str], StorageError]
"""Makes the error for a file, given its path, and its fault as a clause, such as ``"is damaged"``."""


@contextmanager
def new_file(
    url: str, format: Format, durable: bool = True, options: pa.ipc.IpcWriteOptions | None = None
) -> Iterator[BatchFileWriter]:
    """Write a private file under another name, then rename it; only if the block does not raise.

    Args:
        url: The file's URL.
        format: Its format.
        durable: True to force it to disk before it is renamed.
        options: How its batches are written: compressed, say.

    Raises:
        StorageError: If it can't be written.
    """
    files, path = filesystem(url, {})
    hidden = f"{path}.{uuid.uuid4().hex}.tmp"
    writer = None
    try:
        begin_file(files, hidden)
        with files.open(hidden, "wb") as sink:
            writer = BatchFileWriter(sink, format, options)
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
            raise no_room(path, writer.size if writer else 0, error) from error
        raise


@dataclass(frozen=True)
class OpenFile:
    """An open file.

    Args:
        path: Its path.
        batches: Its batches.
        fault: Makes the error for it.
    """

    path: str
    batches: Batches
    fault: Fault

    def __len__(self) -> int:
        return len(self.batches)

    def batch(self, number: int) -> pa.RecordBatch:
        """Return a batch.

        Raises:
            StorageError: If it is damaged.
        """
        with checked(self.path, self.fault):
            return self.batches.batch(number)


def open_file(url: str, format: Format, fault: Fault, size: int | None = None, mapped: bool = False) -> OpenFile:
    """Open a file.

    Args:
        url: The file's URL.
        format: Its format.
        fault: Makes the error for a damaged file.
        size: The bytes that it must have; None = unknown.
        mapped: True to map a local file, and to fetch any other whole; False to read a batch at a time. The pages of
            a mapped file count as the process's memory.

    Raises:
        FileNotFoundError: If there is none.
        StorageError: If it is damaged, or a newer Volley wrote it.
    """
    files, path = filesystem(url, {})
    is_local = "file" in files.protocol
    with checked(path, fault):
        found = files.size(path)
        if size is not None and found != size:
            raise fault(path, f"has {found:,} bytes and not {size:,}")
        if mapped:
            source = pa.memory_map(path) if is_local else pa.BufferReader(files.cat_file(path))
        else:
            source = pa.OSFile(path) if is_local else pa.PythonFile(files.open(path, "rb"), "r")
        return OpenFile(path, open_batches(source, format, path), fault)


@contextmanager
def checked(path: str, fault: Fault) -> Iterator[None]:
    """Turn what a damaged file raises into the error for it."""
    try:
        with damage():
            yield
    except Damaged as error:
        raise fault(path, f"is damaged: {error}") from error
