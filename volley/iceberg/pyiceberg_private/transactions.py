"""pyiceberg's transactions of several tables, in one request to their catalog."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from pyiceberg.table import Table, Transaction
from pyiceberg.table.update import TableRequirement

from volley.iceberg.pyiceberg_private.guarded import GuardedCatalog, check_refs

__all__ = ["TableChange", "commit_all", "load_committed"]


@dataclass(frozen=True)
class TableChange:
    """The changes of one table within a commit of several.

    Args:
        requirements: What the catalog checks besides the transaction's own requirements.
    """

    table: Table
    transaction: Transaction
    requirements: Sequence[TableRequirement]


def commit_all(changes: Sequence[TableChange]) -> None:
    """Commit changes of several tables in one request, all or none; `load_committed` is to follow for each.

    Raises:
        CommitFailedException: If one of the tables has changed since its transaction started.
    """
    catalog = changes[0].table.catalog
    assert isinstance(catalog, GuardedCatalog)
    catalog.commit_tables(
        [
            (each.table, (*each.transaction._requirements, *each.requirements), each.transaction._updates)
            for each in changes
        ]
    )


def load_committed(change: TableChange) -> None:
    """Load a table's new metadata after `commit_all`, and delete metadata files that its log has dropped."""
    table, before = change.table, change.table.metadata
    table.refresh()
    check_refs(".".join(table.name()), table.metadata, change.transaction._updates)
    # The commit has landed: an old metadata file that stays must not fail it.
    with suppress(Exception):
        table.catalog._delete_old_metadata(table.io, before, table.metadata)
