"""What the metadata of a table tell of its files, without a look at its manifests."""

from __future__ import annotations

from pyiceberg.table.metadata import TableMetadata

from volley.contracts.reports import TableTotals

__all__ = ["totals_of"]


def totals_of(metadata: TableMetadata, branch: str) -> TableTotals:
    """Return the totals of a branch's last snapshot; a writer may have left out some."""
    head = metadata.snapshot_by_name(branch)
    summary = head.summary.additional_properties if head and head.summary else {}

    def total(name: str) -> int | None:
        text = summary.get(f"total-{name}", "") if head else "0"
        return int(text) if text.isdecimal() else None

    positions, keys = total("position-deletes"), total("equality-deletes")
    return TableTotals(
        rows=total("records"),
        deleted_rows=None if positions is None or keys is None else positions + keys,
        data_files=total("data-files"),
        delete_files=total("delete-files"),
        bytes=total("files-size"),
        snapshots=len(metadata.snapshots),
    )
