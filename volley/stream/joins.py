"""Joins of a stream: with a table, as it is now or as of a time, and with another stream within a bound of time."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, Self, get_args, overload

from volley.checks import Duration, duration, duration_or_zero, names, of_type, one_of, optional
from volley.connectors.files.source import FileDimension, FileSource
from volley.connectors.memory.source import MemoryDimension, MemorySource
from volley.contracts.dimension import Dimension
from volley.errors import ConfigError, brief_methods
from volley.plan import keyed_nodes, nodes
from volley.plan.joins import FILTERS, How, StreamJoin, TableJoin
from volley.plan.windows import LateRows, Timing
from volley.stream.steps import RowSteps
from volley.stream.verbs import MAX_AHEAD, check_continues

__all__ = ["MAX_BYTES", "Joins", "dimension_of"]

MAX_BYTES = 256 << 20
"""The most bytes of a joined table in memory by default; each process that joins maps them, a machine has them once."""

# A column of texts in one Arrow batch has offsets of 31 bits.
_LARGEST = (1 << 31) - 1

_WITH_TABLES = ("inner", "left")
_LEFT, _RIGHT = "_volley_processed", "_volley_processed_right"

Keys = str | Sequence[str] | Mapping[str, str]


@brief_methods
class Joins(RowSteps):
    """The joins of a stream."""

    @overload
    def join(
        self,
        other: RowSteps,
        on: Keys,
        how: How = "inner",
        *,
        within: Duration | tuple[Duration, Duration],
        time: str | tuple[str, str],
        columns: Sequence[str] | None = None,
        suffix: str = "",
        lateness: Duration = timedelta(0),
        late: LateRows = "drop",
        max_ahead: Duration | None = MAX_AHEAD,
        idle_after: Duration | None = None,
        buckets: int = 16,
    ) -> Self: ...

    @overload
    def join(
        self,
        other: RowSteps,
        on: Keys,
        how: How = "inner",
        *,
        ttl: Duration,
        columns: Sequence[str] | None = None,
        suffix: str = "",
        buckets: int = 16,
    ) -> Self: ...

    @overload
    def join(
        self,
        other: Any,
        on: Keys,
        how: How = "inner",
        *,
        as_of: tuple[str, str] | str | None = None,
        columns: Sequence[str] | None = None,
        suffix: str = "",
        max_bytes: int = MAX_BYTES,
    ) -> Self: ...

    def join(
        self,
        other: Any,
        on: Keys,
        how: How = "inner",
        *,
        as_of: tuple[str, str] | str | None = None,
        columns: Sequence[str] | None = None,
        suffix: str = "",
        max_bytes: int = MAX_BYTES,
        within: Duration | tuple[Duration, Duration] | None = None,
        time: str | tuple[str, str] | None = None,
        lateness: Duration = timedelta(0),
        late: LateRows = "drop",
        max_ahead: Duration | None = MAX_AHEAD,
        idle_after: Duration | None = None,
        ttl: Duration | None = None,
        buckets: int = 16,
    ) -> Self:
        """Add the columns of a table's, or another stream's, rows with the same key; a row comes once for each match.

        With a table, each epoch is joined with one version of it, its newest one; an Iceberg table is looked up in
        every epoch, and its changes are read if it has another snapshot; files are listed in every epoch, and read if
        one has changed. The rows of that version are kept in the
        checkpoint before the epoch's tasks start: an epoch that is repeated after a crash, and each of several sinks,
        gets the same rows, whatever became of the table. All tasks map the same files; their folder must be one that
        executors reach.

        With a stream, rows match that are near in time, `within` a bound. Rows of both sides wait in the job's state
        until the watermark says that no match can come any more. The watermark is the latest event time so far minus
        `lateness`, of the slower side; a row before it is late, and rejected. Pairs come out as soon as both rows are
        there, rows of a left join without a match once none can come, or at the end of bounded sources. Without times
        in the rows, `ttl` says for how long rows of both sides wait, by the time of their processing.

        Null matches nothing; NaN matches NaN, and -0.0 matches 0.0. Keys have the same type, int counts as long and
        float as double.

        Args:
            other: A table: an `IcebergTable`, rows of one (``IcebergTable(…).rows.filter("…")``), a `TableRef`, or an
                `IcebergSource`; the path of a CSV, Parquet or other file, or a `FileSource` for its settings; a pandas
                or polars DataFrame, Arrow data, a list of dicts, or a `MemorySource` for their schema and name. Or a
                stream of the same environment.
            on: The key: a column, or several, that both sides have; or a dict of the stream's columns and the other's.
            how: ``"inner"``: drop rows without a match; ``"left"``: keep them, with nulls in the other's columns. With
                a stream also ``"right"`` and ``"full"``: keep the other's rows without a match, with nulls in the
                stream's columns but the key, which is the other's; ``"semi"``: each row with a match, once, as soon as
                that is there; ``"anti"``: the rows without one, once none can come; both without columns of the
                other's.
            as_of: For a table with several versions of a key's row: the stream's time column, and the table's column
                that says since when a row is valid. Only the last row that is valid by then matches. Of two rows that
                are valid since the same time, the greater one counts: by its first added column, then the next ones;
                null is the least. Rows with a null time match nothing. The stream's time column alone joins a row with
                the rows that an Iceberg table had at its time, by the commits of its snapshots; a row that is older
                than the first snapshot that the table still has can't be joined, and is a bad row.
            columns: The other's columns to add, in this order; None = all but its keys.
            suffix: The end of the added columns' names, of each of them.
            max_bytes: The most bytes of the table's rows in memory, at most 2 GiB; by default 256 MiB. A larger table
                is divided by key into files, of which a task maps at most this many bytes at a time. The rows of a
                key must fit.
            within: With a stream: the most time between two rows that match, or how much earlier and how much later
                than this stream's row the other one may be: ``within=("0s", "10m")``; the ends are part of it.
            time: With a stream: the timestamp column of both sides, or of each: ``time=("at", "paid_at")``. A row
                without a time is rejected.
            lateness: With a stream: how much older than the latest row of its side a row can be and still be on time.
            late: With a stream: what happens to rejected rows, besides being counted in the metric
                `rows_late`: ``"drop"`` or ``"dead_letter"``.
            max_ahead: With a stream: a row that is further ahead of the computer's clock is rejected, and does not move
                the watermark. None = no limit.
            idle_after: With a stream: a source that has had no row for so long does not hold the watermark back.
            ttl: With a stream, in the place of `within` and `time`: the most time between the processing of two rows
                that match, see `with_processing_time`; no row is late.
            buckets: With a stream: the number of buckets that the state is divided into by key; a task holds one in
                memory. With another number, a restarted job divides the state anew.

        Raises:
            ConfigError: If an argument is wrong.

        Example:
            >>> from volley import Environment, MemorySource
            >>> orders = Environment().from_source(MemorySource([{"id": 1, "item": "a"}, {"id": 2, "item": "b"}]))
            >>> prices = MemorySource([{"item": "a", "price": 5}])
            >>> orders.join(prices, on="item", how="left").to_arrow().to_pylist()
            [{'id': 1, 'item': 'a', 'price': 5}, {'id': 2, 'item': 'b', 'price': None}]

            >>> paid = Environment().from_source(MemorySource([], "id long, paid_at timestamp"))
            >>> ordered = Environment().from_source(MemorySource([], "id long, at timestamp"))
            >>> print(ordered.join(paid, on="id", within=("0s", "1h"), time=("at", "paid_at"), lateness="1m"))
            inner join of streams on 'id', 'paid_at' from 0s before to 3600s after 'at'
              left side
                read MemorySource(0 rows)
              right side
                read MemorySource(0 rows)
        """
        spans: Any = {"lateness": lateness, "max_ahead": max_ahead, "idle_after": idle_after}
        timing = Timing(**spans, late=late, buckets=buckets)
        by_key = _by_key(on, how, columns, suffix)
        if isinstance(other, RowSteps):
            _check_no_table(as_of, max_bytes)
            if ttl is not None:
                _check_no_times(within, time, timing)
                return self._join_processed(other, by_key, ttl, buckets)
            return self._join_stream(other, by_key, within, time, timing)
        if how not in _WITH_TABLES:
            raise ConfigError(
                f"{_named(how)} join with a table",
                hint=f"{' and '.join(_WITH_TABLES)} are there; in SQL also right, full and where exists (…)",
            )
        _check_untimed((within, time, ttl), timing)
        join = TableJoin(**by_key, table=dimension_of(other), as_of=_as_of(as_of), max_bytes=_bytes(max_bytes))
        return self._then(nodes.Join(self._node, join))

    def _join_processed(self, other: RowSteps, by_key: dict[str, Any], ttl: Duration, buckets: int) -> Self:
        """Join within a bound of processing time; a side without rows for so long holds no rows of the other one."""
        span = duration("ttl", ttl)
        timing = Timing(max_ahead=None, idle_after=span, buckets=buckets)
        left, right = self.with_processing_time(_LEFT), other.with_processing_time(_RIGHT)
        joined = left._join_stream(right, by_key, span, (_LEFT, _RIGHT), timing)
        return joined.drop(_LEFT, *([_RIGHT + by_key["suffix"]] if by_key["columns"] is None else []))

    def _join_stream(self, other: RowSteps, by_key: dict[str, Any], within: Any, time: Any, timing: Timing) -> Self:
        before, after = _spans(within)
        join = StreamJoin(**by_key, times=_times(time), before=before, after=after, timing=timing)
        check_continues(other._node, self._node)
        sides = keyed_nodes.Side(self._node, is_right=False), keyed_nodes.Side(other._node, is_right=True)
        return self._then(keyed_nodes.JoinStreams(*sides, join))


def _check_no_times(within: Any, time: Any, timing: Timing) -> None:
    if within is not None or time is not None or replace(timing, buckets=1) != Timing(max_ahead=MAX_AHEAD, buckets=1):
        raise ConfigError(
            f"a join of streams has a ttl, and within={within!r}, time={time!r}, {timing}",
            hint="ttl is for rows without times; with times, say within= and time=, and lateness= and so on",
        )


def _check_no_table(as_of: Any, max_bytes: Any) -> None:
    if as_of is not None or max_bytes != MAX_BYTES:
        raise ConfigError(
            f"a join with a stream has as_of={as_of!r}, max_bytes={max_bytes!r}",
            hint='these are for a table; a stream is joined within a bound of time: within="10m", time="at"',
        )


def _check_untimed(bounds: Sequence[Any], timing: Timing) -> None:
    wrong = [repr(value) for value in bounds if value is not None]
    if wrong or timing != Timing(max_ahead=MAX_AHEAD):
        raise ConfigError(
            f"a join with a table has a bound of time: {', '.join(wrong) or timing}",
            hint="within=, time=, lateness= and so on are for a stream: environment.from_source(…); a table is joined "
            'as of a time: as_of=("at", "valid_from")',
        )


def _named(how: How) -> str:
    return f"an {how}" if how == "anti" else f"a {how}"


def _by_key(on: Keys, how: How, columns: Sequence[str] | None, suffix: str) -> dict[str, Any]:
    """Return the checked arguments of a `KeyJoin`."""
    one_of(get_args(How))("how", how)
    of_type(str, 'suffix="_customer"')("suffix", suffix)
    chosen = optional(names)("columns", columns)
    if how in FILTERS:
        if chosen is not None or suffix:
            raise ConfigError(f"{_named(how)} join adds no columns", hint="leave columns and suffix out")
        return {"on": _keys(on), "how": how, "columns": (), "suffix": ""}
    if chosen is not None and (not chosen or len(set(chosen)) < len(chosen)):
        raise ConfigError(
            f"columns are {columns!r}", hint="name each column of the right side once; None = all but its keys"
        )
    return {"on": _keys(on), "how": how, "columns": chosen, "suffix": suffix}


def _spans(within: Any) -> tuple[timedelta, timedelta]:
    """Return how much earlier, and how much later, a row of the other side may be."""
    if within is None:
        raise ConfigError(
            "a join of two streams has no bound of time",
            hint='within="10m", the most time between two rows that match; or how much earlier and later than the '
            'stream\'s row the other one may be: within=("0s", "10m"); or ttl="1d", for how long rows wait',
        )
    spans = within if isinstance(within, tuple) else (within, within)
    if len(spans) != 2:
        raise ConfigError(f"within is {within!r}", hint='one span, or two: within=("0s", "10m")')
    return duration_or_zero("within", spans[0]), duration_or_zero("within", spans[1])


def _times(time: Any) -> tuple[str, str]:
    times = (time, time) if isinstance(time, str) else time
    if not isinstance(times, tuple) or len(times) != 2 or not all(isinstance(name, str) and name for name in times):
        raise ConfigError(
            f"time is {time!r}", hint='the time columns of both sides: time="at", or time=("at", "paid_at")'
        )
    return times


def _keys(on: Keys) -> tuple[tuple[str, str], ...]:
    pairs = tuple(on.items()) if isinstance(on, Mapping) else tuple((name, name) for name in names("on", on))
    if not pairs or not all(isinstance(name, str) for pair in pairs for name in pair):
        raise ConfigError(
            f"join on {on!r}", hint='on="id", on=["id", "country"], or on={"the stream\'s": "the table\'s"}'
        )
    return pairs


def _bytes(max_bytes: Any) -> int:
    if not isinstance(max_bytes, int) or isinstance(max_bytes, bool) or not 0 < max_bytes <= _LARGEST:
        raise ConfigError(f"max_bytes {max_bytes!r} is not valid", hint=f"1 to {_LARGEST}; by default {MAX_BYTES}")
    return max_bytes


def _as_of(as_of: Any) -> tuple[str, str] | str | None:
    if as_of is None or (isinstance(as_of, str) and as_of):
        return as_of
    if not isinstance(as_of, tuple) or len(as_of) != 2 or not all(isinstance(name, str) for name in as_of):
        raise ConfigError(
            f"as_of is {as_of!r}",
            hint='the stream\'s time and the table\'s: as_of=("at", "valid_from"); or the stream\'s: as_of="at"',
        )
    return as_of


def dimension_of(table: Any) -> Dimension:
    """Return a table, as `Joins.join` takes it, as a dimension."""
    if isinstance(table, FileSource | str | os.PathLike):
        return FileDimension(table if isinstance(table, FileSource) else FileSource(table))
    if isinstance(table, MemorySource):
        return MemoryDimension(table)
    from volley.iceberg.time_travel import iceberg_dimension

    dimension = iceberg_dimension(table)
    if dimension is not None:
        return dimension
    try:
        return MemoryDimension(MemorySource(table))
    except ConfigError as error:
        raise ConfigError(
            f"a stream is joined with a table, not with {type(table).__name__}: {error.message}",
            hint='IcebergTable(TableRef("db", "customers", storage)), a file ("customers.csv"), a DataFrame, an Arrow '
            "table, or a list of dicts",
        ) from error
