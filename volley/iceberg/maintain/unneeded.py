"""Finds files that no snapshot needs: those of expired snapshots, and orphans in a table's folders."""

from __future__ import annotations

import posixpath
import re
import time
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any

import numpy as np
from fsspec import AbstractFileSystem
from fsspec.core import strip_protocol
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from volley.columns.keys.search import distinct_numbers
from volley.errors import CatalogError, ConfigError, StorageError
from volley.iceberg.maintain.values import OrphanFiles
from volley.iceberg.pyiceberg_private.access import checks_itself
from volley.iceberg.pyiceberg_private.foreign import read_metadata
from volley.iceberg.pyiceberg_private.server_plans import check_planned_here
from volley.iceberg.read.entries import entries_of
from volley.iceberg.storage.errors import storage_errors
from volley.iceberg.storage.files import ListedFile, data_folder, files_of_table, listed_files, name_of

__all__ = ["METADATA", "check_own_files", "check_whole", "find_orphans", "is_inside", "owns_files", "unneeded_files"]

_THREADS = 16
_SCHEMES = {"s3a": "s3", "s3n": "s3", "abfs": "abfss"}


def owns_files(table: Table) -> bool:
    """Return False if other tables may need a table's files, as its property ``gc.enabled`` says."""
    return table.properties.get("gc.enabled", "true").lower() != "false"


def check_own_files(table: Table, what: str, done: str) -> None:
    """Raise ConfigError if other tables may need a table's files, or its catalog plans what is read of them."""
    check_planned_here(table.io, f"the files of table {'.'.join(table.name())}")
    if not owns_files(table):
        raise ConfigError(
            f"{what} of table {'.'.join(table.name())} can't be {done}: its property gc.enabled is false, since "
            "other tables may need its files",
            hint="set gc.enabled to true if none does",
        )


def check_whole(table: Table) -> None:
    """Raise an error unless a table was loaded with all its snapshots: the files of others would be deleted.

    A REST catalog may show some snapshots only, whatever it is asked for; the metadata file has all.

    Raises:
        CatalogError: If the catalog left out snapshots.
        StorageError: If the metadata file can't be read.
    """
    if checks_itself(table.catalog) or not table.metadata_location:
        return
    with storage_errors(table.metadata_location, "reading"):
        metadata = read_metadata(".".join(table.name()), table.io, table.metadata_location)
    loaded = {snapshot.snapshot_id for snapshot in table.metadata.snapshots}
    hidden = [snapshot.snapshot_id for snapshot in metadata.snapshots if snapshot.snapshot_id not in loaded]
    if hidden:
        raise CatalogError(
            f"the catalog shows {len(loaded)} snapshots of table {'.'.join(table.name())} and leaves out "
            f"{len(hidden)}, such as {hidden[0]}: their files can't be told from unneeded ones",
            hint="set the catalog so that it answers snapshots=all with all snapshots",
        )


def unneeded_files(io: FileIO, expired: Sequence[Snapshot], kept: Sequence[Snapshot]) -> list[str]:
    """Return the files that expired snapshots need and kept ones don't.

    Data and delete files come first, then manifests, then manifest lists: what a crash leaves of them still leads to
    the files that are left.

    Args:
        expired: The expired snapshots. Their files may be gone: another expiry has deleted them.
    """
    lists = {snapshot.manifest_list for snapshot in expired} - {snapshot.manifest_list for snapshot in kept}
    gone = [snapshot for snapshot in expired if snapshot.manifest_list in lists]
    with ThreadPoolExecutor(_THREADS) as pool:
        manifests = _manifests(pool.map(partial(_listed, io, may_be_gone=True), gone))
        if manifests:
            still_needed = _manifests(pool.map(partial(_listed, io), kept))
            manifests = {path: manifest for path, manifest in manifests.items() if path not in still_needed}
        files: dict[str, str] = {}
        for paths in pool.map(partial(_live, io, may_be_gone=True), manifests.values()):
            files |= paths
        if files:
            needed: set[str] = set().union(*pool.map(partial(_live, io, among=files), still_needed.values()))
            files = {place: path for place, path in files.items() if place not in needed}
    return [*sorted(files.values()), *sorted(manifests), *sorted(lists)]


def _listed(io: FileIO, snapshot: Snapshot, may_be_gone: bool = False) -> list[ManifestFile]:
    with suppress(*([FileNotFoundError] if may_be_gone else [])):
        return snapshot.manifests(io)
    return []


def _manifests(lists: Iterable[Sequence[ManifestFile]]) -> dict[str, ManifestFile]:
    return {manifest.manifest_path: manifest for manifests in lists for manifest in manifests}


def _live(
    io: FileIO, manifest: ManifestFile, may_be_gone: bool = False, among: Collection[str] | None = None
) -> dict[str, str]:
    """Return the paths of a manifest's live files, by their places; only those `among` these places if given."""
    try:
        entries = entries_of(io, manifest)
    except StorageError as error:
        if may_be_gone and isinstance(error.__cause__, FileNotFoundError):
            return {}
        raise
    live = {_place(entry.path): entry.path for entry in entries if entry.is_live}
    return live if among is None else {place: path for place, path in live.items() if place in among}


def is_inside(table: Table) -> Callable[[str], bool]:
    """Return a function that tells whether a file is in one of the table's own folders."""
    metadata = table.properties.get("write.metadata.path", table.location())
    folders = tuple(_place(folder).rstrip("/") + "/" for folder in (table.location(), data_folder(table), metadata))
    return lambda path: _place(path).startswith(folders) and ".." not in path.split("/")


def _place(path: str) -> str:
    """Return the same text for every spelling of a path: file:/a, file:///a and /a are one file."""
    url = re.match("([a-z][a-z0-9+.-]*):/+", path)
    rest = path[url.end() :] if url else path
    if url is None or url[1] == "file":
        return posixpath.normpath("/" + rest.lstrip("/"))
    return f"{_SCHEMES.get(url[1], url[1])}://{rest}"


_THREADS = 16
# The uuid is one of the first fields of a metadata file, which may have megabytes of snapshots.
_HEAD_BYTES = 4096
_UUID = re.compile(rb'"table-uuid"\s*:\s*"([^"]+)"')
METADATA = (".metadata.json", ".metadata.json.gz")


def find_orphans(table: Table, before: datetime) -> OrphanFiles:
    """Return the files in a table's folders that were last written before a time and that no snapshot refers to."""
    began = time.monotonic()
    check_whole(table)
    with storage_errors(table.location(), "listing"):
        files_of = files_of_table(table)
        needed = _Names(_needed(table))
        orphans: list[ListedFile] = []
        others: set[str] = set()
        for folder in _folders(table):
            for file in listed_files(files_of(folder), folder):
                if file.path.endswith(METADATA) and name_of(file.path) not in needed:
                    others.add(file.path)
                if file.written < before and name_of(file.path) not in needed:
                    orphans.append(file)
        # What was committed during the listing is needed as well.
        if table.metadata_location != table.refresh().metadata_location:
            check_whole(table)
            needed = _Names(_needed(table))
        nested = _nested(files_of(table.location()), table, others, needed)
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
    """Return the folders of other tables inside the table's folders."""
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
        self._hashes: np.ndarray[Any, np.dtype[np.int64]] = distinct_numbers(
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
