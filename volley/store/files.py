"""Files of batches below a checkpoint, on any fsspec storage: written whole or not at all, checked when read."""

from __future__ import annotations

import os
import posixpath
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import fsspec
import pyarrow as pa

from volley.errors import StorageError, VolleyError
from volley.storage.durable import creation, sync
from volley.storage.envelope import StateFormat
from volley.storage.local import begin_file, make_folder, no_room
from volley.storage.paths import filesystem
from volley.store.batch_file import Batches, BatchFileWriter, Damaged, damage, open_batches

__all__ = ["COMPRESSED", "Fault", "NewFile", "OpenFile", "checked", "new_file", "open_file"]

COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4")

Fault = Callable[[str, str], VolleyError]
"""Makes the error for a file, given its path, and its fault as a clause, such as ``"is damaged"``."""


class NewFile:
    """A private file of batches, which has another name until it is published.

    Args:
        options: How its batches are written: compressed, say.
        exclusive: True: of several writers one succeeds; False: the last one does.

    Raises:
        OSError: If it can't be made.
    """

    def __init__(
        self, url: str, format: StateFormat, options: pa.ipc.IpcWriteOptions | None = None, exclusive: bool = False
    ) -> None:
        self._files, self.path = filesystem(url, {})
        self._exclusive = exclusive
        folder, name = posixpath.split(self.path)
        # An object is created exclusively from a file of this machine, not from another object.
        is_local = "file" in self._files.protocol
        self._place = self._files if is_local or not exclusive else fsspec.filesystem("file")
        place = folder if self._place is self._files else tempfile.gettempdir()
        self._hidden = f"{place}/{name}.{uuid.uuid4().hex}.tmp"
        if self._place is not self._files:
            make_folder(self._files, folder)
        begin_file(self._place, self._hidden)
        self._stream = self._place.open(self._hidden, "wb")
        self._batches = BatchFileWriter(self._stream, format, options)
        self.write_batch = self._batches.write_batch

    @property
    def size(self) -> int:
        """The bytes that were written."""
        return self._batches.size

    def publish(self, end: Mapping[str, object] | None = None, durable: bool = True) -> None:
        """Give the file its name.

        Args:
            end: What `OpenFile.end` returns: values of JSON.
            durable: True to force it to disk first, and the folder then.

        Raises:
            FileExistsError: If it is exclusive, and another one has the name.
            OSError: If it can't be written.
        """
        self._batches.close(end)
        self._stream.close()
        if durable:
            sync(self._place, self._hidden)
        if self._exclusive:
            self._create()
        else:
            self._files.mv(self._hidden, self.path)
        if durable:
            sync(self._files, posixpath.dirname(self.path))

    def discard(self) -> None:
        """Delete what was written, unless it is published."""
        # It writes its last bytes, which fails on a full disk; the file is deleted anyway.
        with suppress(Exception):
            self._stream.close()
        with suppress(Exception):
            self._place.rm(self._hidden)

    def _create(self) -> None:
        try:
            if self._place is self._files:
                os.link(self._hidden, self.path)
            else:
                with creation(self._files, self.path):
                    self._files.put_file(self._hidden, self.path, mode="create")
        finally:
            self._place.rm_file(self._hidden)


@contextmanager
def new_file(
    url: str, format: StateFormat, durable: bool = True, options: pa.ipc.IpcWriteOptions | None = None
) -> Iterator[NewFile]:
    """Write a file, and publish it if the block does not raise.

    Raises:
        StorageError: If it can't be written.
    """
    file = None
    try:
        file = NewFile(url, format, options)
        yield file
        file.publish(durable=durable)
    except BaseException as error:
        if file is not None:
            file.discard()
        if isinstance(error, OSError):
            raise no_room(filesystem(url, {})[1], file.size if file else 0, error) from error
        raise


@dataclass(frozen=True)
class OpenFile:
    """An open file, whose `fault` makes the error for it."""

    path: str
    batches: Batches
    fault: Fault

    @property
    def end(self) -> Mapping[str, Any]:
        """What was told when it was published."""
        with checked(self.path, self.fault):
            return self.batches.end

    def __len__(self) -> int:
        return len(self.batches)

    def batch(self, number: int) -> pa.RecordBatch:
        """Return a batch.

        Raises:
            VolleyError: That of `fault`, if it is damaged.
        """
        with checked(self.path, self.fault):
            return self.batches.batch(number)


def open_file(url: str, format: StateFormat, fault: Fault, size: int | None = None, mapped: bool = False) -> OpenFile:
    """Open a file.

    Args:
        fault: Makes the error for a damaged file.
        size: The bytes that it must have; None = unknown.
        mapped: True to map a local file, and to fetch any other whole; False to read a batch at a time. The pages of
            a mapped file count as the process's memory.

    Raises:
        FileNotFoundError: If there is none.
        VolleyError: That of `fault`, if it is damaged.
        StorageError: If a newer Volley wrote it.
    """
    files, path = filesystem(url, {})
    is_local = "file" in files.protocol
    with checked(path, fault):
        if size is not None and (actual := files.size(path)) != size:
            raise fault(path, f"has {actual:,} bytes and not {size:,}")
        if mapped:
            source = pa.memory_map(path) if is_local else pa.BufferReader(files.cat_file(path))
        else:
            source = pa.OSFile(path) if is_local else pa.PythonFile(files.open(path, "rb"), "r")
        return OpenFile(path, open_batches(source, format, path), fault)


@contextmanager
def checked(path: str, fault: Fault) -> Iterator[None]:
    """Turn what a damaged file raises into the error for it.

    Raises:
        StorageError: If the file can't be reached.
    """
    try:
        with damage():
            yield
    except Damaged as error:
        raise fault(path, f"is damaged: {error}") from error
    except FileNotFoundError:
        raise
    except OSError as error:
        hint = "check the storage and who may read there, then start the job again: nothing is lost"
        raise StorageError(f"{path} can't be read: {error}", hint=hint) from error
