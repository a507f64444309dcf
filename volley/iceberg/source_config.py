"""IcebergSourceConfig: all settings of the Iceberg source, checked when it is built."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, Self

from volley.checks import Duration, Instant, count, duration, flag, instant, keep, mapping, names, one_of, optional
from volley.errors import ConfigError, brief_methods
from volley.html_table import settings_html
from volley.iceberg.catalogs.config import CatalogConfig
from volley.iceberg.config import IcebergSinkConfig, table_ref
from volley.iceberg.documents.reading import FromDocuments
from volley.iceberg.storage.values import IcebergStorage
from volley.iceberg.table import TableRef, named_by
from volley.plan.expression_nodes import ExprNode
from volley.plan.expressions import Expr
from volley.secrets import redacted_html, redacted_repr

if TYPE_CHECKING:
    from volley.documents.collector import Collector
    from volley.documents.mistakes import Path

__all__ = [
    "Batch",
    "IcebergSourceConfig",
    "Incremental",
    "OnChanges",
    "OnExpired",
    "OnRollback",
    "ReadMode",
    "Snapshot",
]

OnChanges = Literal["fail", "skip", "added_rows", "follow"]
OnExpired = Literal["fail", "live_rows", "rescan"]
OnRollback = Literal["fail", "undo", "rescan"]

_INCLUDE = ("row_id", "last_updated_sequence_number")
_CHANGES = ("fail", "skip", "added_rows", "follow")
_ON_EXPIRED = ("fail", "live_rows", "rescan")
_ON_ROLLBACK = ("fail", "undo", "rescan")
_OF_TABLE = ("table", "namespace", "storage", "catalog_uri", "warehouse", "catalog", "properties")
_NO_TABLE: Any = None


@dataclass(frozen=True)
class Batch:
    """Read the current snapshot, then stop. The next run of the same job reads what was added since.

    Example:
        >>> Batch()
        Batch()
    """

    _repr_html_ = settings_html


@dataclass(frozen=True)
class Snapshot:
    """Read one snapshot, then stop.

    Args:
        snapshot_id: The snapshot's id.

    Raises:
        ConfigError: If the id is not a whole number above 0.

    Example:
        >>> Snapshot(3051729675574597004).snapshot_id
        3051729675574597004
    """

    snapshot_id: int

    def __post_init__(self) -> None:
        keep(self, snapshot_id=count)

    _repr_html_ = settings_html


@dataclass(frozen=True)
class Incremental:
    """Follow the table: read each new snapshot, until the job is stopped.

    Without a start, the job reads the whole current snapshot first.

    Args:
        poll_interval: How often to ask the catalog for new snapshots.
        start_snapshot: Read only what was added after this snapshot.
        start_timestamp: Read only what was added after this time; a text such as ``"2026-11-01"`` is in UTC.

    Raises:
        ConfigError: If a setting is wrong, or both starts are given.

    Example:
        >>> Incremental(poll_interval="30s").poll_interval
        datetime.timedelta(seconds=30)
    """

    poll_interval: Duration = timedelta(seconds=10)
    start_snapshot: int | None = None
    start_timestamp: Instant | None = None

    def __post_init__(self) -> None:
        keep(self, poll_interval=duration, start_snapshot=optional(count), start_timestamp=optional(instant))
        if self.start_snapshot is not None and self.start_timestamp is not None:
            raise ConfigError("start_snapshot and start_timestamp are both given", hint="give one of them")

    _repr_html_ = settings_html


ReadMode = Batch | Snapshot | Incremental
_MODES = {"batch": Batch, "snapshot": Snapshot, "incremental": Incremental}


@brief_methods
@dataclass(frozen=True, repr=False)
class IcebergSourceConfig(FromDocuments):
    """The table that the source reads, and all settings. A frozen value: each ``with_…`` returns a changed copy.

    Args:
        table: A `TableRef`, an `IcebergSinkConfig`, or the table's name, with the arguments below. Stored as a
            `TableRef`, whose branch may also be a tag.
        namespace: A list of names, or one dotted string.
        storage: The storage of the table's files, an `IcebergStorage`.
        catalog_uri: As in `IcebergSinkConfig`.
        warehouse: As in `IcebergSinkConfig`.
        catalog: A catalog value (`RestCatalog`, `SqlCatalog`, …), in place of `catalog_uri`.
        properties: Further properties for pyiceberg's catalog and FileIO; they override all other settings.

    Every other setting is described by its ``with_…`` method.

    Raises:
        ConfigError: If a setting is wrong.

    Example:
        >>> from volley import IcebergSourceConfig, IcebergStorage, Incremental
        >>> config = IcebergSourceConfig("events", namespace="db", storage=IcebergStorage.Local("/tmp/lake"))
        >>> config.with_mode(Incremental(poll_interval="30s")).with_columns(["id", "price"]).columns
        ('id', 'price')
    """

    table: TableRef | IcebergSinkConfig | str = _NO_TABLE
    namespace: str | Sequence[str] | None = None
    storage: IcebergStorage | None = None
    catalog_uri: str | None = None
    warehouse: str | None = None
    catalog: CatalogConfig | None = None
    properties: Mapping[str, Any] = field(default_factory=dict, hash=False)
    mode: ReadMode = Batch()
    as_of: datetime | None = None
    partition_filter: str | ExprNode | None = None
    columns: Sequence[str] | None = None
    batch_size: int = 10_000
    changes: OnChanges = "fail"
    keys: Sequence[str] = ()
    sequence: bool = False
    on_expired: OnExpired = "fail"
    on_rollback: OnRollback = "fail"
    max_files_per_epoch: int | None = None
    max_rows_per_epoch: int | None = None
    hold: Duration | None = None
    include: Sequence[str] = ()

    def __post_init__(self) -> None:
        keep(self, properties=mapping)
        object.__setattr__(self, "table", self._ref())
        for name in _OF_TABLE[1:]:
            object.__setattr__(self, name, {} if name == "properties" else None)
        if not isinstance(self.mode, ReadMode):
            raise ConfigError(
                f"mode is of type {type(self.mode).__name__}", hint="Batch(), Snapshot(id) or Incremental(…)"
            )
        keep(self, batch_size=count)
        keep(self, as_of=optional(instant), columns=optional(names), keys=names)
        keep(self, changes=one_of(_CHANGES), on_expired=one_of(_ON_EXPIRED), on_rollback=one_of(_ON_ROLLBACK))
        keep(self, sequence=flag)
        keep(self, max_files_per_epoch=optional(count), max_rows_per_epoch=optional(count))
        keep(self, hold=optional(duration), include=_parts)
        if self.hold is not None:
            self.ref.require("branches", f"table {self.ref.name} can't have the tag that holds snapshots")
        self._check()

    @classmethod
    def from_document(cls, values: dict[str, Any], collector: Collector, path: Path) -> Self | None:
        from volley.iceberg.documents.settings import source_config

        return source_config(cls, _MODES, values, collector, path)

    @property
    def ref(self) -> TableRef:
        """The table with its catalog and storage."""
        assert isinstance(self.table, TableRef)
        return self.table

    @property
    def summary(self) -> str:
        """The table's name and the settings that differ from their defaults."""
        settings = [
            f"{setting.name}={value!r}"
            for setting in fields(self)
            if setting.name not in _OF_TABLE and (value := getattr(self, setting.name)) != setting.default
        ]
        return ", ".join([repr(self.ref.name), *settings])

    def _ref(self) -> TableRef:
        others = (self.namespace, self.storage, self.catalog_uri, self.warehouse, self.catalog)
        if not isinstance(self.table, TableRef | IcebergSinkConfig):
            return named_by(self)
        if any(other is not None for other in others):
            raise ConfigError(
                "the table is given twice, as a TableRef and by its settings",
                hint="IcebergSourceConfig(table_ref), or namespace=…, table=…, storage=…",
            )
        ref = table_ref(self.table)
        return replace(ref, properties={**ref.properties, **self.properties}) if self.properties else ref

    def _check(self) -> None:
        if self.as_of is not None and not isinstance(self.mode, Batch):
            raise ConfigError(f"as_of and {self.mode} contradict each other", hint="give one of them")
        if not isinstance(self.partition_filter, str | ExprNode | None) or self.partition_filter == "":
            raise ConfigError(
                f"partition_filter is of type {type(self.partition_filter).__name__}",
                hint='"year = 2024 and month = 10", or col("year") == 2024',
            )
        if self.columns is not None and (not self.columns or len(set(self.columns)) < len(self.columns)):
            raise ConfigError(f"columns are {self.columns!r}", hint="name each column once; None = all")
        if self.keys and self.changes != "follow":
            raise ConfigError('keys pair the updates of with_changes("follow")', hint='with_changes("follow", keys)')
        if self.sequence and (not self.keys or self.on_rollback != "fail"):
            raise ConfigError(
                'sequence=True goes with with_changes("follow", keys), and with on_rollback="fail"',
                hint="without keys, an update is a deletion and a new row of one number, of which the deletion would "
                "win; what a rollback takes back has no number of its own",
            )
        if self.changes == "follow":
            self.ref.require(
                "history",
                f"the changes of table {self.ref.name} can't be followed",
                'read its rows with Batch(), or its new rows with on_expired="live_rows" or "rescan"; to follow '
                "changes, keep the table in another catalog",
            )
        if self.changes == "follow" and (self.partition_filter is not None or self.on_expired != "fail"):
            raise ConfigError(
                'with_changes("follow") takes no partition_filter, and no on_expired but "fail"',
                hint="filter the changes behind the source: an update may lead out of a filter",
            )
        if self.on_rollback == ("rescan" if self.changes == "follow" else "undo"):
            raise ConfigError(
                f"on_rollback={self.on_rollback!r} does not go with changes={self.changes!r}",
                hint='with_changes("follow") takes back what was rolled back, on_rollback="undo"; a stream of rows '
                'reads the whole table again, "rescan"',
            )

    def with_mode(self, mode: ReadMode) -> IcebergSourceConfig:
        """Set what to read: `Batch()` (the default), `Snapshot(id)` or `Incremental(…)`."""
        return replace(self, mode=mode)

    def with_as_of(self, timestamp: Instant | None) -> IcebergSourceConfig:
        """Read the snapshot that was current at a time, then stop.

        Args:
            timestamp: A datetime or a text such as ``"2026-11-01"`` or ``"2026-11-01T12:00+01:00"``; without a zone
                it is in UTC.
        """
        return replace(self, as_of=None if timestamp is None else instant("as_of", timestamp))

    def with_partition_filter(self, predicate: str | Expr | None) -> IcebergSourceConfig:
        """Read only the rows for which a predicate is true; files that can't have any are not opened.

        Args:
            predicate: SQL such as ``"year = 2024 and month = 10"``, as for `volley.sql`, or an expression. In SQL,
                constants have the types of the columns that they are compared with: ``"day >= '2026-11-01'"``. Any
                column will do; partition columns prune best.
        """
        return replace(self, partition_filter=predicate.node if isinstance(predicate, Expr) else predicate)

    def with_columns(self, columns: Sequence[str] | None) -> IcebergSourceConfig:
        """Read only these columns, in this order; None (the default) = all."""
        return replace(self, columns=columns)

    def with_include(self, include: str | Sequence[str]) -> IcebergSourceConfig:
        """Add columns that tell rows apart, of a table of format version 3.

        Args:
            include: ``"row_id"`` for the column ``_row_id``, a number that a row keeps while it is updated, or written
                to other files; ``"last_updated_sequence_number"`` for ``_last_updated_sequence_number``, that of the
                snapshot that added the row or last changed it. Both are null in rows from before the table's upgrade,
                until its next snapshot. With ``columns``, name the columns there, too.

        Example:
            >>> from volley import IcebergSourceConfig, IcebergStorage
            >>> config = IcebergSourceConfig("events", namespace="db", storage=IcebergStorage.Local("/tmp/lake"))
            >>> config.with_include("row_id").include
            ('row_id',)
        """
        return replace(self, include=(include,) if isinstance(include, str) else include)

    def with_batch_size(self, rows: int) -> IcebergSourceConfig:
        """Set the maximum number of rows per Arrow batch; 10,000 by default."""
        return replace(self, batch_size=rows)

    def with_changes(
        self, changes: OnChanges, keys: str | Sequence[str] = (), *, sequence: bool = False
    ) -> IcebergSourceConfig:
        """Set what to do with a snapshot that changes or deletes rows, such as one of an upsert.

        Compactions, which change no row, are always passed over.

        Args:
            changes: ``"fail"`` (the default): the job fails and names the snapshot. ``"skip"``: pass over the
                snapshot. ``"added_rows"``: read the rows of its new data files, also those that it only carried over.
                ``"follow"``: read all snapshots as changes, with the columns ``_change`` (``insert``,
                ``update_before``, ``update_after``, ``delete``), ``_snapshot`` (long) and ``_committed_at``.
            keys: With "follow", the columns that identify a row: a deleted and an inserted row of one key become an
                update. Without keys, rows of one id do, as for `changes_between`.
            sequence: True, with "follow" and keys: rows also have ``_sequence``, the sequence number of their snapshot,
                which never goes back: for ``Upsert(keys, sequence="_sequence", op_field="_change")``.
        """
        return replace(self, changes=changes, keys=names("keys", keys), sequence=sequence)

    def with_on_expired(self, on_expired: OnExpired) -> IcebergSourceConfig:
        """Set what to do if snapshots that were not yet read have expired.

        In any case the job goes on if the table's metadata still prove what they added: if no file that was there
        before has been removed. Rows that were added and removed again in the meantime are not seen.

        Args:
            on_expired: ``"fail"`` (the default): the job fails and names the snapshots. ``"live_rows"``: read the rows
                of the files that were written since and are still there; rows that were deleted since are missed, and
                rows that a compaction rewrote since may be missed or repeated. ``"rescan"``: read the whole current
                snapshot again.
        """
        return replace(self, on_expired=on_expired)

    def with_on_rollback(self, on_rollback: OnRollback) -> IcebergSourceConfig:
        """Set what to do if snapshots that were read are not in the table's history any more.

        So it is after a rollback, after a branch was set to another snapshot, and after the table was replaced by
        another one under the same identity, as by ``create or replace table``.

        Args:
            on_rollback: ``"fail"`` (the default): the job fails and names the snapshots. ``"undo"``, with
                ``with_changes("follow")``: the changes since the last snapshot that both histories have are taken back,
                the last one first, then those of the new history are read; a copy by key becomes equal to the table
                again. Each change that is taken back has the id of its snapshot, and the time of the last one. The job
                fails if some of these snapshots have expired. ``"rescan"``, without "follow": read the whole current
                snapshot again.

        Example:
            >>> from volley import IcebergSourceConfig, IcebergStorage
            >>> config = IcebergSourceConfig("events", namespace="db", storage=IcebergStorage.Local("/tmp/lake"))
            >>> config.with_changes("follow", keys="id").with_on_rollback("undo").on_rollback
            'undo'
        """
        return replace(self, on_rollback=on_rollback)

    def with_hold(self, max_age: Duration | None = timedelta(days=7)) -> IcebergSourceConfig:
        """Keep the snapshots that a job or a view has not read yet from expiring; else an expiry may outrun it.

        A tag of the table, ``volley-hold-…``, stands at the last snapshot that every sink of the job has, and is moved
        at most once a minute; that of a view stands at the snapshot that the view stands for. Volley's expiry keeps
        that snapshot and all later ones. For other engines the branch that is read gets `max_age` as its own
        ``max-snapshot-age-ms``, unless it has such a setting of yours: Spark, Trino and Flink keep younger snapshots
        whatever their expiry is told; pyiceberg's own expiry keeps none but the last ones of branches and tags.

        Args:
            max_age: The age of the snapshot from which on Volley's expiry drops the tag, and the branch's setting with
                it, so that a job which is not run any more holds nothing for ever. None (the default without this call)
                = hold nothing; a tag that the job had set stays until then, or until `SnapshotManager.drop_tag`.

        Example:
            >>> from volley import IcebergSourceConfig, IcebergStorage
            >>> config = IcebergSourceConfig("events", namespace="db", storage=IcebergStorage.Local("/tmp/lake"))
            >>> config.with_hold("3d").hold
            datetime.timedelta(days=3)
        """
        return replace(self, hold=max_age)

    def with_max_files_per_epoch(self, files: int | None) -> IcebergSourceConfig:
        """Set the maximum number of data files per epoch; None (the default) = no limit."""
        return replace(self, max_files_per_epoch=files)

    def with_max_rows_per_epoch(self, rows: int | None) -> IcebergSourceConfig:
        """Set the maximum number of rows per epoch, at least one data file; None (the default) = no limit."""
        return replace(self, max_rows_per_epoch=rows)

    __repr__ = redacted_repr
    _repr_html_ = redacted_html


def _parts(name: str, value: Any) -> tuple[str, ...]:
    include = names(name, value)
    for part in include:
        one_of(_INCLUDE)(name, part)
    return tuple(part for part in _INCLUDE if part in include)
