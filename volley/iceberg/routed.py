"""RoutedSink: writes each row to the Iceberg table that its columns name, exactly once in each table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from volley.checks import count, keep, names, one_of, optional, text
from volley.contracts.sink import Committer, Sink, SinkContext
from volley.errors import ConfigError
from volley.html_table import settings_html
from volley.iceberg.config import IcebergSinkConfig
from volley.iceberg.modes import Overwrite
from volley.iceberg.route.keys import KeyFields, KeyFieldsLike
from volley.iceberg.route.names import TableNames
from volley.plan.expressions import Expr

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["RoutedSink"]


@dataclass(frozen=True, repr=False)
class RoutedSink(Sink):
    """Writes each row to the Iceberg table that its columns name; `IcebergSink.routed` makes it.

    Args:
        sink: The sink whose catalog, storage and settings all tables have.
        config: Its settings.
        route: The names of the tables.
        key_fields: The key columns of the tables.
        rows: The column of packed rows; None = the rows themselves are written.
        omit: Columns that are not written.
        limit: The most tables.
        max_open_writers: The most tables with an open file in one task.
        commits_at_once: The most tables that are committed at the same time.
        on_error: What to do with the rows of a table that can't take them.

    Example:
        >>> from volley.iceberg import IcebergSink, IcebergSinkConfig, IcebergStorage
        >>> config = IcebergSinkConfig(namespace="lake", table="events", storage=IcebergStorage.Local("/tmp/lake"))
        >>> IcebergSink(config).routed("{shop}.orders_{country}", key_fields=["id"], omit=["shop"])
        RoutedSink('{shop}.orders_{country}', key_fields=['id'], omit=['shop'])
    """

    sink: Sink
    config: IcebergSinkConfig
    route: TableNames
    key_fields: KeyFields
    rows: str | None = None
    omit: Sequence[str] = ()
    limit: int = 500
    max_open_writers: int = 100
    commits_at_once: int = 8
    on_error: Literal["fail", "park"] = "fail"

    def __post_init__(self) -> None:
        keep(self, rows=optional(text), omit=names, limit=count, max_open_writers=count, commits_at_once=count)
        keep(self, on_error=one_of(("fail", "park")))
        if self.key_fields.own and self.rows is None:
            raise ConfigError(
                'key_fields="primary_key" is for packed rows, which tell their key',
                hint='name the columns, or give rows="…"',
            )
        if self.rows is not None and self.omit:
            raise ConfigError("omit is for rows that are not packed", hint="leave the columns out of pack_rows(…)")

    @classmethod
    def of(
        cls, sink: Sink, config: IcebergSinkConfig, route: str | Expr | None, key_fields: KeyFieldsLike, **settings: Any
    ) -> RoutedSink:
        """Return the sink for settings as users write them, those of `IcebergSink.routed`.

        Raises:
            ConfigError: If one is wrong.
        """
        names = TableNames.of(config.table if route is None else route, config.ref.identifier[:-1])
        return cls(sink, config, names, KeyFields.of(key_fields, config.commit_mode), **settings)

    @property
    def label(self) -> str:
        """The template of the tables' names."""
        return str(self.route)

    @property
    def overwrites(self) -> bool:
        return isinstance(self.config.commit_mode, Overwrite)

    @property
    def target(self) -> str:
        """The catalog's address and the template of the tables' names."""
        return f"{self.config.ref.address}/{'.'.join(self.route.namespace)}/{self.route}"

    @property
    def flush_interval(self) -> timedelta | None:
        return self.sink.flush_interval

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
        from volley.iceberg.catalogs.retry import retry_reads

        if schema is not None:
            self.check_columns(schema)
        retry_reads(self.config.ref.load_catalog)

    def check_columns(self, schema: pa.Schema) -> None:
        from volley.iceberg.route.checks import check_stream

        check_stream(self.route, self.key_fields, self.rows, tuple(self.omit), schema)

    def open(self, context: SinkContext) -> Committer:
        """Return the committer of all tables, with those in the checkpoint; each is opened in the first epoch.

        Raises:
            ConfigError: If the stream lacks a column that the names or keys need.
            PlanError: If the sink has no folder to remember its tables in.
            StorageError: If what the checkpoint remembers is damaged.
        """
        from volley.iceberg.route.checks import check_stream, written
        from volley.iceberg.route.committer import RoutedCommitter, Routing
        from volley.iceberg.route.route import RouteSettings

        omitted = tuple(self.omit)
        check_stream(self.route, self.key_fields, self.rows, omitted, context.schema)
        schema = written(context.schema, omitted) if self.rows is None else None
        limits = self.limit, self.max_open_writers, self.commits_at_once
        routing = Routing(self.target, self.route, self.rows, omitted, *limits)
        return RoutedCommitter(routing, RouteSettings(self.config, self.key_fields, self.on_error, schema, context))

    def __repr__(self) -> str:
        settings = {"rows": self.rows, "omit": list(self.omit) or None, "on_error": self.on_error}
        shown = "".join(f", {name}={value!r}" for name, value in settings.items() if value not in (None, "fail"))
        return f"RoutedSink({str(self.route)!r}, {self.key_fields!r}{shown})"

    _repr_html_ = settings_html
