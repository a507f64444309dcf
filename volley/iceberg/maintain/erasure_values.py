"""What an erasure of rows has done, as a plain value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from volley.html_table import text_html

__all__ = ["Erasure"]


@dataclass(frozen=True)
class Erasure:
    """What an erasure of rows has done, or would do.

    Args:
        table: The table's dotted name.
        rows: The number of erased rows by branch, of those that readers saw. A row of two branches counts in each.
        files_rewritten: The number of data files, of the branches' last snapshots, that were written anew or removed:
            also those of which only deleted rows were erased.
        delete_files_removed: The number of delete files with values of the rows that were removed from them.
        snapshots: The ids of the new snapshots.
        expired: The ids of the snapshots that have expired, since they had the rows or values of them.
        tags: The tags that were dropped.
        files_deleted: The deleted files: of expired snapshots, orphans, metadata.
        left: What could not be erased, and why, by the location of a file or the name of a tag.
        proven_at: The metadata of the table of which all files were read again without such a row; None = not proven.
        files_read: The number of files that were read for that, those of checkpoints too.
        letters: The same of each table of dead letters.
        dry_run: True if nothing was done.
    """

    table: str
    rows: Mapping[str, int] = field(default_factory=dict, hash=False)
    files_rewritten: int = 0
    delete_files_removed: int = 0
    snapshots: tuple[int, ...] = ()
    expired: tuple[int, ...] = ()
    tags: tuple[str, ...] = ()
    files_deleted: tuple[str, ...] = field(default=(), repr=False)
    left: tuple[tuple[str, str], ...] = ()
    proven_at: str | None = None
    files_read: int = 0
    letters: tuple[Erasure, ...] = ()
    dry_run: bool = False

    @property
    def is_complete(self) -> bool:
        """True if nothing is left that could not be erased."""
        return not self.left and all(letters.is_complete for letters in self.letters)

    def __str__(self) -> str:
        verb = "would be" if self.dry_run else "were"
        branches = "".join(f", {rows:,} of branch {name}" for name, rows in self.rows.items() if name != "main")
        lines = [
            f"{self.rows.get('main', 0):,} rows of table {self.table}{branches} {verb} erased: "
            f"{self.files_rewritten:,} data files rewritten, {len(self.expired):,} snapshots expired, "
            f"{len(self.files_deleted):,} files deleted"
        ]
        if self.delete_files_removed:
            lines.append(f"{self.delete_files_removed:,} delete files with values of them {verb} removed")
        if self.tags:
            lines.append(f"tags {verb} dropped: {', '.join(self.tags)}")
        lines += [f"left: {what}: {reason}" for what, reason in self.left]
        if self.proven_at is not None:
            lines.append(f"proven: none of {self.files_read:,} files has such a row")
        return "\n".join([*lines, *map(str, self.letters)])

    _repr_html_ = text_html
