"""MaterializedView: a table that is kept equal to a query over Iceberg tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import InitVar, dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, get_args

from volley.checks import Duration, duration, flag, function, keep, of_type, one_of, text
from volley.environment import Environment
from volley.errors import ConfigError, PlanError, brief_methods
from volley.html_table import settings_html
from volley.iceberg.config import IcebergSinkConfig
from volley.iceberg.modes import Append
from volley.iceberg.source import IcebergSource
from volley.iceberg.source_config import IcebergSourceConfig
from volley.iceberg.views.values import RefreshMode, View, ViewPlan, ViewRefresh, ViewStatus, check_query, obstacles
from volley.plan import keyed_nodes, nodes
from volley.plan.expression_nodes import output_name
from volley.stream.stream import DataStream

if TYPE_CHECKING:
    from volley.iceberg.views.following import ViewFollower

__all__ = ["MaterializedView"]

_MODES: tuple[RefreshMode, ...] = get_args(RefreshMode)
_TEXT_SAYS_IT: Any = None


@brief_methods
@dataclass(frozen=True)
class MaterializedView:
    """A table that is kept equal to a query over one or more Iceberg tables. A frozen value.

    A refresh reads what the sources' snapshots have changed since the last one (inserts, updates, deletes, by any
    engine), computes what that changes in the result, and writes it as one snapshot. The same commit writes the
    sources' snapshots that the view now stands for: exactly once, without a checkpoint. Readers of any engine see a
    result that is equal to the query over those snapshots. Compactions and copies of rows change nothing.

    The query is a text in SQL, or a stream of sources, filters, projections, unions and joins with Iceberg tables, with
    `key_by(…).aggregate(…)` of count, sum, avg, min and max, or `deduplicate` by all columns for distinct rows.
    Beside the query's columns, a table of groups has some whose names start with ``_volley_``, which later refreshes
    need; `to_source` leaves them out. Only the view may write to its table, apart from maintenance.

    The algebra is that of DBSP (https://arxiv.org/abs/2203.16684), the rule for extremes that of pg_ivm.

    Args:
        name: The view's name, kept in its table.
        query: The query; left out where `sql` says it.
        into: The table to keep it in; created by the first refresh.
        mode: ``"auto"`` computes the view anew where that is cheaper, by an estimate; ``"incremental"`` only where
            changes are not enough; ``"full"`` always.
        strict: True: raise where changes are not enough, instead of computing the view anew.
        sql: The query in SQL, as for `Environment.sql`.
        sources: The tables of the text, by the names that it gives them: an `IcebergTable`, a `TableRef`, an
            `IcebergSource` or a stream of one.

    Raises:
        ConfigError: If an argument is wrong.
        ExpressionError: If the text is wrong, or says what can't be translated, with the line and column.
        PlanError: If a view can't have the query, or a strict one can't.

    Example:
        >>> from volley import Environment, count, sum_
        >>> from volley import IcebergSinkConfig, IcebergSource, IcebergSourceConfig, IcebergStorage
        >>> lake = IcebergStorage.Local("/tmp/lake")
        >>> orders = IcebergSource(IcebergSourceConfig("orders", namespace="db", storage=lake))
        >>> query = Environment().from_source(orders).key_by("customer").aggregate(n=count(), revenue=sum_("price"))
        >>> into = IcebergSinkConfig(namespace="db", table="revenue", storage=lake)
        >>> view = MaterializedView("revenue", query, into)
        >>> print(view.refresh())  # doctest: +SKIP
        revenue: incremental refresh (about 2,000 rows to read for the changes of 20,000,000): 2,000 rows read, 1,894
        written
        >>> text = "select customer, count(*) as n from orders where price > 5 group by customer"
        >>> into = IcebergSinkConfig(namespace="db", table="large", storage=lake)
        >>> large = MaterializedView("large", sql=text, sources={"orders": orders}, into=into)  # doctest: +SKIP
    """

    name: str
    query: DataStream = _TEXT_SAYS_IT
    into: IcebergSinkConfig = _TEXT_SAYS_IT
    mode: RefreshMode = "auto"
    strict: bool = False
    sql: InitVar[str | None] = None
    sources: InitVar[Mapping[str, Any] | None] = None

    def __post_init__(self, sql: str | None, sources: Mapping[str, Any] | None) -> None:
        keep(self, name=text, strict=flag)
        if sql is not None or sources is not None:
            object.__setattr__(self, "query", self._query_of(sql, sources))
        keep(self, query=of_type(DataStream, "Environment().from_source(IcebergSource(…))"))
        keep(self, into=of_type(IcebergSinkConfig, 'IcebergSinkConfig(namespace="db", table="revenue", storage=…)'))
        one_of(_MODES)("mode", self.mode)
        if not isinstance(self.into.commit_mode, Append):
            raise ConfigError(
                f"commit_mode {self.into.commit_mode!r} is not for a view",
                hint="a view decides itself which rows to replace",
            )
        check_query(self.query._node)
        against = obstacles(self.query._node)
        if self.strict and (against or self.mode == "full"):
            raise PlanError(
                f"view {self.name!r} can't be kept up to date by changes alone: {[*against, 'mode is full'][0]}",
                hint="strict=False computes it anew in each refresh",
            )

    def _query_of(self, sql: str | None, sources: Mapping[str, Any] | None) -> DataStream:
        """Return the query of a text."""
        if sql is None or sources is None or self.query is not _TEXT_SAYS_IT:
            raise ConfigError(
                "a view has a query, or sql= and sources=",
                hint='MaterializedView("name", sql="select …", sources={"orders": IcebergTable(…)}, into=…)',
            )
        return Environment().sql(sql, **of_type(dict, '{"orders": IcebergTable(…)}')("sources", sources))

    def refresh(self, mode: RefreshMode | None = None) -> ViewRefresh:
        """Bring the view up to the current snapshots of its sources, in one commit; return what was done.

        Several may run at once, in any processes: the second finds what the first has done, and does the rest.

        Args:
            mode: In place of the view's own mode.

        Raises:
            ConfigError: If the mode is unknown.
            PlanError: If another writer changed the view's table; if `strict` and changes are not enough.
            SnapshotRolledBackError: If `strict` and a source was rolled back; `SnapshotExpiredError` and
                `TableReplacedError` likewise.
            CommitConflictError: If other writers changed the view's table during each attempt; nothing is changed.
            CommitStateUnknownError: If it may or may not have landed; the next refresh finds out.
            VolleyError: If a catalog or a storage fails, or the query does not fit a source.
        """
        from volley.iceberg.views.refresh import refresh

        return refresh(replace(self._view, mode=self.mode if mode is None else one_of(_MODES)("mode", mode)))

    def follow(
        self, interval: Duration = timedelta(seconds=10), on_refresh: Callable[[ViewRefresh], None] | None = None
    ) -> ViewFollower:
        """Refresh the view whenever a source has a new snapshot, in a thread, until it is stopped.

        A catalog that can't be reached, or a conflict, is logged and tried again; another error ends it.

        Args:
            interval: How often to look for new snapshots.
            on_refresh: Called in that thread with each refresh that did something.

        Returns:
            A handle with `stop`, `wait`, `exception` and `last`; as a context manager it stops at the end.

        Raises:
            ConfigError: If an argument is wrong.
        """
        from volley.iceberg.views.following import ViewFollower

        seconds = duration("interval", interval).total_seconds()
        if on_refresh is not None:
            function("follow(on_refresh=lambda refresh: …)")("on_refresh", on_refresh)
        return ViewFollower(self.refresh, self.name, seconds, on_refresh)

    def explain(self) -> ViewPlan:
        """Return what the next refresh would do, and why. Reads metadata alone, and raises like `refresh`."""
        from volley.iceberg.views.refresh import explain

        return explain(self._view)

    def status(self) -> ViewStatus:
        """Return which snapshots the view stands for, and how far its sources are ahead.

        Raises:
            VolleyError: If a catalog or a storage fails, or the query does not fit a source.
        """
        from volley.iceberg.views.refresh import status

        return status(self._view)

    def to_source(self) -> IcebergSource:
        """Return the view's rows as a source, with the query's columns alone: for jobs, and for views of this view."""
        config, last = IcebergSourceConfig(self.into), self.query._node
        while isinstance(last, nodes.Ordered):
            last = last.input
        if isinstance(last, nodes.Select):
            config = config.with_columns([output_name(column) for column in last.columns])
        elif isinstance(last, keyed_nodes.Aggregate):
            config = config.with_columns(last.names)
        elif isinstance(last, keyed_nodes.Deduplicate):
            config = config.with_columns(last.keys)
        return IcebergSource(config)

    @property
    def _view(self) -> View:
        from volley.iceberg.views.renamed import with_named_groups

        return View(self.name, with_named_groups(self.query._node), self.into, self.mode, self.strict)

    _repr_html_ = settings_html
