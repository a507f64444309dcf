"""What the driver asks of a table's storage beside pyiceberg: the sizes of many files, what a folder holds."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, cast
from urllib.parse import urlsplit

from fsspec import AbstractFileSystem
from fsspec.asyn import AsyncFileSystem, sync
from pyiceberg.io import FileIO
from pyiceberg.io.fsspec import FsspecFileIO
from pyiceberg.table import Table, TableProperties

__all__ = ["data_folder", "file_system", "list_folder", "name_of", "sizes"]


def file_system(io: FileIO, location: str) -> AbstractFileSystem:
    """The fsspec file system that `io` reads and writes this location with."""
    url = urlsplit(location)
    return cast(FsspecFileIO, io).get_fs(url.scheme or "file", url.hostname if url.scheme.startswith("ab") else None)


def data_folder(table: Table) -> str:
    """The URL of the folder in which the table's data files are."""
    return table.properties.get(TableProperties.WRITE_DATA_PATH, f"{table.location().rstrip('/')}/data")


def name_of(path: str) -> str:
    """The last part of a path: Volley's data files and Iceberg's own carry a UUID there."""
    return path.rpartition("/")[2]


def sizes(files: AbstractFileSystem, paths: Sequence[str]) -> list[int | None]:
    """The size of each file in bytes; None where there is none."""
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
    """The files in a folder and below: their paths as fsspec writes them, and when each was last written."""
    files.invalidate_cache()
    try:
        found = files.find(folder, detail=True)
    finally:
        # What is asked next is asked of the storage, not of this listing.
        files.invalidate_cache()
    return {path: _modified(info) for path, info in found.items()}


def _modified(info: dict[str, Any]) -> datetime:
    # Each file system has a name of its own for it.
    value = next(info[key] for key in ("mtime", "LastModified", "last_modified", "updated") if info.get(key))
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    return value if isinstance(value, datetime) else datetime.fromtimestamp(value, UTC)
