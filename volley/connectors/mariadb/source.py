"""MariaDbSource and MySqlSource: the rows of tables, and every change of them, by the binary log, exactly once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from volley.capture.source import CaptureSource
from volley.checks import Duration, count, keep, optional, seconds, secret, text
from volley.connectors.mariadb.settings import ServerAddress
from volley.contracts.datasets import Dataset
from volley.contracts.source import Reader, SourceContext
from volley.errors import ConfigError, MissingDependencyError, brief_methods

if TYPE_CHECKING:
    import pyarrow as pa

    from volley.connectors.mariadb.capture import Capture

__all__ = ["MariaDbSource", "MySqlSource"]


@brief_methods
@dataclass(frozen=True, repr=False, kw_only=True)
class MariaDbSource(CaptureSource):
    """Captures tables of MariaDB 10.5 or newer: their rows first, then every change, by the binary log.

    Of one table, the rows are its columns, and three more: ``_op`` is ``"r"`` for a row of a load, ``"i"``, ``"u"`` or
    ``"d"`` for one that was inserted, updated or deleted, ``"t"`` for a truncation, which has no other values; ``_seq``
    orders them; ``_unchanged`` names the columns that are null because the log leaves out what an update has not
    changed (``binlog_row_image`` NOBLOB or MINIMAL). ``Upsert()`` reads all three, and takes the table's primary key
    from the log. A changed key is a deletion of the old one, then the new row. When rows with a new column or a wider
    type come, the job is planned anew with it, and goes on.

    Of several tables, or of whole databases, such rows are packed, with the key of their table: each row of the source
    has the ``namespace`` (the database) and ``table`` that ``rows`` belong to, for `IcebergSink.routed` with
    ``rows="rows"``. Tables that are made later join on the way.

    The server must have ``binlog_format=ROW`` and ``binlog_row_metadata=FULL``. The job stages rows and the log beside
    its checkpoint; its place in the log is kept there too, and the server knows nothing of it: keep
    ``binlog_expire_logs_seconds`` above the longest time that the job stands still.

    Args:
        host: The server's host.
        port: Its port.
        user: A user with ``select``, ``replication slave`` and ``binlog monitor`` on ``*.*``.
        password: Its password.
        server_id: The id of this job among the server's replicas; of this job alone, and not the server's own.
        tables: A table, as ``"database.table"``, or several; ``*`` and ``?`` stand for any characters, as in
            ``"shop.*"``. None = all tables of all databases.
        exclude: Tables not to read, likewise.
        packed: True: rows are packed also of one table. None = only those of several tables.
        load: ``"snapshot"`` (the default): the tables' rows come first. ``"none"``: only changes from now on.
        changelog: True: one row an event instead, to be appended: ``op`` (``"r"``, ``"i"``, ``"u"``, ``"d"``, or
            ``"t"`` for a truncation), ``seq``, ``lsn`` (the place of its transaction in the log) and ``commit_time``,
            ``before`` and ``after``: the rows, as structs, and ``unchanged``.
        sequence: True: rows have ``_lsn``, the place of their transaction in the server's log, and ``_change``, their
            number in the transaction, in place of ``_seq``. Both are written, and ``Upsert()`` takes them as its
            sequence. A truncation, a reload, and a row that changes its key and leaves out a value stop the job then.
        bounded: True: read what the tables and the log have when the run starts, then stop; if more than `max_staged`
            waits, the next run reads the rest. False: keep reading.
        on_rewrite: What to do if rows change without a row in the log, as by a column that is added with a default, a
            column that gets a narrower type or another name, ``truncate partition``, a table that is dropped and made
            again or takes another's name, or a session that logs statements: ``"stop"`` the job (the default);
            ``"reload"`` the table: a truncation, then its rows, exactly beside the log; ``"ignore"`` it. A changelog
            ignores all but statements in place of rows, and needs no key.
        unrepresentable: What to do with values that Iceberg does not have (dates with a zero year, month or day):
            ``"fail"`` (the default), or write ``"null"``.
        max_staged: The most bytes to stage, as a number or a text such as ``"10GB"``, and one segment more; when they
            are reached, the rest waits in the server's log. Loads are staged whole.
        max_segments_per_epoch: The most segments (up to 100,000 events, or one larger transaction) of an epoch;
            None = all. Loads have an epoch of their own.
        timeout: The longest wait for a connection, and for a sign of life: a timedelta, seconds or a text such as
            ``"30s"``. A bounded run that is without a connection for longer fails; an endless one tries on.
        options: Further arguments of PyMySQL's ``connect``, such as ``{"ssl_ca": "ca.pem"}``; secrets in them are
            never shown.

    Raises:
        ConfigError: If a setting is wrong.

    Example:
        >>> MariaDbSource(host="db", user="volley", password="secret", server_id=4711, tables="shop.orders")
        MariaDbSource(host='db', user='volley', password='***', server_id=4711, tables=('shop.orders',))
    """

    connector: ClassVar[str] = "mariadb"
    _dialect: ClassVar[str] = "MariaDb"

    host: str
    port: int = 3306
    user: str
    password: str | None = None
    server_id: int
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
    timeout: Duration = timedelta(seconds=30)
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        keep(self, host=text, port=count, user=text, password=optional(secret), server_id=count)
        super().__post_init__()
        if self.server_id >= 1 << 32:
            raise ConfigError(f"server_id is {self.server_id}", hint="below 4294967296")

    @property
    def identity(self) -> str:
        # Without the host: it may move. Another server is recognised by its log.
        return f"{self.connector}:{self.server_id}/{self._rows}"

    def datasets(self) -> Sequence[Dataset]:
        server, tables = f"{self.connector}://{self.host}:{self.port}", self._selection.patterns or ("*.*",)
        return [Dataset(server, str(table), "TABLE") for table in tables]

    def preview(self, context: SourceContext) -> pa.Schema | None:
        self._check_installed()
        from volley.connectors.mariadb.reader import inspect

        return inspect(self._capture(context)).output.schema

    def open(self, context: SourceContext) -> Reader:
        self._check_installed()
        from volley.connectors.mariadb.reader import MariaDbReader, inspect

        return MariaDbReader(inspect(self._capture(context)), context.parallelism, self.max_segments_per_epoch)

    def _capture(self, context: SourceContext) -> Capture:
        from volley.connectors.mariadb import dialects
        from volley.connectors.mariadb.capture import Capture

        return Capture(
            server=ServerAddress(
                dialect=getattr(dialects, self._dialect)(),
                host=self.host,
                port=self.port,
                user=self.user,
                password=self.password,
                timeout=seconds("timeout", self.timeout),
                server_id=self.server_id,
                options=dict(self.options),
            ),
            **self._captured(context),
        )

    def _check_installed(self) -> None:
        try:
            import pymysql  # noqa: F401
        except ImportError as error:
            raise MissingDependencyError(
                f"{type(self).__name__} needs a package that is missing: {error}",
                hint='pip install "volley-stream[mysql]"',
            ) from error


@brief_methods
@dataclass(frozen=True, repr=False, kw_only=True)
class MySqlSource(MariaDbSource):
    """Captures tables of MySQL 8.4 or newer: their rows first, then every change, by the binary log.

    It does what `MariaDbSource` does, and has the same settings. The server must have ``gtid_mode=ON``,
    ``binlog_format=ROW`` and ``binlog_row_metadata=FULL``, and no ``binlog_row_value_options``. A load locks the
    tables against changes while its snapshot begins, which waits for open transactions that have changed them.

    Args:
        host: The server's host. The other settings are those of `MariaDbSource`.
        user: A user with ``select``, ``lock tables``, ``replication slave`` and ``replication client`` on ``*.*``.

    Raises:
        ConfigError: If a setting is wrong.

    Example:
        >>> MySqlSource(host="db", user="volley", password="secret", server_id=4711, tables="shop.orders")
        MySqlSource(host='db', user='volley', password='***', server_id=4711, tables=('shop.orders',))
    """

    connector: ClassVar[str] = "mysql"
    _dialect: ClassVar[str] = "MySql"
