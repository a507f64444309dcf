"""Format version 3 in pyiceberg's metadata: the ids of rows, which pyiceberg 0.12 reads and does not write.

The rules are those of Iceberg's specification, "Row Lineage": https://iceberg.apache.org/spec/#row-lineage.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyiceberg.table.update as updates_of_metadata
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil, TableMetadataV3
from pyiceberg.table.update import AddSnapshotUpdate, TableUpdate
from pyiceberg.typedef import IcebergBaseModel

__all__ = ["ROW_IDS_SINCE", "check_fresh", "next_row_id"]

ROW_IDS_SINCE = 3
"""The first format version whose rows have ids."""


def next_row_id(metadata: TableMetadata) -> int | None:
    """Return the id of the next row that is added to a table; None before version 3."""
    return metadata.next_row_id or 0 if isinstance(metadata, TableMetadataV3) else None


def check_fresh(metadata: TableMetadata, updates: Sequence[TableUpdate]) -> None:
    """Check that snapshots were made for the metadata to which they are added, as a REST server checks.

    pyiceberg looks at sequence numbers in version 2 only, and not whether a row id is skipped.

    Raises:
        CommitFailedException: If the table has got another snapshot since: ids of rows would be given twice.
    """
    if not isinstance(metadata, TableMetadataV3):
        return
    first_id, number = metadata.next_row_id or 0, metadata.last_sequence_number
    for snapshot in (update.snapshot for update in updates if isinstance(update, AddSnapshotUpdate)):
        if snapshot.first_row_id != first_id or (snapshot.sequence_number or 0) <= number:
            raise CommitFailedException(
                f"Requirement failed: the table's next row id is {first_id} and its last sequence number {number}, but "
                f"snapshot {snapshot.snapshot_id} has {snapshot.first_row_id} and {snapshot.sequence_number}"
            )
        first_id, number = first_id + (snapshot.added_rows or 0), snapshot.sequence_number or 0


def _dump(self: TableMetadataV3, **options: Any) -> str:
    """Return the metadata as JSON; pyiceberg raises an error."""
    return IcebergBaseModel.model_dump_json(self, **options)


_construct = TableMetadataUtil._construct_without_validation


def _upgraded(metadata: TableMetadata) -> TableMetadata:
    """Return the metadata of an upgraded table; pyiceberg has put None there where it has added a snapshot before."""
    if metadata.format_version >= ROW_IDS_SINCE and dict(metadata).get("next_row_id") is None:
        metadata = metadata.model_copy(update={"next_row_id": 0})
    return _construct(metadata)


TableMetadataUtil._construct_without_validation = staticmethod(_upgraded)  # type: ignore[method-assign,assignment]
# A table may be upgraded to it.
updates_of_metadata.SUPPORTED_TABLE_FORMAT_VERSION = ROW_IDS_SINCE  # type: ignore[attr-defined]
# A new table, or one that is upgraded, has no rows with ids: pyiceberg would leave the number out, which is required.
TableMetadataV3.model_fields["next_row_id"].default = 0
TableMetadataV3.model_rebuild(force=True)
TableMetadataV3.model_dump_json = _dump  # type: ignore[method-assign,assignment]
