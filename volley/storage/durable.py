"""Writes small files so that a crash or a power loss leaves the old file or the new one, never a part."""

from __future__ import annotations

import errno
import os
import posixpath
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

from volley.storage.local import begin_file

__all__ = [
    "create_all_durably",
    "create_durably",
    "creation",
    "sync",
    "write_all_durably",
    "write_atomically",
    "write_durably",
]

_AT_ONCE = 16


def write_durably(files: Any, path: str, data: bytes, shared: bool = False) -> None:
    """Write a file under another name, force it to disk, then rename it; folders are made as needed.

    Object stores write a file whole or not at all, so the rename alone is kept there.

    Args:
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


def write_atomically(files: Any, path: str, data: bytes) -> None:
    """Write a private file like `write_durably`, without waiting for the disk: a power loss may take it.

    Raises:
        OSError: If the file can't be written.
    """
    if "file" not in files.protocol:
        files.pipe_file(path, data)
        return
    hidden = f"{path}.tmp"
    begin_file(files, hidden)
    files.pipe_file(hidden, data)
    files.mv(hidden, path)


def sync(files: Any, path: str) -> None:
    """Force a file or folder to disk; only a local file system needs it."""
    if "file" not in files.protocol:
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def create_durably(files: Any, path: str, data: bytes) -> bool:
    """Write a private file like `write_durably`, unless it exists: then it stays. Of several writers one succeeds.

    Returns:
        False if the file existed. An object store that was asked twice may say so of the caller's own.

    Raises:
        OSError: If the file can't be written.
    """
    return create_all_durably(files, {path: data}) == 1


def create_all_durably(files: Any, contents: Mapping[str, bytes], to_first_existing: bool = False) -> int:
    """Create private files of one folder like `create_durably`, in their order: a crash leaves the first ones.

    A local disk is waited for once for all files, and once for the folder.

    Args:
        to_first_existing: True: create none behind one that exists.

    Returns:
        How many files did not exist.

    Raises:
        OSError: If a file can't be written.
    """
    if "file" not in files.protocol:
        return _created(contents, to_first_existing, lambda path: _is_put(files, path, contents[path]))
    hidden = {path: f"{path}.{uuid.uuid4().hex}.tmp" for path in contents}
    try:
        _write_all(files, {hidden[path]: data for path, data in contents.items()})
        count = _created(contents, to_first_existing, lambda path: _is_linked(hidden[path], path))
    finally:
        for path in filter(os.path.exists, hidden.values()):
            files.rm_file(path)
    for folder in {posixpath.dirname(path) for path in contents}:
        sync(files, folder)
    return count


def _created(paths: Iterable[str], to_first_existing: bool, create: Callable[[str], bool]) -> int:
    count = 0
    for path in paths:
        if create(path):
            count += 1
        elif to_first_existing:
            break
    return count


def _is_put(files: Any, path: str, data: bytes) -> bool:
    """Create an object; return False if there is one. Object stores write a file whole or not at all."""
    files.makedirs(posixpath.dirname(path), exist_ok=True)
    try:
        with creation(files, path):
            files.pipe_file(path, data, mode="create")
    except FileExistsError:
        return False
    return True


def _is_linked(hidden: str, path: str) -> bool:
    """Give a file a second name; return False if the name is taken."""
    try:
        os.link(hidden, path)
    except FileExistsError:
        return False
    return True


def write_all_durably(files: Any, contents: Mapping[str, bytes]) -> None:
    """Write private files of one folder like `write_durably`; a local disk is waited for as in `create_all_durably`.

    Raises:
        OSError: If a file can't be written.
    """
    if "file" not in files.protocol or len(contents) < 2:
        for path, data in contents.items():
            write_durably(files, path, data)
        return
    _write_all(files, {f"{path}.tmp": data for path, data in contents.items()})
    for path in contents:
        files.mv(f"{path}.tmp", path)
    sync(files, posixpath.dirname(path))


def _write_all(files: Any, contents: Mapping[str, bytes]) -> None:
    for path, data in contents.items():
        begin_file(files, path)
        files.pipe_file(path, data)
    if len(contents) == 1:
        # Threads take longer to start than a small file to write.
        sync(files, *contents)
        return
    # A file system waits once for those that are synced at the same time.
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for _ in pool.map(partial(sync, files), contents):
            pass


@contextmanager
def creation(files: Any, path: str) -> Iterator[None]:
    """Raise FileExistsError if an object is not created because it exists.

    s3fs does so for the answer of AWS; from other servers the answer lacks the failed condition.

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
