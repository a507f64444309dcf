"""Chooses the data files that a compaction rewrites, in groups that are replaced as wholes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass

from pyiceberg.io import FileIO
from pyiceberg.table.metadata import TableMetadata

from volley.iceberg.layout.partitions import exact
from volley.iceberg.maintain.options import CompactionOptions
from volley.iceberg.maintain.rewrites import within
from volley.iceberg.read.data_files import READABLE
from volley.iceberg.read.delete_files import deleted_positions
from volley.iceberg.read.entries import Content, FileEntry, PlannedFile

__all__ = ["ChosenFiles", "Group", "choose"]

# Large enough that the last file of a group, which is smaller than the others, counts for little.
_FILES_PER_GROUP = 10
# The format of new files.
_WRITTEN = "PARQUET"

Group = tuple[PlannedFile, ...]
"""Files of one partition that are rewritten together and replaced as a whole."""


@dataclass(frozen=True)
class ChosenFiles:
    """The files to rewrite.

    Args:
        skipped: The number of files that can't be rewritten, or have an older partition spec and are to stay.
        left: The number of files that were left out because of the limit of bytes.
    """

    groups: tuple[Group, ...]
    skipped: int
    left: int = 0


def choose(
    io: FileIO, table: TableMetadata, files: Sequence[PlannedFile], options: CompactionOptions, target: int
) -> ChosenFiles:
    """Return the files to rewrite; the same ones for the same files.

    A small file that is alone in its group stays: to write it anew would change nothing.
    """
    able = [planned for planned in files if _is_able(planned.file, table, options)]
    is_due = _Due(io, table, options, target)
    small = min(options.small_below * target, options.small_bytes or 1 << 63)
    partitions: dict[Hashable, list[tuple[PlannedFile, bool]]] = {}
    for planned in sorted(able, key=_age):
        due = is_due(planned)
        if due or planned.file.size < small:
            partition = planned.file.spec_id, tuple(map(exact, planned.file.partition))
            partitions.setdefault(partition, []).append((planned, due))
    size = min(options.group_size or _FILES_PER_GROUP * target, options.max_bytes or 1 << 63)
    groups = [
        tuple(planned for planned, _ in group)
        for chosen in partitions.values()
        for group in _cut(_worth(chosen, options.least_files), size)
        if len(group) > 1 or any(due for _, due in group)
    ]
    groups.sort(key=lambda group: _age(group[0]))
    taken = within((sum(planned.file.size for planned in group) for group in groups), options.max_bytes)
    return ChosenFiles(tuple(groups[:taken]), len(files) - len(able), sum(map(len, groups[taken:])))


def _is_able(file: FileEntry, table: TableMetadata, options: CompactionOptions) -> bool:
    return file.format in READABLE and (options.old_specs or file.spec_id == table.default_spec_id)


def _age(planned: PlannedFile) -> tuple[int, str]:
    return planned.file.sequence_number, planned.file.path


def _cut(files: Sequence[tuple[PlannedFile, bool]], size: int) -> Iterator[list[tuple[PlannedFile, bool]]]:
    """Yield groups of some bytes at most; a larger file is a group of its own."""
    group: list[tuple[PlannedFile, bool]] = []
    total = 0
    for planned, due in files:
        if group and total + planned.file.size > size:
            yield group
            group, total = [], 0
        group.append((planned, due))
        total += planned.file.size
    if group:
        yield group


def _worth(files: list[tuple[PlannedFile, bool]], least: int | None) -> list[tuple[PlannedFile, bool]]:
    """Return the files without small ones that are too few, or have more rows than all smaller ones together.

    Rows count, not bytes: the bytes of two small files are more than those of one with their rows.
    """
    if least is None:
        return files
    largest = total = 0
    for number, rows in enumerate(sorted(planned.file.rows for planned, due in files if not due), 1):
        if number >= least and rows <= total:
            largest = rows
        total += rows
    return [(planned, due) for planned, due in files if due or planned.file.rows <= largest]


class _Due:
    """Tells which files are rewritten also alone."""

    def __init__(self, io: FileIO, table: TableMetadata, options: CompactionOptions, target: int) -> None:
        self._io = io
        self._spec_id = table.default_spec_id
        self._options = options
        self._large = options.large_above * target
        self._has_old_schema = _old_schemas(table) if options.old_schemas else lambda file: False

    def __call__(self, planned: PlannedFile) -> bool:
        file = planned.file
        if self._options.rewrite_all or file.size > self._large or file.spec_id != self._spec_id:
            return True
        if file.format != _WRITTEN:
            return True
        if self._has_old_schema(file):
            return True
        return bool(planned.deletes) and _deleted_share(self._io, planned) >= self._options.deletes_above


def _old_schemas(table: TableMetadata) -> Callable[[FileEntry], bool]:
    """Return a function that tells if a file was written with an older schema.

    The snapshot that added it tells. If that has expired, the next one that is still known does: files that a
    compaction has rewritten must not be rewritten again each time its snapshot expires.
    """
    schemas = {snapshot.snapshot_id: snapshot.schema_id for snapshot in table.snapshots}
    by_number = sorted((snapshot.sequence_number or 0, snapshot.snapshot_id) for snapshot in table.snapshots)

    def is_old(file: FileEntry) -> bool:
        snapshot_id: int | None = file.snapshot_id
        # Format version 1 has no sequence numbers.
        if snapshot_id not in schemas and table.format_version > 1:
            at = bisect_left(by_number, (file.file_sequence_number, 0))
            snapshot_id = by_number[at][1] if at < len(by_number) else None
        return schemas.get(snapshot_id) not in (None, table.current_schema_id)  # type: ignore[arg-type]

    return is_old


def _deleted_share(io: FileIO, planned: PlannedFile) -> float:
    """Return the share of deleted rows, as if each row of an equality-delete file deleted one row."""
    file, deleted = planned.file, 0
    for delete in planned.deletes:
        if delete.content == Content.EQUALITY_DELETES or delete.referenced_file == file.path:
            deleted += delete.rows
        else:
            deleted += len(deleted_positions(io, file.path, delete))
    return deleted / file.rows
