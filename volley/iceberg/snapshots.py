"""What can be done with a table's snapshots beside writing new ones: publish a branch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from volley.errors import CommitConflictError, ConfigError
from volley.iceberg.catalogs import catalog_errors, load_catalog

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from volley.iceberg.config import IcebergSinkConfig

__all__ = ["publish_branch"]


def publish_branch(config: IcebergSinkConfig) -> int:
    """Move main forward to the last snapshot of the config's branch, in one step; no data is written.

    The branch stays, and a job that writes to it goes on: publish again whenever it was audited.

    Args:
        config: Names the table and, by `IcebergSinkConfig.with_branch`, the branch.

    Returns:
        The id of the snapshot that is now main's last.

    Raises:
        ConfigError: If the config's branch is main, or the table has no such branch.
        CommitConflictError: If main has snapshots that the branch has not; nothing was changed then.
        TableNotFoundError: If there is no such table.
        CatalogError: If the catalog can't be reached or refuses.

    Example:
        >>> from volley.iceberg import IcebergSinkConfig, IcebergStorage
        >>> config = IcebergSinkConfig(namespace="db", table="events", storage=IcebergStorage.Local("/tmp/lake"))
        >>> publish_branch(config.with_branch("audit"))  # doctest: +SKIP
        6301935263872612342
    """
    from pyiceberg.exceptions import CommitFailedException

    catalog = load_catalog(config)
    try:
        with catalog_errors(config):
            table = catalog.load_table(config.identifier)
            head = _fast_forward(table, config)
            # The commit asks that main is still where it was when that was checked.
            table.manage_snapshots().set_current_snapshot(snapshot_id=head).commit()
    except CommitFailedException as error:
        raise CommitConflictError(
            f"branch {config.branch!r} of table {config.table_name} was not published: main was changed meanwhile",
            hint="publish again; if main has new snapshots by then, that will say so",
        ) from error
    return head


def _fast_forward(table: Table, config: IcebergSinkConfig) -> int:
    """The branch's last snapshot, if main's is one of those before it."""
    from pyiceberg.table.snapshots import ancestors_of

    main, branch = table.current_snapshot(), table.snapshot_by_name(config.branch)
    if branch is None or config.branch == "main":
        raise ConfigError(
            f"branch {config.branch!r} of table {config.table_name} can't be published",
            hint=f"name a branch of the table that is not main: {', '.join(sorted(table.refs())) or 'it has none'}",
        )
    if main and main not in list(ancestors_of(branch, table.metadata)):
        raise CommitConflictError(
            f"branch {config.branch!r} of table {config.table_name} was not published: main is at snapshot "
            f"{main.snapshot_id}, which is not before the branch's {branch.snapshot_id}",
            hint="write the branch anew from main: remove it and start the job with a new checkpoint",
        )
    return branch.snapshot_id
