"""Reads and maintains a table in this process, without Spark: now, as it was, what changed; for notebooks, scripts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from volley.checks import Duration, Instant, count, flag, names, optional
from volley.epoch import WriteResult
from volley.errors import ConfigError, brief_methods
from volley.html_table import settings_html
from volley.iceberg.changes import Changes, changes_between
from volley.iceberg.config import IcebergSinkConfig, table_ref
from volley.iceberg.maintain.options import CompactionOptions, DeleteOptions
from volley.iceberg.maintain.snapshots import SnapshotManager
from volley.iceberg.maintain.values import Compaction, DeleteRewrite, ManifestRewrite, SnapshotList
from volley.iceberg.source import IcebergSource
from volley.iceberg.source_config import IcebergSourceConfig, Snapshot
from volley.iceberg.statistics.values import TableStatistics
from volley.iceberg.table import TableRef
from volley.iceberg.table_rows import TableRows
from volley.plan.expressions import Expr
from volley.rows import Rows
from volley.sink import ExecutorTask

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["IcebergTable", "TimeTravelQuery"]


@brief_methods
@dataclass(frozen=True, init=False)
class IcebergTable(Rows):
    """A table: its rows now and then, its snapshots, its changes, and its maintenance.

    Args:
        table: A `TableRef`, or the settings of a sink that writes to it.

    Raises:
        ConfigError: If `table` is neither.

    Example:
        >>> from volley.iceberg import IcebergStorage, IcebergTable, TableRef
        >>> events = IcebergTable(TableRef("db", "events", IcebergStorage.Local("/tmp/lake")))
        >>> events.as_of("2026-11-01").select("id", "price").to_arrow()  # doctest: +SKIP
        >>> events.as_of("2026-11-01")
        TableRows('db.events', as_of=datetime.datetime(2026, 11, 1, 0, 0, tzinfo=datetime.timezone.utc))
    """

    ref: TableRef

    def __init__(self, table: TableRef | IcebergSinkConfig) -> None:
        object.__setattr__(self, "ref", table_ref(table))

    _repr_html_ = settings_html

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

    def rewrite_manifests(self, dry_run: bool = False, *, max_bytes: int | None = None) -> ManifestRewrite:
        """Regroup the entries of the manifests of the `TableRef`'s branch by partition, in one commit.

        Every commit adds manifests, and a query reads each one that may have a partition it needs. Afterwards a
        manifest has some 512 entries of neighbouring partitions, so that a query for one partition reads one or two.
        Rows, snapshot ids and sequence numbers stay, and jobs can write to the table meanwhile. Manifests that are in
        order are kept: a second call changes nothing. The old manifests are deleted with their snapshots, by
        `SnapshotManager.expire_snapshots`.

        Args:
            dry_run: Change nothing, and return what would be done.
            max_bytes: The most bytes of manifests to rewrite: of those whose partitions overlap together all, or none,
                and the first of such groups in any case. None = all.

        Raises:
            ConfigError: If `max_bytes` is wrong; if the table's manifests can't be written: its format version is 3,
                they are encrypted, or a partition spec has a transform or a column that is not known; if the branch
                is a tag.
            SnapshotNotFoundError: If the table has no such branch, or no snapshot yet.
            CommitConflictError: If other writers changed the table during each attempt; nothing is changed then.
            CommitStateUnknownError: If the catalog did not answer, and it can't be told whether it is done.
            StorageError: If a manifest can't be read or written.
            TableNotFoundError: If there is no such table.
            CatalogError: If the catalog can't be reached or rejects the request.

        Example:
            >>> from volley.iceberg import IcebergStorage, IcebergTable, TableRef
            >>> events = IcebergTable(TableRef("db", "events", IcebergStorage.Local("/tmp/lake")))
            >>> print(events.rewrite_manifests())  # doctest: +SKIP
            2,500 manifests (19,430,112 bytes) of table db.events became 20 (1,204,511 bytes), with 10,000 entries
            moved, in 2.31 s
        """
        from volley.iceberg.maintain.manifests import plan_rewrite, rewrite

        most = optional(count)("max_bytes", max_bytes)
        return (plan_rewrite if flag("dry_run", dry_run) else rewrite)(self.ref, most)

    def to_arrow(self, limit: int | None = None) -> pa.Table:
        """Return the current rows as an Arrow table. Raises like `TableRows.to_batches`.

        Args:
            limit: The most rows, in any order; None = all.
        """
        return self.rows.to_arrow(limit)

    def compact(
        self,
        where: str | Expr | None = None,
        target_size: int | None = None,
        small_below: float = 0.75,
        deletes_above: float = 0.2,
        dry_run: bool = False,
        *,
        small_bytes: int | None = None,
        least_files: int | None = None,
        large_above: float = 1.8,
        old_specs: bool = False,
        old_schemas: bool = False,
        rewrite_all: bool = False,
        sort_by: bool | str | Sequence[str] = False,
        z_order: Sequence[str] = (),
        group_size: int | None = None,
        max_commits: int = 1,
        max_bytes: int | None = None,
        max_time: Duration | None = None,
        run: Callable[[Sequence[ExecutorTask]], list[WriteResult]] | None = None,
    ) -> Compaction:
        """Write small data files, too large ones, and those with deleted rows anew in files of one size.

        The rows stay, bit for bit, and in their order unless another one is asked for. Others may write meanwhile:
        rows that they delete stay deleted, also in sorted files. The files are rewritten in groups of one partition;
        a group stays as it is if another writer has replaced or removed one of its files by then.

        Args:
            where: A predicate over the rows, as for `TableRows.filter`: only data files that may have such rows are
                rewritten, with all of their rows. None = all.
            target_size: The size of the new files in bytes; None = the table's ``write.target-file-size-bytes``, or
                else 128 MiB.
            small_below: Files below this share of the size are rewritten together with others of their partition.
            deletes_above: Files with at least this share of deleted rows are rewritten, also alone.
            dry_run: Change nothing, and return what would be done.
            small_bytes: Files of at least this size in bytes are not small, whatever the size of the new ones. None =
                `small_below` alone.
            least_files: The fewest small files of a partition that are rewritten; a larger one of them waits for
                others with together as many rows, so that each row is rewritten log2(rows of a full file / rows of
                its first one) times at most, however often this runs, as in a job. None = all small files.
            large_above: Files above this multiple of the size are split.
            old_specs: True rewrites all files of older partition specs, divided by the current one; False = they stay.
            old_schemas: True rewrites all files that were written with an older schema, as far as snapshots tell.
            rewrite_all: True rewrites all files, for example to sort all of them.
            sort_by: The order of the rows that are rewritten, in each group: True = the table's sort order; or
                columns, such as ``["country", "at desc"]``. Rows are sorted with runs on the local disk.
            z_order: Columns that queries filter by, alone or together: rows that are near each other in all of them
                come into the same files.
            group_size: The most bytes of files that are rewritten and replaced together; None = ten times the target.
                A larger one sorts more rows together, and takes more memory: 16 bytes a row, for a z-order also the
                columns that it sorts by.
            max_commits: The most snapshots. Several of them keep what is done if a later one fails.
            max_bytes: The most bytes of files to rewrite: oldest groups first, at least one.
            max_time: The time after which no further group is rewritten: a timedelta, seconds or a text such as
                ``"5m"``. What was written by then is committed.
            run: Runs the work on Spark's executors, as does `Environment.task_runner`; None = in this process.

        Raises:
            ConfigError: If an argument is wrong, or the table has format version 3.
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
            >>> from volley.iceberg import IcebergStorage, IcebergTable, TableRef
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

        options = CompactionOptions(
            target_size=target_size,
            small_below=small_below,
            small_bytes=small_bytes,
            least_files=least_files,
            large_above=large_above,
            deletes_above=deletes_above,
            old_specs=old_specs,
            old_schemas=old_schemas,
            rewrite_all=rewrite_all,
            sort_by=sort_by,
            z_order=z_order,
            group_size=group_size,
            max_commits=max_commits,
            max_bytes=max_bytes,
            max_time=max_time,
        )
        return compact(self._filtered(where), options, _runner(run), flag("dry_run", dry_run))

    def rewrite_position_deletes(
        self,
        where: str | Expr | None = None,
        convert_equality: bool = False,
        dry_run: bool = False,
        *,
        max_bytes: int | None = None,
        max_time: Duration | None = None,
        run: Callable[[Sequence[ExecutorTask]], list[WriteResult]] | None = None,
    ) -> DeleteRewrite:
        """Merge the delete files of each data file into one, and drop those that delete nothing, in one commit.

        Every merge-on-read upsert leaves delete files, which each reader of their data files reads, too. The commit is
        never refused for writes that land meanwhile: delete files that are new stay beside the merged ones.

        Args:
            where: A predicate over the rows, as for `TableRows.filter`: only the deletes of data files that may have
                such rows are merged, and of those that share a delete file with them. None = all.
            convert_equality: True also replaces equality deletes, which Flink writes and pyiceberg can't read, by the
                positions of the rows that they delete. The columns that they compare are read from all data files
                that they apply to.
            dry_run: Change nothing, and return what would be done.
            max_bytes: The most bytes of files to read; at least one data file's deletes are merged.
            max_time: The time after which no further data file is taken: a timedelta, seconds or a text such as
                ``"5m"``. What was merged by then is committed.
            run: Runs the work on Spark's executors, as does `Environment.task_runner`; None = in this process.

        Raises:
            ConfigError: If an argument is wrong, or the table has format version 3.
            CommitConflictError: If other writers changed the table during each attempt: nothing is changed then.
            CommitStateUnknownError: If the catalog did not answer, and it can't be told whether it is done: no file
                was deleted.
            VolleyError: As for `compact`.

        Example:
            >>> from volley.iceberg import IcebergStorage, IcebergTable, TableRef
            >>> events = IcebergTable(TableRef("db", "events", IcebergStorage.Local("/tmp/lake")))
            >>> print(events.rewrite_position_deletes())  # doctest: +SKIP
            1,200 delete files (1,804,220 bytes) of table db.events were replaced by 40 (310,118 bytes) for 40 data
            files, in 1.2 s
        """
        from volley.iceberg.maintain.deletes import rewrite_deletes

        options = DeleteOptions(convert_equality, max_bytes, max_time)
        return rewrite_deletes(self._filtered(where), options, _runner(run), flag("dry_run", dry_run))

    def compute_statistics(
        self,
        columns: Sequence[str] | None = None,
        dry_run: bool = False,
        *,
        run: Callable[[Sequence[ExecutorTask]], list[WriteResult]] | None = None,
    ) -> TableStatistics:
        """Count the distinct values of columns, and register them with the table, where query planners find them.

        The counts, and the Theta sketches that they come from, go to a Puffin file, as Iceberg's specification says;
        nulls and empty values don't count. They are those of the branch's last snapshot: compute them again once the
        table has changed. What the snapshot has already is returned at once.

        Args:
            columns: The columns; None = all that are not nested.
            dry_run: Read nothing, and return how much would be read.
            run: Runs the work on Spark's executors, as does `Environment.task_runner`; None = in this process.

        Raises:
            ConfigError: If there is no such column, or it is nested.
            CommitConflictError: If the snapshot expires meanwhile, or others changed the table during each attempt.
            CommitStateUnknownError: If the catalog did not answer, and it can't be told whether they are registered.
            VolleyError: As for `compact`.

        Example:
            >>> import pyarrow as pa
            >>> from tempfile import mkdtemp
            >>> from volley.iceberg import IcebergStorage, IcebergTable, TableRef
            >>> ref = TableRef("db", "events", IcebergStorage.Local(mkdtemp()))
            >>> catalog = ref.load_catalog()
            >>> catalog.create_namespace("db")
            >>> rows = pa.table({"id": [1, 2, 3], "kind": ["click", "view", "click"]})
            >>> catalog.create_table("db.events", rows.schema).append(rows)
            >>> IcebergTable(ref).compute_statistics().distinct
            {'id': 3, 'kind': 2}
        """
        from volley.iceberg.statistics.compute import compute_statistics

        asked = None if columns is None else names("columns", columns)
        return compute_statistics(self.ref, asked, _runner(run), flag("dry_run", dry_run))

    def _filtered(self, where: str | Expr | None) -> IcebergSourceConfig:
        config = IcebergSourceConfig(self.ref)
        return config if where is None else config.with_partition_filter(where)


@brief_methods
@dataclass(frozen=True, init=False)
class TimeTravelQuery:
    """Sources of earlier states of a table, for jobs, and what changed between them.

    Args:
        table: A `TableRef`, or the settings of a sink that writes to it.

    Raises:
        ConfigError: If `table` is neither.

    Example:
        >>> from volley.iceberg import IcebergStorage, TableRef, TimeTravelQuery
        >>> query = TimeTravelQuery(TableRef("db", "events", IcebergStorage.Local("/tmp/lake")))
        >>> query.as_of_version(3051729675574597004)
        IcebergSource('db.events', mode=Snapshot(snapshot_id=3051729675574597004))
    """

    ref: TableRef

    def __init__(self, table: TableRef | IcebergSinkConfig) -> None:
        object.__setattr__(self, "ref", table_ref(table))

    def as_of_timestamp(self, timestamp: Instant) -> IcebergSource:
        """Return the source of the rows that were current at a time; see `IcebergSourceConfig.with_as_of`."""
        return IcebergTable(self.ref).as_of(timestamp).to_source()

    def as_of_version(self, version: int | str) -> IcebergSource:
        """Return the source of a snapshot, by its id or by the name of a branch or tag."""
        return IcebergTable(self.ref).at(version).to_source()

    def changes_between(self, start: int | None, end: int | None = None, keys: str | Sequence[str] = ()) -> Changes:
        """Return the changes of the rows after one snapshot up to another; see `volley.iceberg.changes_between`."""
        return changes_between(self.ref, start, end, keys)


def _runner(run: Any) -> Any:
    if run is not None and not callable(run):
        raise ConfigError(f"run is {type(run).__name__}, not a function", hint="Environment().task_runner()")
    return run
