"""Private attributes of pyiceberg's objects, each behind a function."""

from __future__ import annotations

from typing import Any

from pyiceberg.table import Table, Transaction
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.transforms import TruncateTransform
from pyiceberg.typedef import Record

__all__ = [
    "commit_once",
    "delete_manifests",
    "new_manifests",
    "partition_values",
    "require",
    "stage",
    "truncate_width",
]


def partition_values(partition: Record) -> list[Any]:
    """Return the values of a partition, in the order of its spec's fields."""
    values: list[Any] = partition._data
    return values


def truncate_width(transform: TruncateTransform[Any]) -> int:
    """Return the width of a truncate transform."""
    return transform._width


def require(transaction: Transaction, requirement: TableRequirement) -> None:
    """Add a requirement that the catalog checks when the transaction is committed."""
    transaction._apply((), (requirement,))


def stage(transaction: Transaction, *updates: TableUpdate) -> None:
    """Add updates of the metadata to a transaction."""
    transaction._apply(updates)


def commit_once(table: Table, transaction: Transaction, *requirements: TableRequirement) -> None:
    """Commit a transaction, and load the table's new metadata into `table`.

    `Transaction.commit_transaction` would retry a conflict itself, without checking whether the epoch has landed.

    Raises:
        CommitFailedException: If the table has changed since the transaction started.
    """
    table._do_commit(transaction._updates, (*transaction._requirements, *requirements))


def new_manifests(transaction: Transaction) -> set[str]:
    """Return the paths of the manifests that a transaction has written."""
    return {path for producer in transaction._snapshot_producers for path in producer._written_manifests}


def delete_manifests(transaction: Transaction) -> None:
    """Delete the manifests of a transaction that was not committed."""
    for producer in transaction._snapshot_producers:
        producer._clean_all_uncommitted()
