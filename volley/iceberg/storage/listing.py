"""Storage queries that pyiceberg lacks: sizes of many files at once, folder listings."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple, cast
from urllib.parse import urlsplit

from fsspec import AbstractFileSystem
from fsspec.asyn import AsyncFileSystem, sync
from fsspec.implementations.local import LocalFileSystem
from pyiceberg.io import FileIO
from pyiceberg.io.fsspec import FsspecFileIO
from pyiceberg.table import Table, TableProperties

from volley.storage.listing import modified_time

__all__ = ["ListedFile", "data_folder", "file_system", "list_folder", "listed_files", "name_of", "sizes"]


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


def file_system(io: FileIO, location: str) -> AbstractFileSystem:
    """Return the fsspec file system with which `io` reads and writes this location."""
    url = urlsplit(location)
    return cast(FsspecFileIO, io).get_fs(url.scheme or "file", url.hostname if url.scheme.startswith("ab") else None)


def data_folder(table: Table) -> str:
    """Return the URL of the folder of the table's data files."""
    return table.properties.get(TableProperties.WRITE_DATA_PATH, f"{table.location().rstrip('/')}/data")


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
