"""PostgresSource: the rows of PostgreSQL tables, and every change of them, exactly once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Literal

from volley.capture.source import CaptureSource
from volley.checks import Duration, count, duration, keep, optional, seconds, secret, text
from volley.connectors.postgres.settings import ServerAddress, identifier
from volley.contracts.datasets import Dataset
from volley.contracts.source import Reader, SourceContext
from volley.errors import MissingDependencyError, brief_methods

if TYPE_CHECKING:
    import pyarrow as pa

    from volley.connectors.postgres.capture import Capture

__all__ = ["PostgresSource"]


@brief_methods
@dataclass(frozen=True, repr=False, kw_only=True)
class PostgresSource(CaptureSource):
    """Captures tables of PostgreSQL 13 or newer: their rows first, then every change, by logical replication.

    Of one table, the rows are its columns, and three more: ``_op`` is ``"r"`` for a row of a load, ``"i"``, ``"u"`` or
    ``"d"`` for one that was inserted, updated or deleted, ``"t"`` for a truncation, which has no other values; ``_seq``
    orders them; ``_unchanged`` names the columns that are null because the stream leaves out a large value that an
    update has not changed. ``Upsert()`` reads all three, and takes the table's primary key from the stream. A changed
    key is a deletion of the old one, then the new row. A deleted row has its keys only. When rows with a new column or
    a wider type come, the job is planned anew with it, and goes on.

    Of several tables, or of a whole database, such rows are packed, with the key of their table: each row of the source
    has the ``namespace`` and ``table`` that ``rows`` belong to, for `IcebergSink.routed` with ``rows="rows"``; names
    that no table of a lake can have are escaped, as ``a_x002F_b`` for ``a/b``. Tables that are made later join on the
    way, columns that come later are added.

    The job makes the publication and the slot, if need be, stages the stream beside its checkpoint, and acknowledges to
    the server what is staged.

    Args:
        host: The server's host.
        port: Its port.
        database: The database.
        user: A role that may log in, replicate and read the tables; to make the publication, it must own them, and for
            all tables be a superuser.
        password: Its password; None = libpq's own sources, such as ``~/.pgpass``.
        slot_name: The replication slot; of this job alone. Drop it when the job is not needed any more: until then,
            the server keeps its log from where the job stopped.
        publication: The publication that has the tables.
        tables: A table, as ``"schema.table"``, or several; ``*`` and ``?`` stand for any characters, as in
            ``"public.*"``. None = all tables of the publication.
        exclude: Tables not to read, likewise: such as one that can't go on, while the others do. A publication that the
            job makes then names its tables: those that are made later join by ``alter publication … add table``.
        packed: True: rows are packed also of one table. None = only those of several tables.
        load: ``"snapshot"`` (the default): the tables' rows come first. ``"none"``: only changes from now on.
        changelog: True: one row an event instead, to be appended: ``op`` (``"r"``, ``"i"``, ``"u"``, ``"d"``, or
            ``"t"`` for a truncation), ``seq``, ``lsn`` and ``commit_time`` of its transaction, ``before`` and
            ``after``: the rows, as structs, and ``unchanged``. ``before`` has what the replica identity tells.
        sequence: True: rows have ``_lsn``, the position of their transaction's commit in the server's log, and
            ``_change``, their number in the transaction, in place of ``_seq``. Both are written, and ``Upsert()`` takes
            them as its sequence: rows of several jobs and slots, of a load beside the stream and of replayed dead
            letters come to the same table in any order. A truncation, a reload, and a row that changes its key and
            leaves out a value stop the job then.
        bounded: True: read what the tables and the server's log have when the run starts, then stop; if more than
            `max_staged` waits, the next run reads the rest. False: keep reading.
        on_rewrite: What to do if rows change without a change in the stream, as by ``alter table … type``, a column
            with a default, a partition that is attached, another key, a renamed label of an enum, or a table that is
            dropped and made again, or may be missing, as the publication was altered: ``"stop"`` the job (the default);
            ``"reload"`` the table: a truncation, then its rows, exactly beside the stream; ``"ignore"`` rewrites,
            defaults, altered types and publications. A changelog ignores all but an altered publication, which leaves
            out events, and needs no key.
        unrepresentable: What to do with values that Iceberg does not have (infinite or far dates, the time 24:00, the
            NaN of a numeric): ``"fail"`` (the default), or write ``"null"``.
        max_staged: The most bytes to stage, as a number or a text such as ``"10GB"``, and one segment more; when they
            are reached, the rest waits in the server's log. A transaction larger than that is staged whole.
        max_segments_per_epoch: The most segments (up to 100,000 changes, or one larger transaction) of an epoch;
            None = all. Loads have an epoch of their own.
        heartbeat: How often to write a message of a few bytes to the server's log, so that the slot moves on where
            nobody else writes; None = never.
        timeout: The longest wait for a connection: a timedelta, seconds or a text such as ``"30s"``. A bounded run
            that is without one for longer fails; an endless one tries on.
        options: Further parameters of libpq, such as ``{"sslmode": "verify-full"}``; secrets in them are never shown.

    Raises:
        ConfigError: If a setting is wrong.

    Example:
        >>> PostgresSource(
        ...     host="db", database="shop", user="volley", password="secret",
        ...     slot_name="volley_orders", publication="volley_orders", tables="public.orders",
        ... )
        PostgresSource(host='db', database='shop', user='volley', password='***', slot_name='volley_orders', \
publication='volley_orders', tables=('public.orders',))
    """

    host: str
    port: int = 5432
    database: str
    user: str
    password: str | None = None
    slot_name: str
    publication: str
    tables: str | Sequence[str] | None = None
    exclude: str | Sequence[str] | None = None
    packed: bool | None = None
    load: Literal["snapshot", "none"] = "snapshot"
    changelog: bool = False
    sequence: bool = False
    bounded: bool = False
    on_rewrite: Literal["stop", "reload", "ignore"] = "stop"
    unrepresentable: Literal["fail", "null"] = "fail"
    max_staged: int | str = 10 << 30
    max_segments_per_epoch: int | None = None
    heartbeat: Duration | None = None
    timeout: Duration = timedelta(seconds=30)
    options: Mapping[str, str] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        keep(self, host=text, port=count, database=text, user=text, password=optional(secret))
        keep(self, slot_name=identifier, publication=identifier)
        keep(self, heartbeat=optional(duration))
        super().__post_init__()

    @property
    def identity(self) -> str:
        # Without the host: it may move. Another server is recognised by its identifier.
        return f"postgres:{self.database}/{self.slot_name}/{self._rows}"

    def datasets(self) -> Sequence[Dataset]:
        server, tables = f"postgres://{self.host}:{self.port}", self._selection.patterns or ("*.*",)
        return [Dataset(server, f"{self.database}.{table}", "TABLE") for table in tables]

    def preview(self, context: SourceContext) -> pa.Schema | None:
        _check_installed()
        from volley.connectors.postgres.reader import inspect

        return inspect(self._capture(context)).output.schema

    def open(self, context: SourceContext) -> Reader:
        _check_installed()
        from volley.connectors.postgres.reader import PostgresReader, inspect

        return PostgresReader(inspect(self._capture(context)), context.parallelism, self.max_segments_per_epoch)

    def _capture(self, context: SourceContext) -> Capture:
        from volley.connectors.postgres.capture import Capture

        options = tuple((name, str(value)) for name, value in self.options.items())
        timeout = seconds("timeout", self.timeout)
        return Capture(
            server=ServerAddress(self.host, self.port, self.database, self.user, self.password, timeout, options),
            slot=self.slot_name,
            publication=self.publication,
            heartbeat=None if self.heartbeat is None else seconds("heartbeat", self.heartbeat),
            **self._captured(context),
        )


def _check_installed() -> None:
    try:
        import adbc_driver_postgresql  # noqa: F401
        import psycopg2  # noqa: F401
    except ImportError as error:
        raise MissingDependencyError(
            f"PostgresSource needs a package that is missing: {error}", hint='pip install "volley-stream[postgres]"'
        ) from error
