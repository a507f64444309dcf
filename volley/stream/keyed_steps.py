"""The steps of a stream that keep state by key, and its groups: first rows, keys, a limit."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any, Self

from volley.checks import Duration, count, duration
from volley.errors import ConfigError, brief_methods
from volley.plan import keyed_nodes
from volley.plan.expression_nodes import Column, ExprNode, output_name
from volley.plan.expressions import Expr
from volley.plan.windows import LateRows, Timing
from volley.stream.keyed import KeyedStream
from volley.stream.steps import RowSteps, under_name
from volley.stream.verbs import MAX_AHEAD, check_bounded, check_text

__all__ = ["KeyedSteps"]


def _key_node(key: str | Expr) -> ExprNode:
    node = key.node if isinstance(key, Expr) else Column(check_text(key, "key_by"))
    output_name(node)
    return node


@brief_methods
class KeyedSteps(RowSteps):
    """The steps of a stream that keep state by key; joins have a file of their own."""

    def deduplicate(
        self,
        *keys: str,
        event_time: str | None = None,
        within: Duration | None = None,
        late: LateRows = "drop",
        max_ahead: Duration | None = MAX_AHEAD,
        idle_after: Duration | None = None,
        buckets: int = 16,
    ) -> Self:
        """Keep the first row of each key, and drop the later ones.

        The first row is that of the first epoch, and within an epoch of the first split. Null is a key like any other,
        NaN equals NaN, and -0.0 equals 0.0.

        Args:
            keys: The key columns.
            event_time: A timestamp column. With `within`, a key is kept until the watermark, the latest event time so
                far minus `within`, is that far behind the time of its row, so the state stays bounded; without both,
                the state keeps every key for ever.
            within: The largest distance, in event time, between two rows of one key: a timedelta, seconds or a text
                such as ``"5m"``. A row that is behind the watermark, or has no time, is rejected and counted.
            late: What happens to such rows, besides being counted in the metric `rows_late`: ``"drop"`` or
                ``"dead_letter"``: they go to the sink's dead letter.
            max_ahead: A row that is further ahead of the computer's clock does not move the watermark and is rejected,
                as a late one. None = no limit.
            idle_after: A source that has had no row for so long does not hold the watermark back; None = it does.
            buckets: The number of buckets that the state is divided into by key; a task holds one in memory. With
                another number, a restarted job divides the state anew.

        Raises:
            ConfigError: If there is no key, or only one of `event_time` and `within`, or an argument is wrong.
        """
        if not keys:
            raise ConfigError("deduplicate without keys", hint='name the columns: deduplicate("id")')
        if (event_time is None) != (within is None):
            raise ConfigError(
                "deduplicate needs both event_time and within, or neither", hint='event_time="at", within="1h"'
            )
        for name in (*keys, *([] if event_time is None else [event_time])):
            check_text(name, "deduplicate")
        span = None if within is None else duration("within", within)
        settings: Any = {"late": late, "max_ahead": max_ahead, "idle_after": idle_after, "buckets": buckets}
        timing = Timing(lateness=span or timedelta(0), **settings)
        if span is None and replace(timing, buckets=1) != Timing(max_ahead=MAX_AHEAD, buckets=1):
            raise ConfigError(
                "deduplicate has late, max_ahead or idle_after, and no event_time", hint='event_time="at", within="1h"'
            )
        return self._then(keyed_nodes.Deduplicate(self._node, keys, event_time, span, timing=timing))

    def key_by(self, *keys: str | Expr, **named: str | Expr) -> KeyedStream[Self]:
        """Group the rows by key, for aggregates: of each window of time, or of all rows of each key.

        Null is a key like any other; so is NaN, and -0.0 is the same as 0.0.

        Args:
            keys: Names, or expressions with an alias; without a key all rows are one group.
            named: Further keys, by their names: expressions, or the names of other columns.

        Raises:
            ExpressionError: If a key is neither, or has no name.

        Example:
            >>> from volley import Environment, MemorySource, col, count
            >>> clicks = Environment().from_source(MemorySource([], "user string, at timestamp"))
            >>> print(clicks.key_by("user", day=col("at").dt.truncate("day")).aggregate(n=count()))
            aggregate n=count() by col('user'), col('at').dt.truncate('day').alias('day')
              read MemorySource(0 rows)
        """
        keys += tuple(under_name(name, value) for name, value in named.items())
        return KeyedStream(self, tuple(map(_key_node, keys)))

    def limit(self, rows: int) -> Self:
        """Keep at most this many rows of a stream that ends, the first ones; splits are read no further.

        Args:
            rows: The most rows.

        Raises:
            ConfigError: If `rows` is not a whole number above 0.
            PlanError: If a source has no end; `head` and `show` look at the rows that it has now.
        """
        check_bounded(self._node, "limit")
        return self._then(keyed_nodes.Limit(self._node, count("rows", rows)))
