"""Reads and maintains a table in this process, without Spark, and names it as what a stream is joined with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from volley import checks
from volley.checks import Instant
from volley.columns.rows import Rows
from volley.contracts.datasets import Dataset
from volley.contracts.dimension import Dimension, DimensionReader
from volley.errors import ConfigError, brief_methods
from volley.html_table import settings_html
from volley.iceberg.changes import Changes, changes_between
from volley.iceberg.config import IcebergSinkConfig, table_ref
from volley.iceberg.maintain.erasure_values import Erasure
from volley.iceberg.maintain.options import (
    CompactionOptions,
    DeleteOptions,
    EraseOptions,
    ManifestOptions,
    StatisticsOptions,
    takes,
)
from volley.iceberg.maintain.snapshots import SnapshotManager
from volley.iceberg.maintain.values import Compaction, DeleteRewrite, ManifestRewrite, SnapshotList
from volley.iceberg.source import IcebergSource
from volley.iceberg.source_config import IcebergSourceConfig, Incremental, Snapshot
from volley.iceberg.statistics.values import TableStatistics
from volley.iceberg.table import TableRef
from volley.plan.expressions import Expr

if TYPE_CHECKING:
    import pyarrow as pa

    from volley.iceberg.maintain.verdict import TableHealth

__all__ = ["IcebergDimension", "IcebergTable", "TableRows", "iceberg_dimension"]


@brief_methods
@dataclass(frozen=True, init=False)
class IcebergTable(Rows):
    """A table: its rows now and then, its snapshots, its changes, and its maintenance.

    Args:
        table: A `TableRef`, or the settings of a sink that writes to it.

    Raises:
        ConfigError: If `table` is neither.

    Example:
        >>> from volley import IcebergStorage, IcebergTable, TableRef
        >>> events = IcebergTable(TableRef("db", "events", IcebergStorage.Local("/tmp/lake")))
        >>> events.as_of("2026-11-01").select("id", "price").to_arrow()  # doctest: +SKIP
        >>> events.as_of("2026-11-01")
        TableRows('db.events', as_of=datetime.datetime(2026, 11, 1, 0, 0, tzinfo=datetime.timezone.utc))
    """

    ref: TableRef

    def __init__(self, table: TableRef | IcebergSinkConfig) -> None:
        object.__setattr__(self, "ref", table_ref(table))

    def _repr_html_(self) -> str:
        """Return the table's figures, columns, first rows and last snapshots, for notebooks."""
        from volley.iceberg.maintain.shown import table_html

        return settings_html(self) + table_html(self.ref)

    @property
    def rows(self) -> TableRows:
        """The rows of the current snapshot, of the branch that the `TableRef` names."""
        return TableRows(IcebergSourceConfig(self.ref))

    def as_of(self, timestamp: Instant) -> TableRows:
        """Return the rows that were current at a time, also before a rollback.

        Args:
            timestamp: A datetime or a text such as ``"2026-11-01"``; without a zone it is in UTC.
        """
        return TableRows(IcebergSourceConfig(self.ref).with_as_of(timestamp))

    def at(self, version: int | str) -> TableRows:
        """Return the rows of a snapshot.

        Args:
            version: A snapshot's id, or the name of a branch or tag.
        """
        if isinstance(version, str):
            return TableRows(IcebergSourceConfig(self.ref.with_branch(version)))
        return TableRows(IcebergSourceConfig(self.ref).with_mode(Snapshot(version)))

    def snapshots(self) -> SnapshotList:
        """Return the table's snapshots, oldest first. Raises like `SnapshotManager.list_snapshots`."""
        return SnapshotManager(self.ref).list_snapshots()

    def changes(self, start: int | None, end: int | None = None, keys: str | Sequence[str] = ()) -> Changes:
        """Return the changes of the rows after one snapshot up to another; see `changes_between`."""
        return changes_between(self.ref, start, end, keys)

    @takes(ManifestOptions)
    def rewrite_manifests(self, options: ManifestOptions) -> ManifestRewrite:
        """Regroup the entries of the manifests of the `TableRef`'s branch by partition, in one commit.

        Every commit adds manifests, and a query reads each one that may have a partition it needs. Afterwards a
        manifest has some 512 entries of neighbouring partitions, so that a query for one partition reads one or two.
        Rows, snapshot ids and sequence numbers stay, and jobs can write to the table meanwhile. Manifests that are in
        order are kept: a second call changes nothing. The old manifests are deleted with their snapshots, by
        `SnapshotManager.expire_snapshots`.

        Raises:
            ConfigError: If `max_bytes` is wrong; if the table's manifests can't be written: they are encrypted, or a
                partition spec has a transform or a column that is not known; if the branch is a tag.
            SnapshotNotFoundError: If the table has no such branch, or no snapshot yet.
            CommitConflictError: If other writers changed the table during each attempt; nothing is changed then.
            CommitStateUnknownError: If the catalog did not answer, and it can't be told whether it is done.
            StorageError: If a manifest can't be read or written.
            TableNotFoundError: If there is no such table.
            CatalogError: If the catalog can't be reached or rejects the request.

        Example:
            >>> from volley import IcebergStorage, IcebergTable, TableRef
            >>> events = IcebergTable(TableRef("db", "events", IcebergStorage.Local("/tmp/lake")))
            >>> print(events.rewrite_manifests())  # doctest: +SKIP
            2,500 manifests (19,430,112 bytes) of table db.events became 20 (1,204,511 bytes), with 10,000 entries
            moved, in 2.31 s
        """
        from volley.iceberg.maintain.manifests import rewrite_manifests

        return rewrite_manifests(self.ref, options)

    def health(self, orphans: bool = False) -> TableHealth:
        """Look at what the table costs its readers, by its metadata alone, and what would mend it. Changes nothing.

        Args:
            orphans: True also looks for files that belong to no snapshot, which lists all files of the table.

        Raises:
            ConfigError: If the branch is a tag.
            StorageError: If a manifest can't be read.
            TableNotFoundError: If there is no such table.
            CatalogError: If the catalog can't be reached or rejects the request.

        Example:
            >>> from volley import IcebergStorage, IcebergTable, TableRef
            >>> events = IcebergTable(TableRef("db", "events", IcebergStorage.Local("/tmp/lake")))
            >>> print(events.health())  # doctest: +SKIP
            table db.events, branch main: 9,600 rows in 96 data files (1.2 MiB), 0 files of deletes, 96 manifests,
            96 snapshots, 1 partitions
              96 files below 1 MiB
            to mend:
              96 data files that are small or have many deleted rows would become about 1: volley compact
        """
        from volley.iceberg.maintain.health import table_health

        checks.flag("orphans", orphans)
        return table_health(self.ref, orphans)

    def to_arrow(self, limit: int | None = None) -> pa.Table:
        """Return the current rows as an Arrow table. Raises like `TableRows.to_batches`.

        Args:
            limit: The most rows, in any order; None = all.
        """
        return self.rows.to_arrow(limit)

    @takes(CompactionOptions)
    def compact(self, options: CompactionOptions) -> Compaction:
        """Write small data files, too large ones, and those with deleted rows anew in files of one size.

        The rows stay, bit for bit, and in their order unless another one is asked for. Others may write meanwhile:
        rows that they delete stay deleted, also in sorted files. The files are rewritten in groups of one partition;
        a group stays as it is if another writer has replaced or removed one of its files by then.

        Raises:
            ConfigError: If an argument is wrong.
            LayoutChangedError: If another writer changed the table's schema or partition spec meanwhile.
            CommitConflictError: If other writers changed the table during each attempt of a commit: nothing more is
                changed then.
            CommitStateUnknownError: If the catalog did not answer, and it can't be told whether the files were
                replaced: no file was deleted.
            SnapshotNotFoundError: If the table has no such branch.
            CatalogError: If the table does not exist, or the catalog can't be reached.
            SourceError: If a file is gone or damaged.
            StorageError: If the storage fails.

        Example:
            >>> import pyarrow as pa
            >>> from tempfile import mkdtemp
            >>> from volley import IcebergStorage, IcebergTable, TableRef
            >>> ref = TableRef("db", "events", IcebergStorage.Local(mkdtemp()))
            >>> catalog = ref.load_catalog()
            >>> catalog.create_namespace("db")
            >>> table = catalog.create_table("db.events", pa.schema({"id": pa.int64()}))
            >>> for number in range(3):
            ...     table.append(pa.table({"id": [number]}))
            >>> done = IcebergTable(ref).compact(sort_by="id desc")
            >>> done.files_before, done.files_after, IcebergTable(ref).to_arrow()["id"].to_pylist()
            (3, 1, [2, 1, 0])
        """
        from volley.iceberg.maintain.compaction import compact

        return compact(self.ref, options)

    @takes(DeleteOptions)
    def rewrite_position_deletes(self, options: DeleteOptions) -> DeleteRewrite:
        """Merge the delete files of each data file into one, and drop those that delete nothing, in one commit.

        In a table of format version 3, those from before its upgrade become deletion vectors.

        Every merge-on-read upsert leaves delete files, which each reader of their data files reads, too. The commit is
        never refused for writes that land meanwhile: delete files that are new stay beside the merged ones.

        Raises:
            ConfigError: If an argument is wrong.
            CommitConflictError: If other writers changed the table during each attempt: nothing is changed then.
            CommitStateUnknownError: If the catalog did not answer, and it can't be told whether it is done: no file
                was deleted.
            VolleyError: As for `compact`.

        Example:
            >>> from volley import IcebergStorage, IcebergTable, TableRef
            >>> events = IcebergTable(TableRef("db", "events", IcebergStorage.Local("/tmp/lake")))
            >>> print(events.rewrite_position_deletes())  # doctest: +SKIP
            1,200 delete files (1,804,220 bytes) of table db.events were replaced by 40 (310,118 bytes) for 40 data
            files, in 1.2 s
        """
        from volley.iceberg.maintain.deletes import rewrite_deletes

        return rewrite_deletes(self.ref, options)

    @takes(EraseOptions)
    def erase(self, options: EraseOptions) -> Erasure:
        """Erase the rows with some keys for good: from all branches, from history, and from files of no snapshot.

        Files of each branch's last snapshot that have such rows, deleted ones too, are written anew without them, and
        delete files that have their values are applied and removed: one commit a branch, and another one if manifests
        have values of them. Snapshots that have the rows expire, whatever their age, and their files are deleted.
        Readers see the deletion of the rows as any other. A second call finishes what a crash has left, and changes
        nothing otherwise.

        As long as a job that streams the table has not read the erasure, what it holds of the history stays, and is in
        `Erasure.left`. What is outside of the table is not reached: "Maintain tables" says how to reach it.

        Raises:
            ConfigError: If an argument is wrong; if a key does not fit the table's columns; if a tag's snapshot has
                the rows, and tags are not to be dropped; if the table's property ``gc.enabled`` is false. Nothing was
                changed then.
            StorageError: If a file that still has a row is found by the proof; it names these files.
            CommitConflictError: If other writers changed the table during each attempt.
            CommitStateUnknownError: If the catalog did not answer, and it can't be told whether it is done: no file
                was deleted.
            VolleyError: As for `compact`.

        Example:
            >>> import pyarrow as pa
            >>> from tempfile import mkdtemp
            >>> from volley import IcebergStorage, IcebergTable, TableRef
            >>> ref = TableRef("db", "users", IcebergStorage.Local(mkdtemp()))
            >>> catalog = ref.load_catalog()
            >>> catalog.create_namespace("db")
            >>> rows = pa.table({"id": [1, 2, 3], "name": ["Ada", "Grace", "Edsger"]})
            >>> catalog.create_table("db.users", rows.schema).append(rows)
            >>> print(IcebergTable(ref).erase([{"id": 2}]))
            1 rows of table db.users were erased: 1 data files rewritten, 1 snapshots expired, 3 files deleted
            proven: none of 7 files has such a row
            >>> IcebergTable(ref).to_arrow()["id"].to_pylist()
            [1, 3]
        """
        from volley.iceberg.maintain.erasure import erase

        return erase(self.ref, options)

    def upgrade(self, format_version: int) -> int:
        """Upgrade the table to a newer version of Iceberg's format, in one commit without rows; return the old one.

        No table goes back to an older version. From version 3 on, rows have ids that they keep for ever, and deletes
        are vectors: who reads the table must know that version, see "Format version 3". The rows that are there get
        their ids by the next commit, of whatever kind; position deletes stay until `rewrite_position_deletes` or an
        upsert of their data file makes them a vector. A table that has the version already stays as it is.

        Args:
            format_version: 2 or 3.

        Raises:
            ConfigError: If the version is unknown, or older than the table's.
            CommitConflictError: If other writers changed the table during each attempt.
            CommitStateUnknownError: If the catalog did not answer, and it can't be told whether it is done.
            VolleyError: As for `TableRef.load`.

        Example:
            >>> import pyarrow as pa
            >>> from tempfile import mkdtemp
            >>> from volley import IcebergStorage, IcebergTable, TableRef
            >>> ref = TableRef("db", "events", IcebergStorage.Local(mkdtemp()))
            >>> catalog = ref.load_catalog()
            >>> catalog.create_namespace("db")
            >>> table = catalog.create_table("db.events", pa.schema({"id": pa.int64()}))
            >>> IcebergTable(ref).upgrade(3), ref.load().format_version
            (2, 3)
        """
        from volley.iceberg.maintain.upgrade import upgrade_table

        return upgrade_table(self.ref, format_version)

    @takes(StatisticsOptions)
    def compute_statistics(self, options: StatisticsOptions) -> TableStatistics:
        """Count the distinct values of columns, and register them with the table, where query planners find them.

        The counts, and the Theta sketches that they come from, go to a Puffin file, as Iceberg's specification says;
        nulls and empty values don't count. They are those of the branch's last snapshot: compute them again once the
        table has changed. What the snapshot has already is returned at once.

        Raises:
            ConfigError: If there is no such column, or it is nested.
            CommitConflictError: If the snapshot expires meanwhile, or others changed the table during each attempt.
            CommitStateUnknownError: If the catalog did not answer, and it can't be told whether they are registered.
            VolleyError: As for `compact`.

        Example:
            >>> import pyarrow as pa
            >>> from tempfile import mkdtemp
            >>> from volley import IcebergStorage, IcebergTable, TableRef
            >>> ref = TableRef("db", "events", IcebergStorage.Local(mkdtemp()))
            >>> catalog = ref.load_catalog()
            >>> catalog.create_namespace("db")
            >>> rows = pa.table({"id": [1, 2, 3], "kind": ["click", "view", "click"]})
            >>> catalog.create_table("db.events", rows.schema).append(rows)
            >>> IcebergTable(ref).compute_statistics().distinct
            {'id': 3, 'kind': 2}
        """
        from volley.iceberg.statistics.compute import compute_statistics

        return compute_statistics(self.ref, options)


@brief_methods
@dataclass(frozen=True)
class TableRows(Rows):
    """Rows of a table, read when they are asked for. A frozen value: `select` and `filter` return changed copies.

    `IcebergTable` creates it. Nulls stay nulls, at every level of nested columns.

    Args:
        config: The table and what to read of it.
    """

    config: IcebergSourceConfig

    def select(self, *columns: str) -> TableRows:
        """Return only these columns, in this order."""
        return TableRows(self.config.with_columns(columns))

    def include(self, *parts: str) -> TableRows:
        """Return the rows with columns that tell them apart; see `IcebergSourceConfig.with_include`."""
        return TableRows(self.config.with_include(parts))

    def filter(self, predicate: str | Expr) -> TableRows:
        """Return only the rows for which a predicate is true; see `IcebergSourceConfig.with_partition_filter`."""
        if self.config.partition_filter is not None:
            raise ConfigError("the rows have a filter already", hint='join the conditions: "a = 1 and b = 2"')
        return TableRows(self.config.with_partition_filter(predicate))

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows as Arrow batches; files are read in parallel, and a few of them held in memory.

        Raises:
            SnapshotNotFoundError: If the table has no such snapshot, branch or tag.
            ConfigError: If a column or the filter does not fit the table.
            CatalogError: If the table does not exist, or the catalog can't be reached.
            SourceError: If a file is gone or damaged.
        """
        from volley.iceberg.read.whole import read_snapshot

        return read_snapshot(self.config)[1]

    def to_arrow(self, limit: int | None = None) -> pa.Table:
        """Return the rows as an Arrow table. Raises like `to_batches`.

        Args:
            limit: The most rows, in any order; None = all.
        """
        from volley.iceberg.read.whole import read_table

        return read_table(self.config, limit)

    def to_source(self) -> IcebergSource:
        """Return the source with which a job reads these rows."""
        return IcebergSource(self.config)

    def __repr__(self) -> str:
        return f"TableRows({self.config.summary})"

    def _repr_html_(self) -> str:
        """Return the first rows as a table, for notebooks."""
        from volley.iceberg.maintain.shown import rows_html

        return f"<b>{escape(repr(self))}</b>{rows_html(self.to_arrow)}"


@dataclass(frozen=True, repr=False)
class IcebergDimension(Dimension):
    """The rows of an Iceberg table: of its current snapshot in each epoch, or of one that the config pins."""

    config: IcebergSourceConfig

    def __post_init__(self) -> None:
        if isinstance(self.config.mode, Incremental) or self.config.changes == "follow":
            raise ConfigError(
                f"join with {self!r}: a table is joined as it is in each epoch, not as a stream",
                hint="IcebergTable(table_ref), which is looked up again in each epoch",
            )

    @property
    def identity(self) -> str:
        return IcebergSource(self.config).identity

    def datasets(self) -> Sequence[Dataset]:
        return [self.config.ref.dataset()]

    def open(self) -> DimensionReader:
        from volley.iceberg.read.dimension import IcebergDimensionReader

        return IcebergDimensionReader(self.config)

    def __repr__(self) -> str:
        return f"IcebergTable({self.config.summary})"


def iceberg_dimension(table: object) -> IcebergDimension | None:
    """Return the dimension of a value that names an Iceberg table, or rows of one; None for any other value."""
    match table:
        case IcebergTable():
            return IcebergDimension(table.rows.config)
        case TableRows() | IcebergSource():
            return IcebergDimension(table.config)
        case TableRef() | IcebergSinkConfig():
            return IcebergDimension(IcebergSourceConfig(table))
        case IcebergSourceConfig():
            return IcebergDimension(table)
    return None
