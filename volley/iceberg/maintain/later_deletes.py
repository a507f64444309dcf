"""Carries deletes of rows that are being rewritten to the files in which the rows then stand."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestContent
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from volley.iceberg.maintain.chosen_files import Group
from volley.iceberg.maintain.rewriting import Rewritten, read_order
from volley.iceberg.read.delete_files import deleted_by_position
from volley.iceberg.read.deletes import unpartitioned_specs
from volley.iceberg.read.entries import Content, PlannedFile, entries_of, manifests_of
from volley.iceberg.read.rows import RowReader, file_task
from volley.iceberg.write.data_files import write_position_deletes
from volley.iceberg.write.table_format import TableFormat
from volley.iceberg.write.written import WrittenFile

__all__ = ["LaterDeletes"]

_Positions = np.ndarray[Any, Any]


class LaterDeletes:
    """The deletes that others commit between the start of a compaction and its own commit.

    Args:
        metadata: The table's metadata at the start.
        format: The format of the new files.
        sequence_number: Of the snapshot at the start.
    """

    def __init__(self, metadata: TableMetadata, io: FileIO, format: TableFormat, sequence_number: int) -> None:
        self._metadata = metadata
        self._io = io
        self._format = format
        self._sequence_number = sequence_number
        self._reader = RowReader.of(metadata)
        self.written: list[WrittenFile] = []

    def places(
        self, table: Table, head: Snapshot, group: Group, done: Rewritten, current: Mapping[str, PlannedFile]
    ) -> _Positions | None:
        """Return the places, among all new rows of a group, of rows that were deleted by position since the start.

        None = the group can't be replaced: a file is gone, rows that were deleted at the start have come back, or a
        delete by key would apply to other rows in the partitions of the new files.

        Args:
            table: The table now.
            head: Its snapshot.
            group: The files at the start.
            done: What was written in their place.
            current: The files now, by path.
        """
        if group[0].file.spec_id != self._metadata.default_spec_id and self._has_keys_of_a_partition(table, head):
            return None
        numbers = [np.empty(0, np.int64)]
        for source, start in zip(group, done.starts, strict=False):
            now = current.get(source.file.path)
            if now is None or self._has_other_keys(source, now):
                return None
            before, after = self._positions(source), self._positions(now)
            if len(np.setdiff1d(before, after)):
                return None
            if len(after) > len(before):
                kept = ~self._reader.deleted(self._io, file_task(source, self._metadata))
                numbers.append(start + np.cumsum(kept)[after[kept[after]]] - 1)
        deleted = np.concatenate(numbers)
        if done.order is None or not len(deleted):
            return deleted
        return np.flatnonzero(np.isin(read_order(self._io, done.order), deleted))

    def write(self, done: Rewritten, places: _Positions) -> list[WrittenFile]:
        """Write a position-delete file for each new file of a group that has rows at these places."""
        deletes, first = [], 0
        for file in (written.data_file for written in done.files):
            positions = np.sort(places[(places >= first) & (places < first + file.record_count)]) - first
            first += file.record_count
            if len(positions):
                deletes.append(write_position_deletes(self._format, file, positions))
                self.written.append(deletes[-1])
        return deletes

    def _has_other_keys(self, source: PlannedFile, now: PlannedFile) -> bool:
        """Return True if equality deletes are gone, or came with a sequence number of before the start."""
        before, after = _equality(source), _equality(now)
        new = [number for path, number in after.items() if path not in before]
        # The new files have the sequence number of the start: exactly the later ones apply to them.
        return bool(before.keys() - after.keys()) or min(new, default=math.inf) <= self._sequence_number

    def _has_keys_of_a_partition(self, table: Table, head: Snapshot) -> bool:
        """Return True if a later equality delete is of one partition: in other partitions it applies to other rows."""
        everywhere = unpartitioned_specs(table.metadata)
        manifests = (each for each in manifests_of(table.io, head) if each.content == ManifestContent.DELETES)
        return any(
            entry.is_live
            and entry.content == Content.EQUALITY_DELETES
            and entry.sequence_number > self._sequence_number
            and entry.spec_id not in everywhere
            for manifest in manifests
            for entry in entries_of(table.io, manifest)
        )

    def _positions(self, planned: PlannedFile) -> _Positions:
        """Return the positions that delete files, other than by equality, delete in a file."""
        file = planned.file
        return np.flatnonzero(deleted_by_position(self._io, file.path, planned.deletes, range(file.rows)))


def _equality(planned: PlannedFile) -> dict[str, int]:
    """Return the sequence numbers of a file's equality-delete files, by path."""
    deletes = (delete for delete in planned.deletes if delete.content == Content.EQUALITY_DELETES)
    return {delete.path: delete.sequence_number for delete in deletes}
