"""Finds the delete files that apply to a data file."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from pyiceberg.table.metadata import TableMetadata

from volley.iceberg.layout.partitions import exact
from volley.iceberg.read.entries import Content, FileEntry

__all__ = ["DeleteIndex"]

_FILE_PATH = 2_147_483_546
_PUFFIN = "PUFFIN"


class DeleteIndex:
    """Delete files by what they apply to.

    Args:
        table: The table's metadata.
        deletes: The delete files.
    """

    def __init__(self, table: TableMetadata, deletes: Iterable[FileEntry]) -> None:
        self._by_path: dict[str, list[FileEntry]] = {}
        self._by_partition: dict[Any, list[FileEntry]] = {}
        for delete in deletes:
            path = _only_target(delete)
            if path is not None:
                self._by_path.setdefault(path, []).append(delete)
            else:
                spec = table.specs()[delete.spec_id]
                # Equality deletes of an unpartitioned spec apply to all partitions of all specs.
                is_global = spec.is_unpartitioned() and delete.content == Content.EQUALITY_DELETES
                self._by_partition.setdefault(None if is_global else _partition(delete), []).append(delete)

    def of(self, file: FileEntry) -> tuple[FileEntry, ...]:
        """Return the delete files that apply to a data file."""
        own = self._by_path.get(file.path, ())
        candidates = [*own, *self._by_partition.get(_partition(file), ()), *self._by_partition.get(None, ())]
        applying = [delete for delete in candidates if _applies(delete, file)]
        if any(delete.format == _PUFFIN for delete in applying):
            # A deletion vector has all positions of the file's earlier position deletes.
            applying = [delete for delete in applying if delete.format == _PUFFIN or _is_equality(delete)]
        return tuple(applying)

    def reaches_beyond(self, paths: Collection[str]) -> bool:
        """Return True if a delete file may apply to other data files than some."""
        return bool(self._by_partition) or any(path not in paths for path in self._by_path)


def _partition(file: FileEntry) -> tuple[Any, ...]:
    return file.spec_id, *map(exact, file.partition)


def _is_equality(delete: FileEntry) -> bool:
    return delete.content == Content.EQUALITY_DELETES


def _applies(delete: FileEntry, file: FileEntry) -> bool:
    """Compare sequence numbers and paths; equality deletes leave the files of their own snapshot alone."""
    if _is_equality(delete):
        return delete.sequence_number > file.sequence_number
    low, high = delete.lower.get(_FILE_PATH), delete.upper.get(_FILE_PATH)
    path = file.path.encode()
    # Bounds may be truncated: an upper one is then larger than every path.
    within = (low is None or low <= path) and (high is None or path <= high)
    return delete.sequence_number >= file.sequence_number and within


def _only_target(delete: FileEntry) -> str | None:
    if delete.referenced_file is not None or _is_equality(delete):
        return delete.referenced_file
    low, high = delete.lower.get(_FILE_PATH), delete.upper.get(_FILE_PATH)
    return low.decode() if low is not None and low == high else None
