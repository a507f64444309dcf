"""The nodes of a job's plan: frozen, value-equal, printable; the backends compile them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, ClassVar

from volley.plan.aggregates import Aggregation
from volley.plan.expression_nodes import ExprNode, column_names, output_name
from volley.plan.joins import JoinedRows, StreamJoin, TableJoin
from volley.plan.series import Ordering, SeriesFunction
from volley.plan.windows import Session, Timing, Windowing
from volley.sink import Sink
from volley.source import Source

__all__ = [
    "CHANGE",
    "WINDOW_COLUMNS",
    "Aggregate",
    "Deduplicate",
    "Drop",
    "Explode",
    "Filter",
    "FlatMap",
    "Join",
    "JoinStreams",
    "Keyed",
    "Limit",
    "Map",
    "MapBatches",
    "Node",
    "Read",
    "Rename",
    "Repartition",
    "Rest",
    "Select",
    "Series",
    "Side",
    "SortWithinEpoch",
    "Union",
    "WithColumns",
    "Write",
]


class Node(ABC):
    """One step of a plan."""

    narrow: ClassVar[bool] = False
    """True if a row's output depends on that row alone, and on a table that all tasks have, so that any task can run
    the step on Arrow batches."""

    stateful: ClassVar[bool] = False
    """True if Spark keeps state for the step: its frame must be evaluated in every epoch."""

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The steps before it."""
        return ()

    def after(self, inputs: Sequence[Node]) -> Node:
        """Return the same step after other steps, as many as it has inputs."""
        return self

    @abstractmethod
    def label(self) -> str:
        """Return the step as one line of text, without its inputs and without secrets."""


@dataclass(frozen=True)
class Read(Node):
    """Reads the rows of a source."""

    source: Source

    def label(self) -> str:
        return f"read {self.source!r}"


@dataclass(frozen=True)
class _Step(Node):
    input: Node

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)

    def after(self, inputs: Sequence[Node]) -> Node:
        return replace(self, input=inputs[0])


@dataclass(frozen=True)
class Filter(_Step):
    """Keeps the rows for which the predicate is true (not false, not null)."""

    narrow: ClassVar[bool] = True
    predicate: ExprNode

    def label(self) -> str:
        return f"filter {self.predicate!r}"


@dataclass(frozen=True)
class Rest(_Step):
    """Keeps the rows for which the predicate is false or null."""

    narrow: ClassVar[bool] = True
    predicate: ExprNode

    def label(self) -> str:
        return f"filter not is_true({self.predicate!r})"


@dataclass(frozen=True)
class Select(_Step):
    """Keeps exactly these columns, in this order."""

    narrow: ClassVar[bool] = True
    columns: tuple[ExprNode, ...]

    def label(self) -> str:
        return f"select {', '.join(map(repr, self.columns))}"


@dataclass(frozen=True)
class WithColumns(_Step):
    """Appends columns, or replaces those of the same names in their places; all values are of the rows as they were."""

    narrow: ClassVar[bool] = True
    columns: tuple[tuple[str, ExprNode], ...]

    def label(self) -> str:
        verb = "with_column" if len(self.columns) == 1 else "with_columns"
        return f"{verb} {', '.join(f'{name!r} = {value!r}' for name, value in self.columns)}"


@dataclass(frozen=True)
class Drop(_Step):
    """Drops these columns."""

    narrow: ClassVar[bool] = True
    columns: tuple[str, ...]

    def label(self) -> str:
        return f"drop {', '.join(map(repr, self.columns))}"


@dataclass(frozen=True)
class Rename(_Step):
    """Renames columns: pairs of (old, new)."""

    narrow: ClassVar[bool] = True
    names: tuple[tuple[str, str], ...]

    def label(self) -> str:
        return "rename " + ", ".join(f"{old!r} → {new!r}" for old, new in self.names)


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", repr(function))


@dataclass(frozen=True)
class _Apply(_Step):
    """Applies a Python function; `schema` is its output's (see `volley.types.names`), None = the input's schema."""

    narrow: ClassVar[bool] = True
    verb: ClassVar[str]
    function: Callable[..., Any]
    schema: Any = None

    def label(self) -> str:
        return f"{self.verb} {_name(self.function)}"


@dataclass(frozen=True)
class Map(_Apply):
    """Applies a function that takes a row (a dict) and returns one."""

    verb: ClassVar[str] = "map"


@dataclass(frozen=True)
class FlatMap(_Apply):
    """Applies a function that takes a row (a dict) and returns any number of rows."""

    verb: ClassVar[str] = "flat_map"


@dataclass(frozen=True)
class MapBatches(_Apply):
    """Applies a function that takes an Arrow record batch and returns one."""

    verb: ClassVar[str] = "map_batches"


@dataclass(frozen=True)
class Explode(_Step):
    """Makes a row of each item of a list; of an empty list or null none, or with `keep_empty` one with a null."""

    narrow: ClassVar[bool] = True
    column: str
    keep_empty: bool = False

    def label(self) -> str:
        return f"explode {self.column!r}" + (" keep_empty" if self.keep_empty else "")


@dataclass(frozen=True)
class Limit(_Step):
    """Keeps so many rows of a stream that ends, whichever come first."""

    stateful: ClassVar[bool] = True
    rows: int

    def label(self) -> str:
        return f"limit {self.rows}"


@dataclass(frozen=True)
class Repartition(_Step):
    """Divides an epoch's rows among tasks that write them; only a sort or writes follow.

    `tasks` None = as many as there are cores. Rows with equal values of `keys` go to one task.
    """

    tasks: int | None
    keys: tuple[str, ...] = ()

    def label(self) -> str:
        by = f" by {', '.join(map(repr, self.keys))}" if self.keys else ""
        return f"repartition{'' if self.tasks is None else f' {self.tasks}'}{by}"


@dataclass(frozen=True)
class SortWithinEpoch(_Step):
    """Sorts the rows that each task of an epoch writes; only writes follow. Columns, each with ``asc`` or ``desc``."""

    narrow: ClassVar[bool] = True
    order: tuple[str, ...]

    def label(self) -> str:
        return f"sort_within_epoch by {', '.join(map(repr, self.order))}"


@dataclass(frozen=True)
class Join(_Step):
    """Adds the columns of a table's rows with the same key.

    Args:
        join: The table, and how to join with it.
        rows: The table's rows; None = the table is not open yet.
    """

    narrow: ClassVar[bool] = True
    join: TableJoin
    rows: JoinedRows | None = field(default=None, compare=False, repr=False)

    @property
    def added(self) -> frozenset[str] | None:
        """The names of the columns that it adds; None = not known before the table is open."""
        if self.rows is None:
            return self.join.known_additions
        return frozenset(name + self.join.suffix for name in self.join.added(self.rows.schema.names))

    def label(self) -> str:
        return str(self.join)


@dataclass(frozen=True)
class Union(Node):
    """Combines the rows of several streams with the same columns."""

    narrow: ClassVar[bool] = True
    streams: tuple[Node, ...]

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.streams

    def after(self, inputs: Sequence[Node]) -> Node:
        return Union(tuple(inputs))

    def label(self) -> str:
        return "union"


@dataclass(frozen=True)
class Deduplicate(_Step):
    """Keeps the first row of each key; with `within`, drops keys from the state that long after their `event_time`."""

    stateful: ClassVar[bool] = True
    keys: tuple[str, ...]
    event_time: str | None = None
    within: timedelta | None = None

    def label(self) -> str:
        window = f" within {self.within} of {self.event_time!r}" if self.within else ""
        return f"deduplicate by {', '.join(map(repr, self.keys))}{window}"


WINDOW_COLUMNS = ("window_start", "window_end")
"""The columns of a windowed aggregate before its keys."""

CHANGE = "_change"
"""The last column of updates of sessions: ``delete`` for one that has become a part of another, else ``update_after``.
"""


class Keyed(Node):
    """A step for which Volley keeps state by key: it begins the second stage of a job, which follows its intakes."""

    @property
    @abstractmethod
    def intakes(self) -> tuple[Node, ...]:
        """What takes its rows at the end of the first stage: itself, or a step for each of its inputs."""

    @property
    @abstractmethod
    def timing(self) -> Timing | None:
        """How it follows event time; None if it does not, so that a job can't run it."""

    @property
    @abstractmethod
    def state(self) -> str:
        """What the state of a job refers to, as one line of text."""


@dataclass(frozen=True)
class Aggregate(_Step, Keyed):
    """Reduces the rows of each key, and of each window of time, to one row of aggregates.

    `aggregates` are pairs of a column's name and its aggregate; without `windowing`, a key's row is never final.
    """

    keys: tuple[ExprNode, ...]
    aggregates: tuple[tuple[str, Aggregation], ...]
    windowing: Windowing | None = None

    @property
    def intakes(self) -> tuple[Node, ...]:
        return (self,)

    @property
    def timing(self) -> Timing | None:
        return self.windowing

    @property
    def names(self) -> list[str]:
        """The names of its columns."""
        windows = WINDOW_COLUMNS if self.windowing else ()
        changes = (CHANGE,) if self.has_changes else ()
        return [*windows, *map(output_name, self.keys), *(name for name, _ in self.aggregates), *changes]

    @property
    def used_columns(self) -> set[str]:
        """The names of the columns that it uses of its input."""
        on = {self.windowing.on} if self.windowing else set()
        return on.union(*map(column_names, self.keys), *(each.used_columns for _, each in self.aggregates))

    @property
    def has_changes(self) -> bool:
        """True if a row that came out can be deleted later."""
        windowing = self.windowing
        return windowing is not None and windowing.emit == "updates" and isinstance(windowing.window, Session)

    @property
    def state(self) -> str:
        buckets = f", in {self.windowing.buckets} buckets" if self.windowing else ""
        return f"{self._groups()}{buckets}"

    def label(self) -> str:
        emission = f", emit {self.windowing.emit}" if self.windowing else ""
        return f"{self._groups()}{emission}"

    def _groups(self) -> str:
        groups = [repr(key) for key in self.keys]
        if self.windowing:
            groups.insert(0, f"{self.windowing.window!r} of {self.windowing.on!r}")
        aggregates = ", ".join(f"{name}={aggregation!r}" for name, aggregation in self.aggregates)
        return f"aggregate {aggregates}{' by ' if groups else ''}{', '.join(groups)}"


@dataclass(frozen=True)
class Side(_Step):
    """Takes the rows of one side of a join of streams."""

    narrow: ClassVar[bool] = True
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
class Series(_Step, Keyed):
    """Adds columns that are computed from the rows of the same key before each row, in the order of event time."""

    keys: tuple[ExprNode, ...]
    functions: tuple[tuple[str, SeriesFunction], ...]
    ordering: Ordering

    @property
    def intakes(self) -> tuple[Node, ...]:
        return (self,)

    @property
    def timing(self) -> Timing:
        return self.ordering

    @property
    def used_columns(self) -> set[str]:
        """The names of the columns that it uses of its input."""
        functions = (each.used_columns for _, each in self.functions)
        return {self.ordering.on}.union(*map(column_names, self.keys), *functions)

    @property
    def state(self) -> str:
        pause = f", pause {self.ordering.pause}" if self.ordering.pause else ""
        return f"{self.label()}{pause}, in {self.ordering.buckets} buckets"

    def label(self) -> str:
        functions = ", ".join(f"{name}={function!r}" for name, function in self.functions)
        return f"series {functions} by {', '.join([*map(repr, self.keys), repr(self.ordering.on)])}"


@dataclass(frozen=True)
class Write(_Step):
    """Writes the rows to a sink, bad ones to its dead letter. A job's graph is what leads to its writes."""

    narrow: ClassVar[bool] = True
    sink: Sink
    dead_letter: Sink | None = None

    @property
    def order(self) -> tuple[str, ...]:
        """The order of the rows that each task writes; none = as they come."""
        return self.input.order if isinstance(self.input, SortWithinEpoch) else ()

    @property
    def repartition(self) -> Repartition | None:
        """How its rows are divided among the tasks that write them; None = each writes those that it has."""
        before = self.input.input if isinstance(self.input, SortWithinEpoch) else self.input
        return before if isinstance(before, Repartition) else None

    def label(self) -> str:
        return f"write {self.sink!r}"
