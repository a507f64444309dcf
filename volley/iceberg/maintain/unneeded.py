"""Finds the files that only expired snapshots need."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestFile
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from volley.errors import CatalogError, ConfigError, StorageError
from volley.iceberg.pyiceberg_private.access import checks_itself
from volley.iceberg.read.entries import entries_of
from volley.iceberg.storage.errors import storage_errors
from volley.iceberg.storage.files import data_folder

__all__ = ["check_own_files", "check_whole", "is_inside", "owns_files", "unneeded_files"]

_THREADS = 16
_SCHEMES = {"s3a": "s3", "s3n": "s3", "abfs": "abfss"}


def owns_files(table: Table) -> bool:
    """Return False if other tables may need a table's files, as its property ``gc.enabled`` says."""
    return table.properties.get("gc.enabled", "true").lower() != "false"


def check_own_files(table: Table, what: str, done: str) -> None:
    """Raise ConfigError if other tables may need a table's files, as its property ``gc.enabled`` says.

    Args:
        what: What is to be deleted, for the message.
        done: What is to be done with it, for the message.
    """
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
        metadata = FromInputFile.table_metadata(table.io.new_input(table.metadata_location))
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
        kept: All snapshots that the table keeps.

    Raises:
        Exception: If a manifest or a manifest list can't be read.
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
