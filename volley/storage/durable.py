"""Writes small files so that a crash or a power loss leaves the old file or the new one, never a part."""

from __future__ import annotations

import errno
import os
import posixpath
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from volley.storage.private import begin_file

__all__ = ["create_durably", "creation", "sync", "write_durably"]


def write_durably(files: Any, path: str, data: bytes, shared: bool = False) -> None:
    """Write a file under another name, force it to disk, then rename it; folders are made as needed.

    Object stores write a file whole or not at all, so the rename alone is kept there.

    Args:
        files: The fsspec file system.
        path: The file's path in it.
        data: The file's bytes.
        shared: False: on local disk no other user may read the file or enter a new folder; True = as the umask says.

    Raises:
        OSError: If the file can't be written.
    """
    hidden = f"{path}.tmp"
    if shared:
        files.makedirs(posixpath.dirname(path), exist_ok=True)
    else:
        begin_file(files, hidden)
    files.pipe_file(hidden, data)
    sync(files, hidden)
    files.mv(hidden, path)
    sync(files, posixpath.dirname(path))


def sync(files: Any, path: str) -> None:
    """Force a file or folder to disk; only a local file system needs it.

    Args:
        files: The fsspec file system.
        path: The path in it.
    """
    if "file" not in files.protocol:
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def create_durably(files: Any, path: str, data: bytes) -> None:
    """Write a private file like `write_durably`, unless it exists: then it stays. Of several writers one succeeds.

    Args:
        files: The fsspec file system.
        path: The file's path in it.
        data: The file's bytes.

    Raises:
        OSError: If the file can't be written.
    """
    folder = posixpath.dirname(path)
    if "file" not in files.protocol:
        files.makedirs(folder, exist_ok=True)
        # Object stores write a file whole or not at all.
        with suppress(FileExistsError), creation(files, path):
            files.pipe_file(path, data, mode="create")
        return
    hidden = f"{path}.{uuid.uuid4().hex}.tmp"
    begin_file(files, hidden)
    try:
        files.pipe_file(hidden, data)
        sync(files, hidden)
        with suppress(FileExistsError):
            os.link(hidden, path)
    finally:
        files.rm_file(hidden)
    sync(files, folder)


@contextmanager
def creation(files: Any, path: str) -> Iterator[None]:
    """Raise FileExistsError if an object is not created because it exists.

    s3fs does so for the answer of AWS; from other servers the answer lacks the failed condition.

    Args:
        files: The fsspec file system.
        path: The object's path in it.

    Raises:
        FileExistsError: If the object exists.
        OSError: If it can't be written.
    """
    try:
        yield
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        files.invalidate_cache()
        if not files.exists(path):
            raise
        raise FileExistsError(errno.EEXIST, "the object exists", path) from error
