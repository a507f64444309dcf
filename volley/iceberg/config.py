"""IcebergSinkConfig: all settings of the Iceberg sink, checked when it is built."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Self, cast

from volley.checks import Duration, between, count, duration, flag, keep, mapping, names, of_type, one_of, optional
from volley.errors import ConfigError, brief_methods
from volley.iceberg.catalogs.config import CatalogConfig
from volley.iceberg.catalogs.values import RestCatalog
from volley.iceberg.documents.reading import FromDocuments
from volley.iceberg.layout.partitioning import Partitioning, partitioning
from volley.iceberg.modes import Append, CommitMode, EvolutionMode, Maintenance, check_evolution, commit_mode
from volley.iceberg.settings import (
    TUNINGS,
    Compression,
    Tuning,
    check_compression,
    check_snapshot_properties,
    check_texts,
    check_version,
    format_version,
)
from volley.iceberg.storage.values import IcebergStorage
from volley.iceberg.table import TableRef, named_by
from volley.secrets import redacted_html, redacted_repr

if TYPE_CHECKING:
    from volley.documents.collector import Collector
    from volley.documents.mistakes import Path

__all__ = ["IcebergSinkConfig", "table_ref"]

_TABLE_DEFAULT = Partitioning.table_default()
_APPEND = Append()


@brief_methods
@dataclass(frozen=True, repr=False, kw_only=True)
class IcebergSinkConfig(FromDocuments):
    """The table that the sink writes to, and all settings. A frozen value: each ``with_…`` returns a changed copy.

    Args:
        catalog_uri: ``http(s)://…`` (REST), ``sqlite:///…`` or ``postgresql://…`` (SQL), ``thrift://…`` (Hive) or
            ``memory``; None = `catalog`, or a SQLite catalog in local storage.
        warehouse: A REST catalog's name for the warehouse; for other catalogs a folder in the storage, or its URL.
        namespace: A list of names, or one dotted string; stored as a tuple. None = Glue's database.
        table: The table's name.
        storage: The storage of the table's files, an `IcebergStorage`.
        catalog: A catalog value (`RestCatalog`, `SqlCatalog`, …), in place of `catalog_uri`.

    Every other setting is described by its ``with_…`` method.

    Raises:
        ConfigError: If a setting is wrong.

    Example:
        >>> from volley import IcebergSinkConfig, IcebergStorage
        >>> config = IcebergSinkConfig(namespace="db", table="events", storage=IcebergStorage.Local("/tmp/lake"))
        >>> config.with_compression("zstd", level=3)  # doctest: +NORMALIZE_WHITESPACE
        IcebergSinkConfig(namespace=('db',), table='events', storage=LocalStorage(path='/tmp/lake'),
            compression='zstd', compression_level=3)
    """

    catalog_uri: str | None = None
    warehouse: str | None = None
    namespace: str | Sequence[str] | None
    table: str
    storage: IcebergStorage
    catalog: CatalogConfig | None = None
    credential: str | None = None
    token: str | None = None
    properties: Mapping[str, Any] = field(default_factory=dict, hash=False)
    max_records: int | None = None
    batch_size: int = 10_000
    flush_interval: timedelta | None = None
    target_file_size_mb: float = 128
    compression: Compression = "snappy"
    compression_level: int | None = None
    partitioning: Partitioning = _TABLE_DEFAULT
    commit_mode: CommitMode = _APPEND
    schema_evolution: EvolutionMode = "add_columns"
    renames: Mapping[str, str] = field(default_factory=dict, hash=False)
    drops: Sequence[str] = ()
    create_table: bool = True
    branch: str = "main"
    snapshot_properties: Mapping[str, str] = field(default_factory=dict, hash=False)
    dead_letter: str | None = None
    table_properties: Mapping[str, str] = field(default_factory=dict, hash=False)
    maintenance: Maintenance | None = None

    def __post_init__(self) -> None:
        keep(self, properties=mapping, snapshot_properties=mapping, table_properties=mapping, renames=mapping)
        keep(self, flush_interval=optional(duration), drops=names, create_table=flag)
        keep(self, max_records=optional(count), batch_size=count, target_file_size_mb=between(0, 1_000_000))
        keep(self, maintenance=optional(of_type(Maintenance, "Maintenance(), or None")))
        self._keep("partitioning", partitioning(self.partitioning))
        self._keep("commit_mode", commit_mode(self.commit_mode))
        self._keep("namespace", self.ref.namespace)
        check_compression(self.compression, self.compression_level)
        check_evolution(self.schema_evolution, self.renames, self.drops)
        check_snapshot_properties(self.snapshot_properties)
        check_texts("table", self.table_properties)
        check_version(self.table_properties)
        _check_capabilities(self)
        _check_dead_letter(self)

    def _keep(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    @classmethod
    def from_table(cls, ref: TableRef) -> Self:
        """Return the default settings for the table of a `TableRef`.

        Example:
            >>> from volley import IcebergSinkConfig, IcebergStorage, TableRef
            >>> ref = TableRef("db", "events", IcebergStorage.Local("/tmp/lake"), catalog="memory")
            >>> IcebergSinkConfig.from_table(ref).with_max_records(1_000_000).max_records
            1000000
        """
        return cls(
            warehouse=ref.warehouse,
            namespace=ref.namespace or (),
            table=ref.table,
            storage=ref.storage,
            catalog=None if ref.has_default_catalog else cast(CatalogConfig, ref.catalog),
            properties=ref.properties,
            branch=ref.branch,
        )

    @classmethod
    def from_document(cls, values: dict[str, Any], collector: Collector, path: Path) -> Self | None:
        from volley.iceberg.documents.settings import sink_config

        return sink_config(cls, values, collector, path)

    @cached_property
    def ref(self) -> TableRef:
        """The table with its catalog and storage."""
        ref = named_by(self)
        return replace(ref, catalog=self._authorized(ref.catalog), branch=self.branch)

    @property
    def identifier(self) -> tuple[str, ...]:
        """The namespace's parts and the table's name, as a tuple."""
        return self.ref.identifier

    @property
    def table_name(self) -> str:
        """Namespace and table, joined by dots."""
        return self.ref.name

    @property
    def dead_letter_table(self) -> IcebergSinkConfig | None:
        """The settings of the dead-letter table, in the same catalog and storage; None = no dead letters, or files."""
        if self.dead_letter is None or "/" in self.dead_letter:
            return None
        return IcebergSinkConfig.from_table(self.ref.beside(self.dead_letter)).with_create_table(self.create_table)

    def _authorized(self, catalog: CatalogConfig | str | None) -> CatalogConfig | str | None:
        if self.credential is None and self.token is None:
            return catalog
        if not isinstance(catalog, RestCatalog):
            raise ConfigError(
                f"credential and token are for REST catalogs, not {type(catalog).__name__}", hint="leave them out"
            )
        return replace(catalog, credential=self.credential, token=self.token)

    def with_credential(self, credential: str | None) -> IcebergSinkConfig:
        """Set the OAuth2 client credentials for a REST catalog, ``"id:secret"``."""
        return replace(self, credential=credential)

    def with_token(self, token: str | None) -> IcebergSinkConfig:
        """Set the bearer token for a REST catalog."""
        return replace(self, token=token)

    def with_properties(self, properties: Mapping[str, Any]) -> IcebergSinkConfig:
        """Add properties for pyiceberg's catalog and FileIO; they override all other settings."""
        return replace(self, properties={**self.properties, **mapping("properties", properties)})

    def with_max_records(self, rows: int | None) -> IcebergSinkConfig:
        """Set the maximum number of rows per data file; None (the default) = only the size limits a file."""
        return replace(self, max_records=rows)

    def with_batch_size(self, rows: int) -> IcebergSinkConfig:
        """Set the maximum number of rows per Arrow batch that the writer gets; 10,000 by default."""
        return replace(self, batch_size=rows)

    def with_flush_interval(self, interval: Duration | None) -> IcebergSinkConfig:
        """Set the maximum time between a row's arrival and its commit.

        Args:
            interval: A timedelta, seconds or a text such as ``"30s"``; above 0. None = the environment's interval.
        """
        return replace(self, flush_interval=None if interval is None else duration("flush_interval", interval))

    def with_target_file_size_mb(self, megabytes: float) -> IcebergSinkConfig:
        """Set the size of a data file in MiB, encoded, ±10 %; 128 by default."""
        return replace(self, target_file_size_mb=megabytes)

    def with_compression(self, compression: Compression, level: int | None = None) -> IcebergSinkConfig:
        """Set the Parquet codec; snappy by default.

        Args:
            compression: ``"none"``, ``"snappy"``, ``"gzip"``, ``"lz4"``, ``"zstd"`` or ``"brotli"``.
            level: 1–9 for gzip, 1–12 for lz4, 1–22 for zstd, 0–11 for brotli; None = the codec's default, 6 for gzip.
        """
        return replace(self, compression=compression, compression_level=level)

    def with_partitioning(
        self, strategy: Partitioning | Literal["none", "table_default"] | Iterable[Partitioning]
    ) -> IcebergSinkConfig:
        """Set the partitioning of a new table: "none", "table_default", a `Partitioning` or a list of them.

        An existing table keeps its partition spec; if it differs, anything but "table_default" raises ConfigError
        when the job starts. A task buffers its rows until its end, in memory or on the executor's local disk, and
        writes them partition by partition, in the table's sort order if it has one: every file is sorted.

        Example:
            >>> from volley import IcebergSinkConfig, IcebergStorage, Partitioning
            >>> config = IcebergSinkConfig(namespace="db", table="events", storage=IcebergStorage.Local("/tmp/lake"))
            >>> config.with_partitioning([Partitioning.time("at"), Partitioning.bucket("user", n=8)]).partitioning
            Partitioning(day(at), bucket[8](user))
        """
        return replace(self, partitioning=partitioning(strategy))

    def with_commit_mode(self, mode: CommitMode | Literal["append", "overwrite"]) -> IcebergSinkConfig:
        """Set how an epoch's rows change the table: "append", "overwrite", or a mode such as `Upsert` or `History`."""
        return replace(self, commit_mode=commit_mode(mode))

    def with_schema_evolution(
        self, mode: EvolutionMode, renames: Mapping[str, str] | None = None, drops: Sequence[str] = ()
    ) -> IcebergSinkConfig:
        """Set how the schema of an existing table may change.

        A change is committed in the snapshot of the first epoch that needs it. Data files are not rewritten: readers
        see their rows under the new schema.

        Args:
            mode: ``"strict"``: no changes; if the stream does not fit the table, the job raises SchemaMismatchError
                with every difference. ``"add_columns"`` (the default): adds columns that the table lacks, and fields
                inside structs, lists and maps. ``"full"``: also widens int to long, float to double and decimals to
                more digits, and makes required columns optional, where the stream needs it; applies `renames` and
                `drops`.
            renames: Columns and their new names, ``{"old": "new", "address.zip": "code"}``. Renames that are already
                done are skipped.
            drops: Columns to drop, ``["note", "address.zip"]``. A column that the stream still has, or that a
                partition, the sort order or the table's identifier needs, raises an error when the job starts.

        Raises:
            ConfigError: If `renames` or `drops` are given without "full", or contradict each other.

        Example:
            >>> from volley import IcebergSinkConfig, IcebergStorage
            >>> config = IcebergSinkConfig(namespace="db", table="events", storage=IcebergStorage.Local("/tmp/lake"))
            >>> config.with_schema_evolution("full", renames={"name": "title"}, drops=["note"]).renames
            {'name': 'title'}
        """
        return replace(self, schema_evolution=mode, renames={} if renames is None else renames, drops=drops)

    def with_create_table(self, create: bool) -> IcebergSinkConfig:
        """Set whether a missing namespace and table are created (the default); False: raise TableNotFoundError."""
        return replace(self, create_table=create)

    def with_branch(self, branch: str) -> IcebergSinkConfig:
        """Set the branch to commit to; the first commit creates a missing branch from main's last snapshot.

        Write, audit, publish::

            stream.to_sink(IcebergSink(config.with_branch("audit"))).execute("events")  # main is unchanged
            assert table.scan().use_ref("audit").to_arrow()["price"].null_count == 0    # any check, any reader
            publish_branch(config.with_branch("audit"))                                # main moves to audit's snapshot
        """
        return replace(self, branch=branch)

    def with_snapshot_properties(self, properties: Mapping[str, str]) -> IcebergSinkConfig:
        """Add texts to the summary of every snapshot."""
        return replace(
            self, snapshot_properties={**self.snapshot_properties, **mapping("snapshot_properties", properties)}
        )

    def with_table_properties(self, properties: Mapping[str, str]) -> IcebergSinkConfig:
        """Add properties of a new table; they override Volley's defaults.

        Volley's defaults keep commits cheap in a table that gets a snapshot per minute for years: old metadata files
        are deleted except the last hundred (``write.metadata.delete-after-commit.enabled``), and small manifests are
        merged (``commit.manifest-merge.enabled``). Set them to ``"false"`` for Iceberg's defaults. A catalog that
        refuses one of them gets the table without it.
        """
        return replace(self, table_properties={**self.table_properties, **mapping("table_properties", properties)})

    def with_dead_letter(self, target: str | None) -> IcebergSinkConfig:
        """Set where rows go that can't be read, processed or written; None = the job fails at the first such row.

        A dead letter has the row as payload, the error, the step and column at fault, the source and the position in
        it, epoch, job and time, and is written exactly once, with its epoch. The page of settings has all columns.

        Args:
            target: A table of the same catalog, ``"table"`` in the sink's own namespace or ``"namespace.table"``; or,
                with a slash in it, a folder (a path or a URL) for JSON files.

        Raises:
            ConfigError: If the target is not valid, or is the sink's own table.

        Example:
            >>> from volley import IcebergSinkConfig, IcebergStorage
            >>> config = IcebergSinkConfig(namespace="db", table="events", storage=IcebergStorage.Local("/tmp/lake"))
            >>> config.with_dead_letter("bad_events").dead_letter_table.table_name
            'db.bad_events'
        """
        return replace(self, dead_letter=target)

    def with_maintenance(self, maintenance: Maintenance | None) -> IcebergSinkConfig:
        """Set how the job keeps the table in shape while it writes it; None (the default) = not at all.

        Beside the epochs, one task at a time, small files and those with deleted rows are compacted, delete files are
        merged, manifests rewritten and snapshots expired. Of several jobs that write to one table, one maintains it
        until it stops: they agree through a property of the table. A failure is logged and never stops the job;
        ``print(job.maintenance)`` shows what was done and what is due.

        Example:
            >>> from volley import IcebergSinkConfig, IcebergStorage, Maintenance
            >>> config = IcebergSinkConfig(namespace="db", table="events", storage=IcebergStorage.Local("/tmp/lake"))
            >>> config.with_maintenance(Maintenance(expire_after="2d")).maintenance.expire_after
            datetime.timedelta(days=2)
        """
        return replace(self, maintenance=maintenance)

    def with_tuning(self, preset: Tuning) -> IcebergSinkConfig:
        """Set batch size, flush interval and file size at once; later calls of other methods override them.

        Args:
            preset: ``"low_latency"`` (1,000 rows, 10 s, 32 MiB), ``"balanced"`` (10,000 rows, 60 s, 128 MiB) or
                ``"high_throughput"`` (100,000 rows, 300 s, 512 MiB).
        """
        return replace(self, **TUNINGS[one_of(TUNINGS)("tuning", preset)])

    __repr__ = redacted_repr
    _repr_html_ = redacted_html


def table_ref(table: TableRef | IcebergSinkConfig) -> TableRef:
    """Return the `TableRef` of a sink's config, or the given `TableRef` itself.

    Raises:
        ConfigError: If `table` is neither.
    """
    if isinstance(table, IcebergSinkConfig):
        return table.ref
    if not isinstance(table, TableRef):
        raise ConfigError(f"table is {table!r}", hint='TableRef("db", "events", storage), or an IcebergSinkConfig')
    return table


def _check_capabilities(config: IcebergSinkConfig) -> None:
    """Raise ConfigError if the settings ask for what the catalog is known to lack."""
    ref, maintenance = config.ref, config.maintenance
    if maintenance is not None and (maintenance.expire_after is not None or maintenance.retain_most is not None):
        ref.require(
            "expiry",
            f"maintenance can't expire snapshots of table {ref.name}",
            "leave it to the catalog's own collection: Maintenance(expire_after=None, retain_most=None)",
        )
    if format_version(config.table_properties) > 2:
        ref.require(
            "format_3", f"table {ref.name} can't be of format version {format_version(config.table_properties)}"
        )


def _check_dead_letter(config: IcebergSinkConfig) -> None:
    if config.dead_letter is None:
        return
    if not isinstance(config.dead_letter, str) or not config.dead_letter.strip():
        raise ConfigError(f"dead_letter {config.dead_letter!r} is not a target", hint='"namespace.table", or a path')
    try:
        letters = config.dead_letter_table
    except ConfigError as error:
        raise ConfigError(
            f"dead_letter {config.dead_letter!r} is not a target: {error.message}",
            hint='"namespace.table" in the same catalog, or a path or URL, which has a slash in it',
        ) from error
    if letters and letters.identifier == config.identifier:
        raise ConfigError(f"dead_letter {config.dead_letter!r} is the sink's own table", hint="name another one")
