"""Finds orphan files: lists a table's folders, and compares them with the files that its metadata names."""

from __future__ import annotations

import re
import time
from array import array
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime
from typing import Any

import numpy as np
from fsspec import AbstractFileSystem
from fsspec.core import strip_protocol
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table

from volley.errors import ConfigError
from volley.iceberg.maintain.unneeded import check_whole
from volley.iceberg.maintain.values import OrphanFiles
from volley.iceberg.read.entries import entries_of
from volley.iceberg.storage.errors import storage_errors
from volley.iceberg.storage.files import ListedFile, data_folder, file_system, listed_files, name_of

__all__ = ["find_orphans"]

_THREADS = 16
# The uuid is one of the first fields of a metadata file, which may have megabytes of snapshots.
_HEAD_BYTES = 4096
_UUID = re.compile(rb'"table-uuid"\s*:\s*"([^"]+)"')
_METADATA = (".metadata.json", ".metadata.json.gz")


def find_orphans(table: Table, before: datetime) -> OrphanFiles:
    """Return the files in a table's folders that were last written before a time and that no snapshot refers to.

    Args:
        table: The table; it is refreshed.
        before: The time.

    Raises:
        ConfigError: If another table has its metadata in the same folder.
        CatalogError: If the catalog does not show all snapshots.
        StorageError: If a folder can't be listed, or a manifest can't be read.
    """
    began = time.monotonic()
    check_whole(table)
    with storage_errors(table.location(), "listing"):
        files = file_system(table.io, table.location())
        needed = _Names(_needed(table))
        orphans: list[ListedFile] = []
        others: set[str] = set()
        for folder in _folders(table):
            for file in listed_files(files, folder):
                if file.path.endswith(_METADATA) and name_of(file.path) not in needed:
                    others.add(file.path)
                if file.written < before and name_of(file.path) not in needed:
                    orphans.append(file)
        # What was committed during the listing is needed as well.
        if table.metadata_location != table.refresh().metadata_location:
            check_whole(table)
            needed = _Names(_needed(table))
        nested = _nested(files, table, others, needed)
    inside = tuple(f"{folder}/" for folder in nested)
    orphans = [file for file in orphans if name_of(file.path) not in needed and not file.path.startswith(inside)]
    orphans.sort()
    return OrphanFiles(
        [file.path for file in orphans],
        [file.size for file in orphans],
        time.monotonic() - began,
        nested,
    )


def _folders(table: Table) -> list[str]:
    """Return the folders of the table, without those that are inside another one."""
    folders = {_plain(folder) for folder in (table.location(), data_folder(table))}
    return [folder for folder in folders if not any(folder.startswith(f"{other}/") for other in folders)]


def _plain(path: str) -> str:
    """Return a location as fsspec writes it."""
    return str(strip_protocol(path)).rstrip("/")


def _nested(files: AbstractFileSystem, table: Table, others: Iterable[str], needed: _Names) -> tuple[str, ...]:
    """Return the folders of other tables inside the table's folders.

    Args:
        others: Metadata files that the table did not name before they were listed.
        needed: The names of the files that the table names.

    Raises:
        ConfigError: If a metadata file of another table is where this table has its own.
    """
    log = (entry.metadata_file for entry in table.metadata.metadata_log)
    paths = (table.metadata_location, *log, f"{table.location().rstrip('/')}/metadata/")
    own = {_plain(path.rpartition("/")[0]) for path in paths}
    others = [path for path in others if name_of(path) not in needed]
    _check_alone(files, table, [path for path in others if path.rpartition("/")[0] in own])
    folders = {path.rpartition("/")[0] for path in others} - own
    return tuple(sorted({folder.removesuffix("/metadata") for folder in folders}))


def _check_alone(files: AbstractFileSystem, table: Table, others: Iterable[str]) -> None:
    """Raise ConfigError if one of some metadata files is another table's: old ones of this table are orphans."""
    with ThreadPoolExecutor(_THREADS) as pool:
        for path, uuid in pool.map(lambda path: (path, _uuid(files, path)), others):
            if uuid not in (None, str(table.metadata.table_uuid)):
                raise ConfigError(
                    f"orphan files of table {'.'.join(table.name())} can't be told from files of another table in the "
                    f"same folder: {path} is of the table with the uuid {uuid}",
                    hint="delete the files of that table if it was dropped; else one of the two has to move",
                )


def _uuid(files: AbstractFileSystem, path: str) -> str | None:
    with suppress(FileNotFoundError):
        match = None if path.endswith(".gz") else _UUID.search(files.cat_file(path, 0, _HEAD_BYTES))
        if match is None:
            with files.open(path, compression="infer") as stream:
                match = _UUID.search(stream.read())
        return match and match[1].decode()
    return None


class _Names:
    """A set of names: eight bytes for each, of a million as of ten.

    A name that is not in it may seem to be, once in some 10^13 of a million: an orphan stays then.

    Args:
        paths: Paths, of which the names count: the same file may be written in several ways.
    """

    def __init__(self, paths: Iterable[str]) -> None:
        self._hashes: np.ndarray[Any, np.dtype[np.int64]] = np.unique(
            np.frombuffer(array("q", (hash(name_of(path)) for path in paths)), np.int64)
        )

    def __contains__(self, name: str) -> bool:
        number = hash(name)
        at = int(np.searchsorted(self._hashes, number))
        return at < len(self._hashes) and int(self._hashes[at]) == number


def _needed(table: Table) -> Iterator[str]:
    """Yield every file that a snapshot, the metadata or its log refers to."""
    metadata = table.metadata
    yield table.metadata_location
    yield "version-hint.text"
    yield from (entry.metadata_file for entry in metadata.metadata_log)
    yield from (file.statistics_path for file in (*metadata.statistics, *metadata.partition_statistics))
    manifests: dict[str, ManifestFile] = {}
    for snapshot in metadata.snapshots:
        yield snapshot.manifest_list
        manifests |= {manifest.manifest_path: manifest for manifest in snapshot.manifests(table.io)}
    yield from manifests
    for manifest in manifests.values():
        yield from (entry.path for entry in entries_of(table.io, manifest) if entry.is_live)
