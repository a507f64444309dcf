"""Publishes branches: moves main to a branch's last snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING

from volley.errors import CommitConflictError, ConfigError, brief
from volley.iceberg.config import IcebergSinkConfig, table_ref

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

    from volley.iceberg.table import TableRef

__all__ = ["publish_branch"]


@brief
def publish_branch(table: TableRef | IcebergSinkConfig) -> int:
    """Move main forward to the last snapshot of a branch, atomically and without writing data.

    The branch stays, and a job can continue to write to it: publish it again after each audit.

    Args:
        table: The table and its branch (set with ``with_branch``), as a `TableRef` or a sink's config.

    Returns:
        The id of the snapshot that is now main's last.

    Raises:
        ConfigError: If the branch is main, or the table has no such branch.
        CommitConflictError: If main has snapshots that the branch lacks; nothing is changed then.
        TableNotFoundError: If there is no such table.
        CatalogError: If the catalog can't be reached or rejects the request.

    Example:
        >>> from volley.iceberg import IcebergStorage, TableRef
        >>> events = TableRef("db", "events", IcebergStorage.Local("/tmp/lake"))
        >>> publish_branch(events.with_branch("audit"))  # doctest: +SKIP
        6301935263872612342
    """
    from volley.iceberg.maintain.refs import move_branch

    ref = table_ref(table)
    action = f"publishing branch {ref.branch!r}"
    return move_branch(ref.with_branch("main"), action, lambda metadata: _fast_forward(metadata, ref)).id


def _fast_forward(metadata: TableMetadata, ref: TableRef) -> Snapshot:
    """Return the branch's last snapshot; raise CommitConflictError unless main's is one of its ancestors."""
    from volley.iceberg.read.history import ancestors_of

    main, branch = metadata.current_snapshot(), metadata.snapshot_by_name(ref.branch)
    if branch is None or ref.branch == "main":
        raise ConfigError(
            f"branch {ref.branch!r} of table {ref.name} can't be published",
            hint=f"name a branch of the table that is not main: {', '.join(sorted(metadata.refs)) or 'it has none'}",
        )
    if main and main not in ancestors_of(branch, metadata):
        raise CommitConflictError(
            f"branch {ref.branch!r} of table {ref.name} was not published: main is at snapshot "
            f"{main.snapshot_id}, which is not before the branch's {branch.snapshot_id}",
            hint="write the branch anew from main: remove it and start the job with a new checkpoint",
        )
    return branch
