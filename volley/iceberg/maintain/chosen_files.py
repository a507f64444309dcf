"""Chooses the data files that a compaction rewrites."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from pyiceberg.io import FileIO

from volley.iceberg.layout.partitions import exact
from volley.iceberg.read.entries import Content, PlannedFile
from volley.iceberg.read.position_deletes import deleted_positions

__all__ = ["Choice", "Rule", "choose"]


@dataclass(frozen=True)
class Rule:
    """Which data files are rewritten, and how large the new ones are.

    Args:
        target_bytes: The size of the new files.
        small_below: Files below this share of it are rewritten together.
        deletes_above: Files with at least this share of deleted rows are rewritten.
    """

    target_bytes: int
    small_below: float
    deletes_above: float


@dataclass(frozen=True)
class Choice:
    """The files to rewrite.

    Args:
        groups: The files of each partition, oldest first.
        skipped: The number of files that can't be rewritten: they are not Parquet, or have an older partition spec.
    """

    groups: tuple[tuple[PlannedFile, ...], ...]
    skipped: int


def choose(io: FileIO, files: Sequence[PlannedFile], spec_id: int, rule: Rule) -> Choice:
    """Return the files to rewrite, in groups that are replaced as wholes.

    One small file alone stays: to write it anew would change nothing.

    Args:
        io: Opens delete files.
        files: The data files of a snapshot.
        spec_id: The table's current partition spec.
        rule: What is to be rewritten.

    Raises:
        SourceError: If a delete file is gone or damaged.
    """
    able = [planned for planned in files if planned.file.format == "PARQUET" and planned.file.spec_id == spec_id]
    partitions: dict[Hashable, list[tuple[PlannedFile, bool]]] = {}
    for planned in sorted(able, key=lambda each: (each.file.sequence_number, each.file.path)):
        has_deletes = bool(planned.deletes) and _deleted_share(io, planned) >= rule.deletes_above
        if has_deletes or planned.file.size < rule.small_below * rule.target_bytes:
            partitions.setdefault(tuple(map(exact, planned.file.partition)), []).append((planned, has_deletes))
    groups = tuple(
        tuple(planned for planned, _ in group)
        for group in partitions.values()
        if len(group) > 1 or any(has_deletes for _, has_deletes in group)
    )
    return Choice(groups, len(files) - len(able))


def _deleted_share(io: FileIO, planned: PlannedFile) -> float:
    """Return the share of deleted rows, as if each row of an equality-delete file deleted one row."""
    file, deleted = planned.file, 0
    for delete in planned.deletes:
        if delete.content == Content.EQUALITY_DELETES or delete.referenced_file == file.path:
            deleted += delete.rows
        else:
            deleted += len(deleted_positions(io, file.path, delete))
    return deleted / file.rows
