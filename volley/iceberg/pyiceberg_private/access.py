"""Private attributes of pyiceberg's objects, each behind a function."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Literal, cast
from urllib.parse import urlparse

import pyarrow as pa
from fsspec import AbstractFileSystem
from pyiceberg.catalog import Catalog, MetastoreCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io import FileIO
from pyiceberg.io.fsspec import FsspecFileIO
from pyiceberg.io.pyarrow import _ConvertToArrowSchema
from pyiceberg.schema import Schema, visit
from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import AddSnapshotUpdate, TableRequirement, TableUpdate, ValidatableTableRequirement
from pyiceberg.transforms import TruncateTransform
from pyiceberg.typedef import Record
from pyiceberg.types import IcebergType, PrimitiveType

__all__ = [
    "checks_itself",
    "commit_once",
    "delete_manifests",
    "delete_merged_manifests",
    "file_system",
    "partition_values",
    "require",
    "snapshot_ids",
    "stage",
    "still",
    "to_arrow",
    "truncate_width",
]


def file_system(io: FileIO, location: str) -> AbstractFileSystem:
    """Return the fsspec file system with which a FileIO reads and writes a location."""
    return cast(FsspecFileIO, io)._get_fs_from_uri(urlparse(location), location)


def partition_values(partition: Record) -> list[Any]:
    """Return the values of a partition, in the order of its spec's fields."""
    values: list[Any] = partition._data
    return values


def truncate_width(transform: TruncateTransform[Any]) -> int:
    """Return the width of a truncate transform."""
    return transform._width


class _ToArrow(_ConvertToArrowSchema):
    """Converts types without parts that it is given, and others as pyiceberg does."""

    def __init__(self, known: Callable[[IcebergType], pa.DataType | None]) -> None:
        super().__init__()
        self._known = known

    def primitive(self, primitive: PrimitiveType) -> pa.DataType:
        return self._known(primitive) or super().primitive(primitive)


def to_arrow(schema: Schema | IcebergType, known: Callable[[IcebergType], pa.DataType | None]) -> Any:
    """Return the Arrow schema of a schema, or the Arrow type of a type, with field ids.

    Args:
        known: Returns the Arrow type of a type without parts; None = that of pyiceberg.
    """
    return visit(schema, _ToArrow(known))


def require(transaction: Transaction, requirement: TableRequirement) -> None:
    """Add a requirement that the catalog checks when the transaction is committed."""
    transaction._apply((), (requirement,))


class _Still(ValidatableTableRequirement):
    """A requirement that is a function: it can't be sent to a catalog."""

    type: Literal["volley-still"] = "volley-still"
    holds: Callable[[TableMetadata], bool]

    def validate(self, base_metadata: TableMetadata | None) -> None:  # type: ignore[override]
        if base_metadata is None or not self.holds(base_metadata):
            raise CommitFailedException("Requirement failed: the table has changed")


def still(holds: Callable[[TableMetadata], bool]) -> TableRequirement:
    """Return the requirement that this is true of the metadata the commit replaces; see `checks_itself`."""
    return cast(TableRequirement, _Still(holds=holds))


def checks_itself(catalog: Catalog) -> bool:
    """Return True if pyiceberg checks a catalog's requirements in this process, so that `still` can be one of them."""
    return isinstance(catalog, MetastoreCatalog)


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


def delete_merged_manifests(table: Table, transaction: Transaction) -> None:
    """Delete the manifests that were merged into others within a commit that has landed; pyiceberg leaves them behind.

    Args:
        table: The table as the commit left it.
        transaction: The transaction that was committed.
    """
    for producer in transaction._snapshot_producers:
        snapshot = table.metadata.snapshot_by_id(producer._snapshot_id)
        if snapshot is None or len(producer._written_manifests) < 2:
            continue
        # The commit has landed: an error here must not fail it.
        with suppress(Exception):
            used = {manifest.manifest_path for manifest in snapshot.manifests(table.io)}
            for path in set(producer._written_manifests) - used:
                table.io.delete(path)


def snapshot_ids(transaction: Transaction) -> set[int]:
    """Return the ids of the snapshots that a transaction adds."""
    return {update.snapshot.snapshot_id for update in transaction._updates if isinstance(update, AddSnapshotUpdate)}


def delete_manifests(transaction: Transaction) -> None:
    """Delete the manifests of a transaction that was not committed."""
    for producer in transaction._snapshot_producers:
        producer._clean_all_uncommitted()
