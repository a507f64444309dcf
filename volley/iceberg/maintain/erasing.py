"""Takes rows out of the last snapshot of a branch: its files are written anew without them, in one commit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestContent
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from volley.iceberg.commit.loop import Staged, commit_to, new_snapshot_id, write_manifests
from volley.iceberg.commit.marks import maintenance_summary
from volley.iceberg.layout.layout import check_layout
from volley.iceberg.maintain.options import Runner
from volley.iceberg.maintain.rewrites import FileRewrite, Opened, format_of, run_tasks
from volley.iceberg.maintain.rewriting import Rewrite, Rewritten, RowOrdering
from volley.iceberg.maintain.sought import SoughtRows
from volley.iceberg.maintain.traces import Traces
from volley.iceberg.pyiceberg_private.access import delete_manifests
from volley.iceberg.read.entries import FileEntry, PlannedFile, entries_of, manifests_of, to_data_file
from volley.iceberg.read.history import head_of
from volley.iceberg.read.planning import plan
from volley.iceberg.read.rows import FileTask, RowReader, file_task
from volley.iceberg.storage.errors import storage_errors
from volley.iceberg.storage.files import delete_new_files
from volley.iceberg.table import TableRef
from volley.iceberg.upsert.tombstones import TOMBSTONES, mark_in
from volley.iceberg.write.table_format import TableFormat
from volley.iceberg.write.written import SnapshotFiles
from volley.task.failpoints import reach

__all__ = ["ErasedRows", "due", "erase_rows", "live_rows"]


@dataclass(frozen=True)
class ErasedRows:
    """What an erasure has done to the last snapshot of a branch, or would do.

    Args:
        rows: The number of its rows that were erased.
        files: The number of its data files that were written anew or removed.
        delete_files: The number of its delete files that had values of the rows, and were removed.
        snapshot_id: The new snapshot; None if there was nothing to do.
    """

    rows: int = 0
    files: int = 0
    delete_files: int = 0
    snapshot_id: int | None = None


def erase_rows(ref: TableRef, traces: Traces, run: Runner | None) -> ErasedRows:
    """Erase rows, deleted ones too, from the last snapshot of a branch."""
    commit = _Erasing(Opened.of(ref, None), traces, run)
    return commit.erase()


def due(table: Table, head: Snapshot, traces: Traces) -> tuple[list[PlannedFile], list[FileEntry]]:
    """Return the data files of a snapshot to write anew, and its delete files to remove.

    Data files have such rows, or rows that a delete file with their values deletes.
    """
    deletes = [delete for delete in _live_deletes(table.io, head) if traces.in_file(delete)]
    paths = {delete.path for delete in deletes}
    ids = frozenset(field.field_id for field in traces.sought.schema.fields)
    files = plan(table.io, table.metadata, head, statistics=ids).files
    return [
        planned
        for planned in files
        if traces.in_file(planned.file) or any(delete.path in paths for delete in planned.deletes)
    ], deletes


def _live_deletes(io: FileIO, snapshot: Snapshot) -> Iterator[FileEntry]:
    for manifest in manifests_of(io, snapshot):
        if manifest.content == ManifestContent.DELETES:
            yield from (entry for entry in entries_of(io, manifest) if entry.is_live)


def live_rows(planned: PlannedFile, traces: Traces) -> int:
    """Return how many rows of a data file are erased that are not deleted."""
    positions = traces.positions(planned)
    if not len(positions) or not planned.deletes:
        return len(positions)
    return int(np.count_nonzero(~traces.deleted(planned)[positions]))


@dataclass(frozen=True)
class _OtherRows(RowReader):
    """Reads the rows that are not sought."""

    sought: SoughtRows | None = None

    def read(self, io: FileIO, task: FileTask) -> Iterator[pa.RecordBatch]:
        assert self.sought is not None
        for rows in super().read(io, task):
            kept = np.ones(rows.num_rows, np.bool_)
            kept[self.sought.matches(pa.Table.from_batches([rows]))] = False
            if kept.any():
                yield rows.filter(pa.array(kept))


@dataclass(frozen=True)
class _StagedErasure(Staged):
    """An attempt to commit: its snapshot, and the files that it has."""

    snapshot_id: int
    written: Sequence[Rewritten]
    erased: ErasedRows


_State = tuple[str, frozenset[tuple[str, int | None]]]
"""A data file's path, with those of its delete files."""


def _state(planned: PlannedFile) -> _State:
    return planned.file.path, frozenset((delete.path, delete.blob_offset) for delete in planned.deletes)


class _Erasing(FileRewrite[_StagedErasure, Rewritten]):
    """Writes files without some rows, and commits that.

    Each attempt looks at the table as it is then, and writes the files anew that no attempt before it has written.
    """

    action = "erasing rows"
    maintenance = "erasure"

    def __init__(self, opened: Opened, traces: Traces, run: Runner | None) -> None:
        format = format_of(opened.table, opened.ref)
        super().__init__(opened, replace(format, keeps_row_ids=format.has_row_ids), "erasure", run)
        self._traces = traces
        self._numbers: dict[_State, int] = {}
        self._rows: dict[_State, int] = {}

    def erase(self) -> ErasedRows:
        try:
            commit = commit_to(self._ref, self)
        finally:
            delete_new_files(self._io, self._temporary())
        landed = commit.staged
        self._delete_unused(commit.table, [file for done in (landed.written if landed else ()) for file in done.files])
        if landed is None:
            return ErasedRows()
        reach("after-erasure", 0)
        return landed.erased

    def stage(self, table: Table) -> _StagedErasure | None:
        head = head_of(table, self._ref.branch)
        chosen, deletes = due(table, head, self._traces) if head else ([], [])
        if head is None or not (chosen or deletes):
            return None
        written = self._rewritten(table, chosen)
        if written:
            check_layout(table, {self._format.layout.fingerprint})
        files = SnapshotFiles(
            [file for done in written for file in done.files],
            removed=[to_data_file(planned.file) for planned in chosen],
            removed_deletes=sorted({delete.path for delete in deletes}),
        )
        rows = sum(self._rows[_state(planned)] for planned in chosen)
        snapshot_id = new_snapshot_id()
        transaction = table.transaction()
        try:
            with storage_errors(table.location()):
                write_manifests(
                    transaction,
                    files,
                    snapshot_id,
                    self._summary(table, head),
                    self._ref.branch,
                    # Without rows that a reader knows, files are replaced by others with the same rows.
                    None if rows else head.sequence_number or 0,
                    forgets_bounds=True,
                )
        except BaseException:
            delete_manifests(transaction)
            raise
        reach("before-erasure", 0)
        erased = ErasedRows(rows, len(chosen), len(files.removed_deletes), snapshot_id)
        return _StagedErasure(transaction, snapshot_id, written, erased)

    def _summary(self, table: Table, head: Snapshot) -> dict[str, str]:
        before = head.summary.additional_properties if head.summary else {}
        kept = {name: text for name, text in before.items() if name.startswith(TOMBSTONES)}
        return kept | maintenance_summary(self.maintenance, table.metadata, head)

    def _rewritten(self, table: Table, chosen: Sequence[PlannedFile]) -> list[Rewritten]:
        """Write the files anew that are not written yet, and return what is in the place of all."""
        tasks, done = list[Rewrite](), {result.number for result in self._results}
        for planned in chosen:
            number = self._numbers.setdefault(state := _state(planned), len(self._numbers))
            if number not in done:
                self._rows[state] = live_rows(planned, self._traces)
                tasks.append(self._task(table, planned, number))
        run_tasks(tasks, self._run, self._results, self._delete_lost)
        by_number = {result.number: result for result in self._results}
        return [by_number[self._numbers[_state(planned)]] for planned in chosen]

    def _task(self, table: Table, planned: PlannedFile, number: int) -> Rewrite:
        metadata, file = table.metadata, planned.file
        all_rows = RowReader.of(metadata, self._format.written_schema, variants_as_stored=True)
        return Rewrite(
            _named_like(self._format, file.path),
            _OtherRows(all_rows.schema, all_rows.names, sought=self._traces.sought),
            number,
            (file_task(planned, metadata),),
            file.partition if file.spec_id == metadata.default_spec_id else None,
            RowOrdering(),
        )

    def _written(self) -> set[str]:
        return {file.path for done in self._results for file in done.files}

    def _temporary(self) -> set[str]:
        return {done.order for done in self._results if done.order}


def _named_like(format: TableFormat, path: str) -> TableFormat:
    """Return the format of a file with rows of another, whose name may tell what they are."""
    mark = mark_in(path)
    return replace(format, file_prefix=f"{format.file_prefix}0{mark}") if mark else format
