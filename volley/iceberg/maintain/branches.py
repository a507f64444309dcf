"""Branches: publishes what was written to one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from volley.errors import CommitConflictError, ConfigError
from volley.iceberg.config import IcebergSinkConfig, table_ref

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from volley.iceberg.table import TableRef

__all__ = ["publish_branch"]


def publish_branch(table: TableRef | IcebergSinkConfig) -> int:
    """Move main forward to the last snapshot of a branch, in one step; no data is written.

    The branch stays, and a job that writes to it goes on: publish again whenever it was audited.

    Args:
        table: The table and, set by ``with_branch``, the branch; a `TableRef` or a sink's config.

    Returns:
        The id of the snapshot that is now main's last.

    Raises:
        ConfigError: If the branch is main, or the table has no such branch.
        CommitConflictError: If main has snapshots that the branch has not; nothing was changed then.
        TableNotFoundError: If there is no such table.
        CatalogError: If the catalog can't be reached or refuses.

    Example:
        >>> from volley.iceberg import IcebergStorage, TableRef
        >>> events = TableRef("db", "events", IcebergStorage.Local("/tmp/lake"))
        >>> publish_branch(events.with_branch("audit"))  # doctest: +SKIP
        6301935263872612342
    """
    from pyiceberg.exceptions import CommitFailedException

    ref = table_ref(table)
    try:
        loaded = ref.load()
        head = _fast_forward(loaded, ref)
        with ref.errors():
            # The commit requires that main is still at the snapshot that was checked.
            loaded.manage_snapshots().set_current_snapshot(snapshot_id=head).commit()
    except CommitFailedException as error:
        raise CommitConflictError(
            f"branch {ref.branch!r} of table {ref.name} was not published: main was changed meanwhile",
            hint="publish again; if main has new snapshots by then, that will say so",
        ) from error
    return head


def _fast_forward(table: Table, ref: TableRef) -> int:
    """The branch's last snapshot, if main's is one of those before it."""
    from pyiceberg.table.snapshots import ancestors_of

    main, branch = table.current_snapshot(), table.snapshot_by_name(ref.branch)
    if branch is None or ref.branch == "main":
        raise ConfigError(
            f"branch {ref.branch!r} of table {ref.name} can't be published",
            hint=f"name a branch of the table that is not main: {', '.join(sorted(table.refs())) or 'it has none'}",
        )
    if main and main not in list(ancestors_of(branch, table.metadata)):
        raise CommitConflictError(
            f"branch {ref.branch!r} of table {ref.name} was not published: main is at snapshot "
            f"{main.snapshot_id}, which is not before the branch's {branch.snapshot_id}",
            hint="write the branch anew from main: remove it and start the job with a new checkpoint",
        )
    return branch.snapshot_id
