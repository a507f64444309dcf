"""The nodes of steps that keep state by key: each begins a level of a job's plan."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import ClassVar

from volley.plan.aggregates import Aggregation
from volley.plan.expression_nodes import Call, Column, ExprNode, Literal, column_names, output_name
from volley.plan.joins import StreamJoin
from volley.plan.nodes import Expect, Node, Step
from volley.plan.over import RANKS, Ordering, OverFunction
from volley.plan.series import SeriesFunction, SeriesTiming
from volley.plan.windows import Retention, Session, Timing, Windowing

__all__ = [
    *(
        "CHANGE",
        "WINDOW_COLUMNS",
        "Aggregate",
        "Changing",
        "CompareExtracts",
        "Deduplicate",
        "JoinStreams",
        "Keyed",
        "Limit",
        "Over",
        "Series",
        "Side",
    ),
]

WINDOW_COLUMNS = ("window_start", "window_end")
"""The columns of a windowed aggregate before its keys."""

CHANGE = "_change"
"""The last column of changes of groups and sessions: ``delete`` for a row that came out before and is not valid any
more, else ``update_after``; and that of changes between extracts: ``insert``, ``update_after`` or ``delete``.
"""


class Keyed(Node):
    """A step for which Volley keeps state by key: it begins a level of the job, which follows its intakes."""

    passes_rows: ClassVar[bool] = False
    """True if its rows come out as they went in, in the same epoch: other steps that keep state may follow it."""

    @property
    @abstractmethod
    def intakes(self) -> tuple[Node, ...]:
        """What takes its rows where they become partials: itself, or a step for each of its inputs."""

    @property
    @abstractmethod
    def timing(self) -> Timing:
        """How it follows event time, and how its state is divided."""

    @property
    @abstractmethod
    def state(self) -> str:
        """What the state of a job refers to, as one line of text."""


@dataclass(frozen=True)
class Changing(Step, Keyed):
    """A keyed step that takes rows back, and whose own rows can replace earlier ones.

    Args:
        takes_changes: True if its input tells by the column CHANGE which rows are not valid any more.
        emits_changes: True if its rows do; of each row that changes, the one before is deleted first.
    """

    takes_changes: bool = field(default=False, kw_only=True)
    emits_changes: bool = field(default=False, kw_only=True)

    @property
    def intakes(self) -> tuple[Node, ...]:
        return (self,)

    @property
    @abstractmethod
    def on(self) -> str | None:
        """The event time that tells when rows are final; None = they never are."""

    @property
    @abstractmethod
    def replaces_rows(self) -> bool:
        """True if a row that comes out can replace one that came out before."""

    @property
    @abstractmethod
    def has_changes(self) -> bool:
        """True if its rows have the column CHANGE."""


@dataclass(frozen=True)
class Aggregate(Changing):
    """Reduces the rows of each key, and of each window of time, to one row of aggregates.

    Args:
        aggregates: Pairs of a column's name and its aggregate.
        windowing: The windows of time; None = a key's row is never final.
        retention: How long a key's row can change, if there are no windows.
    """

    keys: tuple[ExprNode, ...]
    aggregates: tuple[tuple[str, Aggregation], ...]
    windowing: Windowing | None = None
    retention: Retention = field(default=Retention())

    @property
    def timing(self) -> Timing:
        return self.windowing or self.retention

    @property
    def on(self) -> str | None:
        return self.windowing.on if self.windowing else None

    @property
    def replaces_rows(self) -> bool:
        return self.windowing is None or self.windowing.emit == "updates"

    @property
    def names(self) -> list[str]:
        """The names of its columns."""
        windows = WINDOW_COLUMNS if self.windowing else ()
        changes = (CHANGE,) if self.has_changes else ()
        return [*windows, *map(output_name, self.keys), *(name for name, _ in self.aggregates), *changes]

    @property
    def used_columns(self) -> set[str]:
        """The names of the columns that it uses of its input."""
        changes = {CHANGE} if self.takes_changes else set()
        return self.used_values.union(changes, *map(column_names, self.keys))

    @property
    def used_values(self) -> set[str]:
        """The names of the columns that its window and its aggregates use."""
        on = set() if self.on is None else {self.on}
        return on.union(*(aggregation.used_columns for _, aggregation in self.aggregates))

    @property
    def has_changes(self) -> bool:
        windowing = self.windowing
        are_sessions = windowing is not None and isinstance(windowing.window, Session)
        return self.emits_changes or (are_sessions and self.replaces_rows)

    @property
    def state(self) -> str:
        return f"{self._groups()}, in {self.timing.buckets} buckets"

    def label(self) -> str:
        if self.windowing is None:
            return f"{self._groups()}{f', kept for {self.retention.ttl}' if self.retention.ttl else ''}"
        return f"{self._groups()}, emit {self.windowing.emit}"

    def _groups(self) -> str:
        groups = [repr(key) for key in self.keys]
        if self.windowing:
            groups.insert(0, f"{self.windowing.window!r} of {self.windowing.on!r}")
        aggregates = ", ".join(f"{name}={aggregation!r}" for name, aggregation in self.aggregates)
        return f"aggregate {aggregates}{' by ' if groups else ''}{', '.join(groups)}"


@dataclass(frozen=True)
class Side(Step):
    """Takes the rows of one side of a join of streams."""

    is_right: bool

    def label(self) -> str:
        return "right side" if self.is_right else "left side"


@dataclass(frozen=True)
class JoinStreams(Keyed):
    """Joins the rows of two streams with the same key that are near in time."""

    left: Side
    right: Side
    join: StreamJoin

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.left, self.right

    def after(self, inputs: Sequence[Node]) -> Node:
        left, right = inputs
        assert isinstance(left, Side)
        assert isinstance(right, Side)
        return replace(self, left=left, right=right)

    def alone(self) -> Node:
        return self.after([side.alone() for side in self.inputs])

    @property
    def intakes(self) -> tuple[Node, ...]:
        return self.inputs

    @property
    def timing(self) -> Timing:
        return self.join.timing

    @property
    def state(self) -> str:
        return f"{self.join}, in {self.timing.buckets} buckets"

    def label(self) -> str:
        return str(self.join)


@dataclass(frozen=True)
class Series(Step, Keyed):
    """Adds columns that are computed from the rows of the same key before each row, in the order of event time."""

    keys: tuple[ExprNode, ...]
    functions: tuple[tuple[str, SeriesFunction], ...]
    ordering: SeriesTiming

    @property
    def intakes(self) -> tuple[Node, ...]:
        return (self,)

    @property
    def timing(self) -> Timing:
        return self.ordering

    @property
    def used_columns(self) -> set[str]:
        """The names of the columns that it uses of its input."""
        functions = (function.used_columns for _, function in self.functions)
        return {self.ordering.on}.union(*map(column_names, self.keys), *functions)

    @property
    def state(self) -> str:
        pause = f", pause {self.ordering.pause}" if self.ordering.pause else ""
        return f"{self.label()}{pause}, in {self.ordering.buckets} buckets"

    def label(self) -> str:
        functions = ", ".join(f"{name}={function!r}" for name, function in self.functions)
        return f"series {functions} by {', '.join([*map(repr, self.keys), repr(self.ordering.on)])}"


@dataclass(frozen=True)
class Over(Changing):
    """Adds columns that are computed from the rows of the same key around each row, in some order.

    Args:
        functions: Pairs of a column's name and its function; of an aggregate, over all rows up to the row in the order,
            and those that the order does not tell from it.
        first: The name of a column with a place, and the last place of which rows come out; the name None = by the
            number of a row. None = all rows do.
    """

    keys: tuple[ExprNode, ...]
    functions: tuple[tuple[str, OverFunction | Aggregation], ...]
    ordering: Ordering
    first: tuple[str | None, int] | None = None

    @property
    def timing(self) -> Timing:
        return self.ordering

    @property
    def on(self) -> str | None:
        return self.ordering.on

    @property
    def replaces_rows(self) -> bool:
        return self.on is None

    @property
    def has_changes(self) -> bool:
        return self.emits_changes

    @property
    def order_columns(self) -> list[str]:
        """The names of the columns of its order, as far as they can be told from directions."""
        return [column.rpartition(" ")[0] or column for column in self.ordering.order]

    @property
    def used_columns(self) -> set[str]:
        """The names of the columns that it uses of its input."""
        functions = (function.used_columns for _, function in self.functions)
        further = {CHANGE} if self.takes_changes else set()
        return further.union(self.ordering.order, self.order_columns, *map(column_names, self.keys), *functions)

    @property
    def needs_all_rows(self) -> bool:
        """True if rows that don't come out have to be kept."""
        functions = (function for _, function in self.functions)
        later = any(isinstance(function, Aggregation) or function.needs_later_rows for function in functions)
        return self.first is None or self.takes_changes or later

    @property
    def ranks(self) -> list[str]:
        """The names of its columns with places."""
        found = ((name, function) for name, function in self.functions if isinstance(function, OverFunction))
        return [name for name, function in found if function.function in RANKS]

    @property
    def state(self) -> str:
        return f"{self._places()}, in {self.timing.buckets} buckets"

    def label(self) -> str:
        return f"{self._places()}{f', kept for {self.ordering.ttl}' if self.ordering.ttl else ''}"

    def _places(self) -> str:
        functions = ", ".join(f"{name}={function!r}" for name, function in self.functions)
        keys = f" by {', '.join(map(repr, self.keys))}" if self.keys else ""
        order = f", in the order of {', '.join(map(repr, self.ordering.order))}" if self.ordering.order else ""
        first = f", {self.first[0] or 'rows'} up to {self.first[1]}" if self.first else ""
        return f"over{' ' if functions else ''}{functions}{keys}{order}{first}"


@dataclass(frozen=True)
class Deduplicate(Step, Keyed):
    """Keeps the first row of each key; with `within`, drops keys from the state that long after their `event_time`."""

    passes_rows: ClassVar[bool] = True
    keys: tuple[str, ...]
    event_time: str | None = None
    within: timedelta | None = None
    timing: Timing = field(default=Timing(), kw_only=True)

    @property
    def intakes(self) -> tuple[Node, ...]:
        return (self,)

    @property
    def used_columns(self) -> frozenset[str]:
        """The names of the columns that it uses of its input."""
        return frozenset(self.keys if self.event_time is None else (*self.keys, self.event_time))

    @property
    def state(self) -> str:
        return f"{self.label()}, in {self.timing.buckets} buckets"

    def label(self) -> str:
        window = f" within {self.within} of {self.event_time!r}" if self.within else ""
        return f"deduplicate by {', '.join(map(repr, self.keys))}{window}"


@dataclass(frozen=True)
class CompareExtracts(Step, Keyed):
    """Turns full extracts into inserts, updates and deletes: each is compared with the one before.

    `ignored` columns make no change alone. `max_deleted` is how many of the rows an extract may delete, or which share
    of them; None = any. `source` is the identity of what has the extracts.
    """

    source: str
    keys: tuple[str, ...]
    ignored: tuple[str, ...] = ()
    max_deleted: float | None = None
    timing: Timing = field(default=Timing(), kw_only=True)

    @property
    def intakes(self) -> tuple[Node, ...]:
        return (self,)

    @property
    def expectation(self) -> Expect | None:
        """The bound of deletions: an extract that exceeds it fails its epoch; None = there is none."""
        if self.max_deleted is None:
            return None
        stays = Call("ne", (Column(CHANGE), Literal("delete")))
        return Expect(self.input, self.bound, stays, "fail", self.max_deleted)

    @property
    def bound(self) -> str:
        """The name of that expectation."""
        return f"an extract of {self.source} has the row of before (max_deleted)"

    @property
    def state(self) -> str:
        return f"{self._by}, in {self.timing.buckets} buckets"

    def label(self) -> str:
        ignored = f", ignoring {', '.join(map(repr, self.ignored))}" if self.ignored else ""
        return f"{self._by}{ignored}"

    @property
    def _by(self) -> str:
        return f"changes from snapshots by {', '.join(map(repr, self.keys))}"


@dataclass(frozen=True)
class Limit(Step, Keyed):
    """Keeps at most a number of rows of a stream that ends: the first ones."""

    passes_rows: ClassVar[bool] = True
    rows: int

    @property
    def intakes(self) -> tuple[Node, ...]:
        return (self,)

    @property
    def timing(self) -> Timing:
        return Timing(buckets=1)

    @property
    def state(self) -> str:
        return f"{self.label()}, counted"

    def label(self) -> str:
        return f"limit {self.rows}"
