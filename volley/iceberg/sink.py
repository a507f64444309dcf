"""IcebergSink and RoutedSink: write a stream into one Iceberg table, or into many, exactly once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, ClassVar, Literal

from volley.checks import keep, of_type
from volley.columns.rows import Rows
from volley.contracts.datasets import Dataset
from volley.contracts.reports import Probe
from volley.contracts.sink import Committer, Sink, SinkContext
from volley.errors import brief_methods
from volley.html_table import settings_html
from volley.iceberg.catalogs.capabilities import FEATURES
from volley.iceberg.config import IcebergSinkConfig
from volley.iceberg.modes import CommitMode, History, KeyedMode, Overwrite, Upsert
from volley.iceberg.route.routing import KeyFields, KeyFieldsLike, Routing, TableNames
from volley.plan.expressions import Expr
from volley.registry import load

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.table import Table


__all__ = ["IcebergSink", "RoutedSink"]


def _which_stays(mode: CommitMode) -> str | None:
    """Return which of several rows of a key a table has in the end; None if it has all."""
    if isinstance(mode, History):
        return _versions(mode)
    if not isinstance(mode, Upsert):
        return None
    if mode.sequence is None:
        order = f"with the greatest {mode.order_by!r} of an epoch" if mode.order_by else "that comes last in an epoch"
        text = f"of the rows of a key, the one {order} stays, and that of a later epoch"
    else:
        columns = _and(mode.sequence_fields)
        text = f"of the rows of a key, the one with the greatest {columns} stays, in whatever order and epoch they come"
        text += f"; deletions are remembered {_how_long(mode)}" if mode.op_field else ""
    partial = {
        "what a row leaves out": mode.unchanged_field,
        "nulls": mode.ignore_nulls,
        "columns but " + ", ".join(mode.update_columns or ()): mode.update_columns,
    }
    kept = " and ".join(name for name, is_kept in partial.items() if is_kept)
    return f"{text}; values stay for {kept}" if kept else text


def _versions(mode: History) -> str:
    """Return which rows a history has."""
    columns = f"the columns {_and(mode.track)}" if mode.track else "a value"
    order = f"of {_and(mode.sequence_fields)}" if mode.sequence else "that the stream tells"
    return (
        f"the rows of a key are its versions in the order {order}, in whatever order and epoch "
        f"they come, a new one where {columns} changed; what they don't show is remembered {_how_long(mode)}"
    )


def _catalog_of(config: IcebergSinkConfig) -> str | None:
    """Return what the catalog is known to lack; None if it is nothing."""
    without = config.ref.capabilities.without
    return f"catalog {config.ref.address} is {without}" if without else None


def _together(sink: IcebergSink | RoutedSink, sinks: Sequence[Sink]) -> str | None:
    """Return how an epoch gets to the tables that a job writes in the catalog of a sink; None if it is one table."""
    if sink.parks:
        return f"tables {sink.label}: committed one after the other, since on_error='park' lets each wait by itself"
    ref = sink.config.ref
    others = [each for each in sinks if isinstance(each, IcebergSink | RoutedSink) and not each.parks]
    labels = dict.fromkeys(each.label for each in others if each.config.ref.group == ref.group)
    if len(labels) < 2 and isinstance(sink, IcebergSink):
        return None
    if ref.capabilities.transactions is False:
        how = f"committed one after the other, since {ref.catalog_title} {FEATURES['transactions'].lack}"
    elif ref.capabilities.transactions:
        how = "an epoch is one commit"
    else:
        how = "an epoch is one commit, if the catalog takes that (`volley check` asks it); else one after the other"
    return f"tables {', '.join(labels)}: {how}"


def _joined(*lines: str | None) -> str | None:
    return "; ".join(filter(None, lines)) or None


def _and(columns: str | Sequence[str]) -> str:
    return " and ".join(map(repr, columns))


def _how_long(mode: KeyedMode) -> str:
    return "for ever" if mode.retention is None else f"for {mode.retention}"


@brief_methods
@dataclass(frozen=True)
class IcebergSink(Sink, Rows):
    """Writes a stream to an Iceberg table, exactly once.

    The executors write Parquet files; the driver commits one snapshot per epoch.

    Args:
        config: The table and all settings, an `IcebergSinkConfig`.

    Raises:
        ConfigError: If `config` is not an `IcebergSinkConfig`.

    Example:
        >>> from volley import IcebergSink, IcebergSinkConfig, IcebergStorage
        >>> storage = IcebergStorage.Local("/tmp/warehouse")
        >>> sink = IcebergSink(IcebergSinkConfig(namespace=["db"], table="events", storage=storage))
        >>> sink.batch_size
        10000
    """

    worker_modules: ClassVar[tuple[str, ...]] = ("volley.iceberg.commit.committer",)

    has_table = True

    config: IcebergSinkConfig

    def __post_init__(self) -> None:
        keep(self, config=of_type(IcebergSinkConfig, 'IcebergSinkConfig(namespace="db", table="events", storage=…)'))

    @property
    def label(self) -> str:
        """The table's name."""
        return self.config.table_name

    @property
    def target(self) -> str:
        """The catalog's address and the table's name."""
        return f"{self.config.ref.address}/{self.config.table_name}"

    def datasets(self, tables: Sequence[str] = ()) -> Sequence[Dataset]:
        return [self.config.ref.dataset()]

    @property
    def flush_interval(self) -> timedelta | None:
        return self.config.flush_interval

    @property
    def batch_size(self) -> int:
        return self.config.batch_size

    @property
    def takes_dictionaries(self) -> bool:
        """True except for upserts and histories, which compare the values of keys."""
        return not isinstance(self.config.commit_mode, KeyedMode)

    @property
    def overwrites(self) -> bool:
        return isinstance(self.config.commit_mode, Overwrite)

    @property
    def replaces_rows(self) -> bool | None:
        return isinstance(self.config.commit_mode, Upsert | History)

    def explain(self) -> str | None:
        return _joined(_which_stays(self.config.commit_mode), _catalog_of(self.config))

    parks: ClassVar[bool] = False

    def explain_together(self, sinks: Sequence[Sink]) -> str | None:
        return _together(self, sinks)

    @property
    def dead_letter(self) -> Sink | None:
        """The sink of dead letters: a table or JSON files; see `IcebergSinkConfig.with_dead_letter`."""
        target = self.config.dead_letter
        if target is None:
            return None
        table = self.config.dead_letter_table
        return IcebergSink(table) if table else self._files(target)

    def routed(
        self,
        route: str | Expr | None = None,
        *,
        key_fields: KeyFieldsLike = None,
        create: bool = True,
        rows: str | None = None,
        omit: Sequence[str] = (),
        limit: int = 500,
        max_open_writers: int = 100,
        commits_at_once: int = 8,
        on_error: Literal["fail", "park"] = "fail",
    ) -> RoutedSink:
        """Return a sink that writes each row to the table that its columns name, with this sink's settings.

        Each table gets one commit an epoch, with the epoch's mark: rows are in it exactly once. Where the catalog takes
        several tables in one commit, and ``on_error`` is ``"fail"``, an epoch is in all tables or in none; else a
        reader may see it in one table before it is in another.

        Args:
            route: The tables' names as a template with columns in braces, ``"{namespace}.{table}"``, or an expression
                such as ``col("type").str.lower()``. A name without a dot is in the config's namespace. None = the
                config's `table` is the template.
            key_fields: The key columns for upserts: of all tables, or of each, ``{"orders": ["id"]}``, where others are
                appended to; ``"primary_key"`` = those that `pack_rows` notes, appended to without. None = the config's
                commit mode for all.
            create: True makes tables that are missing; False: a row for one is an error.
            rows: The column of packed rows (`pack_rows`): each table has the columns of its packed rows, and new
                columns are added as they come. None = each table has the stream's columns.
            omit: Columns that are not written, such as those that only name the table.
            limit: The most tables; rows for one more fail the job.
            max_open_writers: The most tables with an open file in one task. Beyond it the table that was idle longest
                closes its file, so that its rows are in more and smaller files.
            commits_at_once: The most tables that are committed, or prepared for one commit, at the same time.
            on_error: What to do if a table can't take its rows, because it is gone, replaced, or of another schema.
                ``"fail"``: the job fails, after the other tables have the epoch, or, where they are committed together,
                with the epoch in none. ``"park"``: its rows are kept with the
                checkpoint while the others go on, and are committed, epoch by epoch, once the table can take them.

        Raises:
            ConfigError: If a setting is wrong.

        Example:
            >>> from volley import IcebergSink, IcebergSinkConfig, IcebergStorage
            >>> config = IcebergSinkConfig(namespace="lake", table="all", storage=IcebergStorage.Local("/tmp/lake"))
            >>> IcebergSink(config).routed("{kafka_topic}", omit=["kafka_topic"], on_error="park")
            RoutedSink('{kafka_topic}', Append(), omit=['kafka_topic'], on_error='park')
        """
        config = self.config.with_create_table(create)
        names = TableNames.of(config.table if route is None else route, config.ref.identifier[:-1])
        routing = Routing(
            names,
            KeyFields.of(key_fields, config.commit_mode),
            rows=rows,
            omit=omit,
            limit=limit,
            max_open_writers=max_open_writers,
            commits_at_once=commits_at_once,
            on_error=on_error,
        )
        return RoutedSink(self, config, routing)

    def table(self) -> Table:
        """Load the table's current metadata and return it as pyiceberg's ``Table``, to look at what was written.

        Raises:
            TableNotFoundError: If the table does not exist yet.
            CatalogError: If the catalog can't be reached or rejects the request.
            StorageError: If the table's metadata can't be read.
        """
        return self.config.ref.load()

    def to_arrow(self, limit: int | None = None) -> pa.Table:
        """Return the rows that the table has now, as an Arrow table.

        Args:
            limit: The most rows, in any order; None = all.

        Raises:
            TableNotFoundError: If the table does not exist yet.
            CatalogError: If the catalog can't be reached or rejects the request.
            SourceError: If a file is gone or damaged.
        """
        return self.config.ref.to_arrow(limit)

    def dead_letter_at(self, name: str) -> Sink:
        """Return the sink of a table of this name in the same catalog, or of JSON files in this folder.

        Raises:
            ConfigError: If `name` is not valid, or is the sink's own table.
        """
        letters = IcebergSink(self.config.with_dead_letter(name)).dead_letter
        assert letters is not None
        return letters

    def _files(self, target: str) -> Sink:
        within = target.startswith(f"{self.config.storage.root}/")
        options = self.config.storage.fsspec_options(self.config.properties) if within else {}
        sink: Sink = load("sink", "files")(target, format="json", storage_options=options)
        return sink

    def check(self, schema: pa.Schema | None) -> None:
        """Connect to the catalog, and compare the table with the stream's schema if both are known.

        Raises:
            VolleyError: As for `open`.
        """
        from volley.iceberg.commit.tables import check_table

        check_table(self.config, schema)

    def check_columns(self, schema: pa.Schema) -> None:
        from volley.iceberg.commit.tables import check_columns

        check_columns(self.config, schema)

    def probes(self, schema: pa.Schema | None) -> Sequence[Probe]:
        from volley.iceberg.commit.probes import table_probes

        return table_probes(self.config, schema)

    def open(self, context: SinkContext) -> Committer:
        """Connect to the catalog; create the table, or check that the stream's schema fits it.

        Raises:
            CatalogError: If the catalog can't be reached or rejects a request.
            SchemaMismatchError: If the stream does not fit the table; lists every difference.
            TableNotFoundError: If the table is missing and ``create_table`` is False, or the job has written to it.
            StorageError: If the table's metadata can't be written.
        """
        from volley.iceberg.commit.tables import open_table
        from volley.iceberg.maintain.committer import open_committer
        from volley.iceberg.upsert.columns import with_own_columns

        config = with_own_columns(self.config, context.schema)
        catalog, table = open_table(config, context.schema, create=not context.resumed)
        return open_committer(catalog, table, config, context)

    _repr_html_ = settings_html


@dataclass(frozen=True, repr=False)
class RoutedSink(Sink):
    """Writes each row to the Iceberg table that its columns name; `IcebergSink.routed` makes it.

    Args:
        sink: The sink whose catalog, storage and settings all tables have.
        config: Its settings.
        routing: How rows are spread over tables.

    Example:
        >>> from volley import IcebergSink, IcebergSinkConfig, IcebergStorage
        >>> config = IcebergSinkConfig(namespace="lake", table="events", storage=IcebergStorage.Local("/tmp/lake"))
        >>> IcebergSink(config).routed("{shop}.orders_{country}", key_fields=["id"], omit=["shop"])
        RoutedSink('{shop}.orders_{country}', key_fields=['id'], omit=['shop'])
    """

    sink: IcebergSink
    config: IcebergSinkConfig
    routing: Routing

    @property
    def label(self) -> str:
        """The template of the tables' names."""
        return str(self.routing.names)

    @property
    def overwrites(self) -> bool:
        return isinstance(self.config.commit_mode, Overwrite)

    @property
    def replaces_rows(self) -> bool | None:
        return isinstance(self.config.commit_mode, Upsert | History)

    @property
    def target(self) -> str:
        """The catalog's address and the template of the tables' names."""
        names = self.routing.names
        return f"{self.config.ref.address}/{'.'.join(names.namespace)}/{names}"

    def datasets(self, tables: Sequence[str] = ()) -> Sequence[Dataset]:
        return [self.config.ref.beside(table).dataset() for table in tables]

    @property
    def flush_interval(self) -> timedelta | None:
        return self.sink.flush_interval

    def explain(self) -> str | None:
        modes = dict.fromkeys(map(_which_stays, self.routing.key_fields.modes))
        return _joined(*modes, _catalog_of(self.config))

    @property
    def parks(self) -> bool:
        """True if a table that can't take its rows does not keep them from the others."""
        return self.routing.on_error == "park"

    def explain_together(self, sinks: Sequence[Sink]) -> str | None:
        return _together(self, sinks)

    @property
    def dead_letter(self) -> Sink | None:
        """The sink of dead letters, as for one table."""
        return self.sink.dead_letter

    def dead_letter_at(self, name: str) -> Sink:
        """Return the sink of a table of this name in the same catalog, or of JSON files in this folder.

        Raises:
            ConfigError: If `name` is not valid.
        """
        return self.sink.dead_letter_at(name)

    def check(self, schema: pa.Schema | None) -> None:
        """Connect to the catalog, and check that the stream has the columns that the names and keys need.

        Raises:
            VolleyError: As for `open`.
        """
        from volley.iceberg.catalogs.answers import retry_reads

        if schema is not None:
            self.check_columns(schema)
        retry_reads(self.config.ref.load_catalog)

    def check_columns(self, schema: pa.Schema) -> None:
        from volley.iceberg.route.rows import check_stream

        check_stream(self.routing, schema)

    def probes(self, schema: pa.Schema | None) -> Sequence[Probe]:
        from volley.iceberg.commit.probes import how_committed

        return [*super().probes(schema), Probe("commits", lambda: how_committed(self.config.ref, self.parks))]

    def open(self, context: SinkContext) -> Committer:
        """Return the committer of all tables, with those in the checkpoint; each is opened in the first epoch.

        Raises:
            ConfigError: If the stream lacks a column that the names or keys need.
            PlanError: If the sink has no folder to remember its tables in.
            StorageError: If what the checkpoint remembers is damaged.
        """
        from volley.iceberg.route.committer import RoutedCommitter
        from volley.iceberg.route.route import RouteSettings
        from volley.iceberg.route.rows import check_stream, written

        check_stream(self.routing, context.schema)
        schema = written(self.routing, context.schema) if self.routing.rows is None else None
        return RoutedCommitter(self.target, RouteSettings(self.config, self.routing, schema, context))

    def __repr__(self) -> str:
        routing = self.routing
        settings = {"rows": routing.rows, "omit": list(routing.omit) or None, "on_error": routing.on_error}
        shown = "".join(f", {name}={value!r}" for name, value in settings.items() if value not in (None, "fail"))
        return f"RoutedSink({str(routing.names)!r}, {routing.key_fields!r}{shown})"

    _repr_html_ = settings_html
