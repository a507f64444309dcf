"""Snapshots, branches, tags and the outcome of an expiry as plain values."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import overload

from volley.html_table import settings_html, text_html

__all__ = [
    "Compaction",
    "DeleteRewrite",
    "Expiry",
    "ManifestRewrite",
    "OrphanFiles",
    "Ref",
    "SnapshotInfo",
    "SnapshotList",
]

_COLUMNS = ("snapshot", "committed at", "operation", "rows +", "rows -", "files +", "files -", "rows", "refs")


@dataclass(frozen=True)
class Ref:
    """A branch or a tag of a table.

    Args:
        name: Its name.
        is_branch: True for a branch, False for a tag.
        snapshot_id: The branch's last snapshot, or the tag's.
        min_snapshots: The number of a branch's snapshots that every expiry keeps; None = the table's setting.
        max_snapshot_age: The age up to which expiry keeps a branch's snapshots; None = the table's setting.
        max_age: The age of its snapshot at which expiry drops the branch or tag; None = the table's setting.
    """

    name: str
    is_branch: bool
    snapshot_id: int
    min_snapshots: int | None = None
    max_snapshot_age: timedelta | None = None
    max_age: timedelta | None = None

    _repr_html_ = settings_html


@dataclass(frozen=True)
class SnapshotInfo:
    """A snapshot of a table.

    Args:
        id: Its id.
        parent_id: The id of the snapshot that it is based on; None for the first one, or if that was expired.
        committed_at: When it was committed, in UTC.
        operation: ``"append"``, ``"overwrite"``, ``"delete"`` or ``"replace"``.
        summary: What its writer noted: counts, and for a Volley job the job's name and epoch.
        refs: The names of the branches whose last snapshot it is, and of its tags.
        sequence_number: Its place in the order of commits to all branches; 0 in tables of format version 1.
        schema_id: The id of the schema it was written with.
        manifest_list: The location of its manifest list.
    """

    id: int
    parent_id: int | None
    committed_at: datetime
    operation: str | None
    summary: Mapping[str, str] = field(repr=False, hash=False)
    refs: tuple[str, ...] = ()
    sequence_number: int = 0
    schema_id: int | None = field(default=None, repr=False)
    manifest_list: str = field(default="", repr=False)

    @property
    def rows_added(self) -> int:
        """The number of rows in data files that it added."""
        return self._count("added-records")

    @property
    def rows_deleted(self) -> int:
        """The number of rows in data files that it removed; rows that delete files mark are not among them."""
        return self._count("deleted-records")

    @property
    def files_added(self) -> int:
        """The number of data files that it added."""
        return self._count("added-data-files")

    @property
    def files_deleted(self) -> int:
        """The number of data files that it removed."""
        return self._count("deleted-data-files")

    @property
    def total_rows(self) -> int | None:
        """The number of rows in its data files before deletes, as its writer says; None if it does not.

        Not all writers count right: DuckDB's totals never fall, and writers after it add to them.
        """
        return self._count("total-records") if "total-records" in self.summary else None

    def _count(self, name: str) -> int:
        text = self.summary.get(name, "0")
        return int(text) if text.isdecimal() else 0

    _repr_html_ = settings_html


class SnapshotList(Sequence[SnapshotInfo]):
    """The snapshots of a table, in the order of their commits; prints as a table, also in notebooks.

    Args:
        snapshots: The snapshots.
    """

    def __init__(self, snapshots: Sequence[SnapshotInfo]) -> None:
        self._snapshots = tuple(snapshots)

    @overload
    def __getitem__(self, index: int) -> SnapshotInfo: ...
    @overload
    def __getitem__(self, index: slice) -> SnapshotList: ...
    def __getitem__(self, index: int | slice) -> SnapshotInfo | SnapshotList:
        return SnapshotList(self._snapshots[index]) if isinstance(index, slice) else self._snapshots[index]

    def __len__(self) -> int:
        return len(self._snapshots)

    def __iter__(self) -> Iterator[SnapshotInfo]:
        return iter(self._snapshots)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SnapshotList) and other._snapshots == self._snapshots

    def __hash__(self) -> int:
        return hash(self._snapshots)

    def __repr__(self) -> str:
        rows = [_COLUMNS, *(_cells(snapshot) for snapshot in self)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join(_line(row, widths) for row in rows)

    def _repr_html_(self) -> str:
        head, *body = (_COLUMNS, *(_cells(snapshot) for snapshot in self))
        titles = "".join(f"<th>{html.escape(cell)}</th>" for cell in head)
        rows = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in body)
        return f"<table><thead><tr>{titles}</tr></thead><tbody>{rows}</tbody></table>"


def _cells(snapshot: SnapshotInfo) -> tuple[str, ...]:
    counts = (snapshot.rows_added, snapshot.rows_deleted, snapshot.files_added, snapshot.files_deleted)
    total = "" if snapshot.total_rows is None else f"{snapshot.total_rows:,}"
    time = snapshot.committed_at.isoformat(sep=" ", timespec="milliseconds").removesuffix("+00:00")
    return (
        *(str(snapshot.id), time, snapshot.operation or ""),
        *(f"{count:,}" if count else "" for count in counts),
        *(total, ", ".join(snapshot.refs)),
    )


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    numbers = range(3, 8)
    cells = (
        cell.rjust(width) if column in numbers else cell.ljust(width)
        for column, (cell, width) in enumerate(zip(row, widths, strict=True))
    )
    return "  ".join(cells).rstrip()


@dataclass(frozen=True)
class Expiry:
    """What an expiry of snapshots has done, or would do.

    Args:
        table: The table's dotted name.
        snapshots: The expired snapshots.
        refs: Branches and tags that were dropped, since they are older than their own setting allows.
        files: The deleted files.
        outside: Files that are not needed any more and were not deleted: they are not in the table's own folders.
        failed: Files that could not be deleted, and why; `remove_orphan_files` deletes them later.
        dry_run: True if nothing was done.
    """

    table: str
    snapshots: SnapshotList
    refs: tuple[str, ...] = ()
    files: tuple[str, ...] = field(default=(), repr=False)
    outside: tuple[str, ...] = ()
    failed: tuple[tuple[str, str], ...] = ()
    dry_run: bool = False

    def __str__(self) -> str:
        counted = f"{len(self.snapshots)} snapshots and {len(self.files)} files of table {self.table}"
        lines = [f"{counted} {'would be' if self.dry_run else 'were'} removed"]
        if self.refs:
            lines.append(f"too old, and dropped: {', '.join(self.refs)}")
        if self.outside:
            lines.append(f"{len(self.outside)} files outside of the table's folders stay")
        lines += [f"not deleted: {path}: {reason}" for path, reason in self.failed]
        return "\n".join(lines)

    _repr_html_ = text_html


@dataclass(frozen=True)
class ManifestRewrite:
    """What a rewrite of manifests has done, or would do.

    Args:
        table: The table's dotted name.
        snapshot_id: The snapshot that it has committed; None if it has committed none.
        manifests_before: The number of manifests of the branch's last snapshot.
        manifests_after: The same afterwards.
        replaced: The number of manifests that were replaced.
        bytes_before: The size of all manifests of the snapshot.
        bytes_after: The same afterwards; None if that is not known, as nothing was written.
        entries: The number of entries that were moved to other manifests.
        seconds: The time it took.
        dry_run: True if nothing was done.
        left: The number of manifests that a limit left for the next run.
    """

    table: str
    snapshot_id: int | None
    manifests_before: int
    manifests_after: int
    replaced: int
    bytes_before: int
    bytes_after: int | None
    entries: int
    seconds: float = field(compare=False)
    dry_run: bool = False
    left: int = 0

    @property
    def created(self) -> int:
        """The number of new manifests."""
        return self.manifests_after - self.kept

    @property
    def kept(self) -> int:
        """The number of manifests that stayed as they were."""
        return self.manifests_before - self.replaced

    def __str__(self) -> str:
        if not self.replaced:
            return f"{self.manifests_before:,} manifests of table {self.table} are in order"
        after = "" if self.bytes_after is None else f" ({self.bytes_after:,} bytes)"
        left = f"; {self.left:,} are left for the next run" if self.left else ""
        return (
            f"{self.manifests_before:,} manifests ({self.bytes_before:,} bytes) of table {self.table} "
            f"{'would become' if self.dry_run else 'became'} {self.manifests_after:,}{after}, with {self.entries:,} "
            f"entries moved, in {self.seconds:.2f} s{left}"
        )

    _repr_html_ = text_html


@dataclass(frozen=True)
class Compaction:
    """What a compaction has done, or would do.

    Args:
        table: The table's dotted name.
        files_before: The number of replaced data files.
        files_after: The number of data files in their place; of a dry run, an estimate.
        bytes_before: The size of the replaced data files.
        bytes_after: The size of those in their place; of a dry run, an estimate.
        rows: The number of rows in them; of a dry run, deleted rows included.
        delete_files_removed: The number of delete files that were removed with the data files they refer to.
        rows_deleted_meanwhile: The number of rows that others deleted during the compaction, and that stay deleted.
        dropped: The number of groups of files that stay, since another writer replaced or removed one meanwhile.
        skipped: The number of data files that can't be rewritten, as their format can't be read, or that have an older
            partition spec and were to stay.
        left: The number of data files that a limit of bytes or time left for the next run.
        seconds: How long it took.
        snapshots: The ids of its snapshots.
        dry_run: True if nothing was done.
    """

    table: str
    files_before: int = 0
    files_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    rows: int = 0
    delete_files_removed: int = 0
    rows_deleted_meanwhile: int = 0
    dropped: int = 0
    skipped: int = 0
    left: int = 0
    seconds: float = 0.0
    snapshots: tuple[int, ...] = ()
    dry_run: bool = False

    def __str__(self) -> str:
        verb = "would be" if self.dry_run else "were"
        lines = [
            f"{self.files_before:,} data files ({self.bytes_before:,} bytes) of table {self.table} {verb} replaced by "
            f"{'about ' if self.dry_run else ''}{self.files_after:,} ({self.bytes_after:,} bytes) "
            f"with {self.rows:,} rows, in {self.seconds:.1f} s"
        ]
        if self.delete_files_removed:
            lines.append(f"{self.delete_files_removed:,} delete files were removed with them")
        if self.rows_deleted_meanwhile:
            lines.append(f"{self.rows_deleted_meanwhile:,} rows that others deleted meanwhile stay deleted")
        if self.dropped:
            lines.append(f"{self.dropped:,} groups of files stay: another writer changed them meanwhile")
        if self.skipped:
            lines.append(f"{self.skipped:,} data files stay: they have an unknown format, or an older partition spec")
        if self.left:
            lines.append(f"{self.left:,} data files are left for the next run")
        return "\n".join(lines)

    _repr_html_ = text_html


@dataclass(frozen=True)
class DeleteRewrite:
    """What a rewrite of delete files has done, or would do.

    Args:
        table: The table's dotted name.
        data_files: The number of data files whose delete files were merged.
        files_before: The number of removed delete files.
        files_after: The number of delete files in their place.
        bytes_before: The size of the removed delete files.
        bytes_after: The size of those in their place; of a dry run 0, as nothing was written.
        equality_files: The number of removed equality-delete files, among `files_before`.
        rows: The number of deleted rows that the new delete files name.
        dropped: The number of data files whose deletes stay, since another writer changed them meanwhile.
        left: The number of data files that a limit of bytes or time left for the next run.
        seconds: How long it took.
        snapshot_id: The id of its snapshot; None if it has committed none.
        dry_run: True if nothing was done.
    """

    table: str
    data_files: int = 0
    files_before: int = 0
    files_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    equality_files: int = 0
    rows: int = 0
    dropped: int = 0
    left: int = 0
    seconds: float = 0.0
    snapshot_id: int | None = None
    dry_run: bool = False

    def __str__(self) -> str:
        verb = "would be" if self.dry_run else "were"
        about, after = ("at most ", "") if self.dry_run else ("", f" ({self.bytes_after:,} bytes)")
        lines = [
            f"{self.files_before:,} delete files ({self.bytes_before:,} bytes) of table {self.table} {verb} replaced "
            f"by {about}{self.files_after:,}{after} for {self.data_files:,} data files, in {self.seconds:.1f} s"
        ]
        if self.equality_files:
            lines.append(f"{self.equality_files:,} of them {'are' if self.dry_run else 'were'} equality deletes")
        if self.dropped:
            lines.append(f"the deletes of {self.dropped:,} data files stay: another writer changed them meanwhile")
        if self.left:
            lines.append(f"{self.left:,} data files are left for the next run")
        return "\n".join(lines)

    _repr_html_ = text_html


class OrphanFiles(list[str]):
    """The locations of orphan files, as a list; prints as a sentence.

    Args:
        paths: The locations, in their order.
        sizes: The size of each in bytes.
        seconds: How long it took to find them, and to delete them.
        nested: Folders of other tables inside the table's own: the files in them were left out.
        removed: True if they were deleted.
        left: The number of orphan files that a limit left for the next run.
    """

    def __init__(
        self,
        paths: Sequence[str],
        sizes: Sequence[int] = (),
        seconds: float = 0.0,
        nested: tuple[str, ...] = (),
        removed: bool = False,
        left: int = 0,
    ) -> None:
        super().__init__(paths)
        self.sizes = tuple(sizes)
        self.seconds = seconds
        self.nested = nested
        self.removed = removed
        self.left = left

    @property
    def bytes(self) -> int:
        """Their size."""
        return sum(self.sizes)

    def first(self, count: int, seconds: float, removed: bool = False) -> OrphanFiles:
        """Return the first of these files."""
        return OrphanFiles(self[:count], self.sizes[:count], seconds, self.nested, removed, len(self[count:]))

    def __str__(self) -> str:
        verb = "were removed" if self.removed else "belong to no snapshot"
        lines = [f"{len(self):,} files ({self.bytes:,} bytes) {verb}, in {self.seconds:.1f} s"]
        lines += [f"left out, since it is another table's: {folder}" for folder in self.nested]
        if self.left:
            lines.append(f"{self.left:,} files are left for the next run")
        return "\n".join(lines)

    _repr_html_ = text_html
