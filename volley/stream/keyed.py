"""Streams whose rows are grouped by key: aggregates of windows and of all rows, series, places."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, TypeVar

from volley.checks import Duration
from volley.errors import ConfigError, ExpressionError, brief_methods
from volley.plan import keyed_nodes
from volley.plan.aggregates import Aggregation
from volley.plan.expression_nodes import Column, ExprNode
from volley.plan.over import Ordering, OverFunction
from volley.plan.series import SeriesFunction, SeriesTiming
from volley.plan.windows import Emission, LateRows, Retention, Window, Windowing
from volley.stream.pipeline import as_html
from volley.stream.steps import RowSteps
from volley.stream.verbs import MAX_AHEAD

__all__ = ["KeyedStream", "OrderedStream", "RetainedStream", "SeriesStream", "WindowedStream"]

S = TypeVar("S", bound=RowSteps)
_FOR_EVER = Retention()


@brief_methods
@dataclass(frozen=True)
class KeyedStream(Generic[S]):
    """A stream whose rows are grouped by key, created by `DataStream.key_by`: a frozen value.

    Example:
        >>> from volley import Environment, MemorySource, count
        >>> orders = Environment().from_source(MemorySource([{"customer": 1, "price": 2}]))
        >>> print(orders.key_by("customer").aggregate(n=count()))
        aggregate n=count() by col('customer')
          read MemorySource(1 row)
    """

    _stream: S
    _keys: tuple[ExprNode, ...]

    def window(
        self,
        window: Window,
        on: str,
        lateness: Duration = timedelta(0),
        emit: Emission = "final",
        late: LateRows = "drop",
        max_ahead: Duration | None = MAX_AHEAD,
        idle_after: Duration | None = None,
        fill_gaps: Duration | None = None,
        buckets: int = 16,
    ) -> WindowedStream[S]:
        """Group the rows of each key by windows of event time.

        The watermark is the latest event time so far minus `lateness`: a window is closed once the watermark has
        reached its end, and all windows are at the end of bounded sources. With several sources, the slowest one
        counts.

        Args:
            window: `tumbling`, `sliding` or `session`.
            on: The timestamp column. A row without a time is in no window: it is counted, and treated as a late one.
            lateness: How much older than the latest row before it a row can be and still be on time.
            emit: ``"final"``: one row for each window, when it is closed, which never changes; ``"updates"``: after
                each epoch the rows of the windows that it changed, for a sink that upserts.
            late: What happens to rows whose windows are closed, besides being counted in the metric `rows_late`:
                ``"drop"`` or ``"dead_letter"``: they go to the sink's dead letter.
            max_ahead: A row that is further ahead of the computer's clock does not move the watermark and is in no
                window: it is counted, and treated as a late one. None = no limit.
            idle_after: A source that has had no row for so long does not hold the watermark back; None = it does.
            fill_gaps: The longest time between two windows of a key that windows without rows fill: their counts are 0,
                other aggregates null, or what `Aggregation.forward_fill` and `interpolate` say. They come out with the
                window behind them. For tumbling windows with final rows; None = windows without rows don't come out.
            buckets: The number of buckets that the state is divided into by key; a task holds one in memory. With
                another number, a restarted job divides the state anew.

        Raises:
            ConfigError: If an argument is wrong.
        """
        timing: Any = {"lateness": lateness, "late": late, "max_ahead": max_ahead, "idle_after": idle_after}
        windowing = Windowing(window, on, emit, fill_gaps, **timing, buckets=buckets)  # type: ignore[arg-type]
        return WindowedStream(self._stream, self._keys, windowing)

    def series(
        self,
        on: str,
        lateness: Duration = timedelta(0),
        late: LateRows = "drop",
        pause: Duration | None = None,
        max_ahead: Duration | None = MAX_AHEAD,
        idle_after: Duration | None = None,
        buckets: int = 16,
    ) -> SeriesStream[S]:
        """Put the rows of each key into the order of event time, for functions of a row and those before it.

        A row comes out once, when the watermark has passed its time; all rows do at the end of bounded sources. The
        watermark is that of windows, see `window`.

        Args:
            on: The timestamp column. A row without a time is in no series: it is counted, and treated as a late one.
            lateness: How much older than the latest row before it a row can be and still be on time.
            late: What happens to rows behind the watermark, besides being counted in the metric `rows_late`:
                ``"drop"`` or ``"dead_letter"``: they go to the sink's dead letter.
            pause: A row so long after the one before it begins its key's series anew, and the key's state ends after so
                long; None = the last row of every key is kept.
            max_ahead: A row that is further ahead of the computer's clock does not move the watermark and is in no
                series: it is counted, and treated as a late one. None = no limit.
            idle_after: A source that has had no row for so long does not hold the watermark back; None = it does.
            buckets: The number of buckets that the state is divided into by key; a task holds one in memory. With
                another number, a restarted job divides the state anew.

        Raises:
            ConfigError: If an argument is wrong.
        """
        timing: Any = {"lateness": lateness, "late": late, "max_ahead": max_ahead, "idle_after": idle_after}
        ordering = SeriesTiming(on, pause, **timing, buckets=buckets)  # type: ignore[arg-type]
        return SeriesStream(self._stream, self._keys, ordering)

    def order_by(
        self,
        *order: str,
        on: str | None = None,
        lateness: Duration = timedelta(0),
        late: LateRows = "drop",
        max_ahead: Duration | None = MAX_AHEAD,
        idle_after: Duration | None = None,
        ttl: Duration | None = None,
        buckets: int = 16,
    ) -> OrderedStream[S]:
        """Put the rows of each key into an order, for functions of a row and those around it: SQL's OVER.

        With `on`, rows come out once, when the watermark has passed their time. Without it a job emits after each epoch
        the rows that have changed, for a sink that upserts, as groups without a window do; it keeps all rows of a key,
        or as many as a filter behind lets through: ``.filter(col("place") <= 3)``.

        Args:
            order: Columns, each with ``asc`` (the default) or ``desc`` behind it, such as ``"price desc"``. Nulls are
                the smallest values, NaN is the largest number. Without any, all rows of a key have one place.
            on: A timestamp among the keys, such as ``"window_start"``.
            lateness: How much older than the latest row before it a row can be and still be on time, with `on`.
            late: What happens to rows behind the watermark: ``"drop"`` or ``"dead_letter"``.
            max_ahead: A row that is further ahead of the computer's clock is treated as a late one. None = no limit.
            idle_after: A source that has had no row for so long does not hold the watermark back; None = it does.
            ttl: Without `on`: how long the rows of a key are kept after its last one, by the computer's clock; None =
                for ever. Its rows stay in the table; the next row of the key is the first one again.
            buckets: The number of buckets that the state is divided into by key; a task holds one in memory. With
                another number, a restarted job divides the state anew.

        Raises:
            ConfigError: If an argument is wrong, or `on` is not a key.

        Example:
            >>> from volley import Environment, MemorySource, col, row_number
            >>> bids = Environment().from_source(MemorySource([{"item": 1, "price": price} for price in (5, 7, 6)]))
            >>> places = bids.key_by("item").order_by("price desc").with_columns(place=row_number())
            >>> places.filter(col("place") <= 2).to_arrow().to_pylist()
            [{'item': 1, 'price': 7, 'place': 1}, {'item': 1, 'price': 6, 'place': 2}]
        """
        timing: Any = {"lateness": lateness, "late": late, "max_ahead": max_ahead, "idle_after": idle_after}
        ordering = Ordering(order, on, ttl, **timing, buckets=buckets)  # type: ignore[arg-type]
        if on is not None and Column(on) not in self._keys:
            raise ConfigError(f"order_by follows {on!r}, which is not a key", hint=f"key_by(…, {on!r})")
        return OrderedStream(self._stream, self._keys, ordering)

    def retain(self, ttl: Duration | None = None, buckets: int = 16) -> RetainedStream[S]:
        """Say how long a job keeps the groups that have no window; without it, it keeps them for ever.

        Args:
            ttl: How long a group is kept after its last row, by the computer's clock: a timedelta, seconds or a text
                such as ``"30d"``; None = for ever. Its row stays in the table; the next row of its key begins the group
                anew, and replaces that.
            buckets: The number of buckets that the state is divided into by key; a task holds one in memory. With
                another number, a restarted job divides the state anew.

        Raises:
            ConfigError: If an argument is wrong.

        Example:
            >>> from volley import Environment, MemorySource, sum_
            >>> orders = Environment().from_source(MemorySource([{"customer": 1, "price": 2}]))
            >>> print(orders.key_by("customer").retain("30d").aggregate(spent=sum_("price")))
            aggregate spent=sum_(col('price')) by col('customer'), kept for 30 days, 0:00:00
              read MemorySource(1 row)
        """
        return RetainedStream(self._stream, self._keys, Retention(ttl=ttl, buckets=buckets))  # type: ignore[arg-type]

    def aggregate(self, **aggregates: Aggregation) -> S:
        """Return one row for each key, with these aggregates.

        A job emits after each epoch the rows of the keys that had rows in it, for a sink that upserts by the keys. A
        step behind it takes back what it had before: aggregates of aggregates are those of the last rows. `show`,
        `to_arrow` and the like compute all rows that the sources have now, and materialised views keep them up to date.

        Args:
            aggregates: Aggregate functions by the name of their column. In a job, not those that go by the time of
                rows: `first`, `last`, `list_` and `top`; and behind a step whose rows change, `count`, `sum_`, `avg`,
                `min_`, `max_`, `count_distinct` and `variance`.

        Raises:
            ExpressionError: If there is none, or one has the name of a key.
        """
        return _aggregated(self._stream, self._keys, aggregates, None)

    def _repr_html_(self) -> str:
        return _as_html("key_by", self._stream, *self._keys)


@brief_methods
@dataclass(frozen=True)
class RetainedStream(Generic[S]):
    """A keyed stream whose groups are kept for some time, created by `KeyedStream.retain`: a frozen value."""

    _stream: S
    _keys: tuple[ExprNode, ...]
    _retention: Retention

    def aggregate(self, **aggregates: Aggregation) -> S:
        """Return one row for each key, with these aggregates; see `KeyedStream.aggregate`.

        Args:
            aggregates: Aggregate functions by the name of their column.

        Raises:
            ExpressionError: If there is none, or one has the name of a key.
        """
        return _aggregated(self._stream, self._keys, aggregates, None, self._retention)

    def _repr_html_(self) -> str:
        return _as_html("retain", self._stream, *self._keys, self._retention.ttl)


@brief_methods
@dataclass(frozen=True)
class WindowedStream(Generic[S]):
    """A keyed stream whose rows are grouped by windows, too, created by `KeyedStream.window`: a frozen value."""

    _stream: S
    _keys: tuple[ExprNode, ...]
    _windowing: Windowing

    def aggregate(self, **aggregates: Aggregation) -> S:
        """Return one row for each key and window: ``window_start``, ``window_end``, the keys, the aggregates.

        Args:
            aggregates: Aggregate functions by the name of their column.

        Raises:
            ExpressionError: If there is none, or one has the name of a key or of a window's column.

        Example:
            >>> from datetime import datetime
            >>> from volley import Environment, MemorySource, count, sum_, tumbling
            >>> orders = Environment().from_source(MemorySource([{"item": "pen", "price": 2, "at": datetime.now()}]))
            >>> per_minute = orders.key_by("item").window(tumbling("1m"), on="at", lateness="10s")
            >>> print(per_minute.aggregate(n=count(), total=sum_("price")))
            aggregate n=count(), total=sum_(col('price')) by tumbling('60s') of 'at', col('item'), emit final
              read MemorySource(1 row)
        """
        return _aggregated(self._stream, self._keys, aggregates, self._windowing)

    def _repr_html_(self) -> str:
        return _as_html("window", self._stream, *self._keys, self._windowing.window)


@brief_methods
@dataclass(frozen=True)
class SeriesStream(Generic[S]):
    """A keyed stream whose rows are ordered by event time, created by `KeyedStream.series`: a frozen value."""

    _stream: S
    _keys: tuple[ExprNode, ...]
    _ordering: SeriesTiming

    def with_columns(self, **functions: SeriesFunction) -> S:
        """Return all rows with these columns, which replace columns of the same names.

        Args:
            functions: Series functions by the name of their column.

        Raises:
            ExpressionError: If there is none.

        Example:
            >>> from datetime import datetime
            >>> from volley import Environment, MemorySource, avg, rolling
            >>> readings = Environment().from_source(MemorySource([{"sensor": 1, "heat": 21.5, "at": datetime.now()}]))
            >>> by_sensor = readings.key_by("sensor").series(on="at", lateness="10s")
            >>> print(by_sensor.with_columns(mean=rolling("5m", avg("heat"))))
            series mean=rolling('300s', avg(col('heat'))) by col('sensor'), 'at'
              read MemorySource(1 row)
        """
        if not functions:
            raise ExpressionError(
                "series without functions", hint='name at least one: with_columns(before=previous("price"))'
            )
        for name, function in functions.items():
            if not isinstance(function, SeriesFunction):
                raise ExpressionError(
                    f"{name} is {type(function).__name__}, not a series function",
                    hint=f'for example with_columns({name}=rolling("5m", avg("price")))',
                )
        return self._stream._then(
            keyed_nodes.Series(self._stream._node, self._keys, tuple(functions.items()), self._ordering)
        )

    def _repr_html_(self) -> str:
        return _as_html("series", self._stream, *self._keys)


@brief_methods
@dataclass(frozen=True)
class OrderedStream(Generic[S]):
    """A keyed stream whose rows have an order, created by `KeyedStream.order_by`: a frozen value."""

    _stream: S
    _keys: tuple[ExprNode, ...]
    _ordering: Ordering

    def with_columns(self, **functions: OverFunction | Aggregation) -> S:
        """Return all rows with these columns, which replace columns of the same names.

        Args:
            functions: Functions by the name of their column: `row_number`, `rank`, `dense_rank`, `lag`, `lead`,
                `rows_between`, or an aggregate. An aggregate is of all rows up to each row, and of those that the order
                does not tell from it; without an order, of all rows of the key.

        Raises:
            ExpressionError: If there is none, or one needs an order and there is none.

        Example:
            >>> from volley import Environment, MemorySource, lag, sum_
            >>> prices = Environment().from_source(MemorySource([{"day": day, "price": day * 3} for day in (2, 1)]))
            >>> by_day = prices.key_by().order_by("day")
            >>> by_day.with_columns(before=lag("price"), total=sum_("price")).to_arrow().to_pylist()
            [{'day': 1, 'price': 3, 'before': None, 'total': 3}, {'day': 2, 'price': 6, 'before': 3, 'total': 9}]
        """
        if not functions:
            raise ExpressionError(
                "an order without functions", hint="name at least one: with_columns(place=row_number())"
            )
        for name, function in functions.items():
            if not isinstance(function, OverFunction | Aggregation):
                raise ExpressionError(
                    f"{name} is {type(function).__name__}, not a function of ordered rows",
                    hint=f"for example with_columns({name}=row_number())",
                )
            if isinstance(function, Aggregation) and function.gap:
                raise ExpressionError(f"{name}={function!r}: there are no gaps to fill", hint="leave gap out")
            if isinstance(function, OverFunction) and not self._ordering.order:
                raise ExpressionError(f"{name}={function!r} needs an order", hint='order_by("price desc")')
        return self._stream._then(
            keyed_nodes.Over(self._stream._node, self._keys, tuple(functions.items()), self._ordering)
        )

    def _repr_html_(self) -> str:
        return _as_html("order_by", self._stream, *self._keys, *self._ordering.order)


def _as_html(verb: str, stream: RowSteps, *by: object) -> str:
    """Return a stream for a notebook, with what its rows are grouped by."""
    return as_html(f"{verb} {', '.join(map(repr, by))}", [stream._node])


def _aggregated(
    stream: S,
    keys: tuple[ExprNode, ...],
    aggregates: dict[str, Aggregation],
    windowing: Windowing | None,
    retention: Retention = _FOR_EVER,
) -> S:
    if not aggregates:
        raise ExpressionError("aggregate without aggregates", hint="name at least one: aggregate(n=count())")
    for name, aggregation in aggregates.items():
        if not isinstance(aggregation, Aggregation):
            raise ExpressionError(
                f"{name} is {type(aggregation).__name__}, not an aggregate",
                hint=f'for example aggregate({name}=sum_("price"))',
            )
        if aggregation.gap and (windowing is None or windowing.fill_gaps is None):
            raise ExpressionError(
                f"{name}={aggregation!r} without windows that fill gaps", hint='window(…, fill_gaps="1h")'
            )
    node = keyed_nodes.Aggregate(stream._node, keys, tuple(aggregates.items()), windowing, retention)
    if twice := sorted({name for name in node.names if node.names.count(name) > 1}):
        raise ExpressionError(f"aggregate has two columns named {twice[0]!r}", hint="rename one of them")
    return stream._then(node)
