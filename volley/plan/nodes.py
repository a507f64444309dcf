"""The nodes of a job's plan: frozen, value-equal, printable; the backends compile them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

from volley.contracts.sink import Sink
from volley.contracts.source import Source
from volley.plan.expression_nodes import ExprNode
from volley.plan.joins import JoinedRows, NamedTable, TableJoin
from volley.plan.places import Place

__all__ = [
    "Apply",
    "Drop",
    "Expect",
    "Explode",
    "Filter",
    "FlatMap",
    "Join",
    "Map",
    "MapBatches",
    "Node",
    "Ordered",
    "ProcessingTime",
    "Read",
    "Rename",
    "Repartition",
    "Rest",
    "Select",
    "SortWithinEpoch",
    "Step",
    "Union",
    "WithColumns",
    "Write",
    "walk",
]

_MOST_LABEL = 200


@dataclass(frozen=True)
class Node(ABC):
    """One step of a plan.

    Args:
        place: The line of the program that has it; None = Volley itself has built it.
    """

    place: Place | None = field(default=None, kw_only=True, compare=False, repr=False)

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The steps before it."""
        return ()

    def after(self, inputs: Sequence[Node]) -> Node:
        """Return the same step after other steps, as many as it has inputs."""
        return self

    def alone(self) -> Node:
        """Return the step as tasks get it: without the steps before it, whose sources have rows and secrets."""
        return self.after([_Before()] * len(self.inputs))

    @abstractmethod
    def label(self) -> str:
        """Return the step as one line of text, without its inputs and without secrets."""

    @property
    def brief(self) -> str:
        """The label, cut to 200 characters."""
        label = self.label()
        return label if len(label) <= _MOST_LABEL else f"{label[: _MOST_LABEL - 1]}…"


@dataclass(frozen=True)
class _Before(Node):
    """Stands for the steps before one that is alone."""

    def label(self) -> str:
        return "…"


@dataclass(frozen=True)
class Read(Node):
    """Reads the rows of a source."""

    source: Source

    def label(self) -> str:
        return f"read {self.source!r}"


@dataclass(frozen=True)
class Step(Node):
    """A step with one input."""

    input: Node

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)

    def after(self, inputs: Sequence[Node]) -> Node:
        return replace(self, input=inputs[0])


@dataclass(frozen=True)
class Filter(Step):
    """Keeps the rows for which the predicate is true (not false, not null)."""

    predicate: ExprNode

    def label(self) -> str:
        return f"filter {self.predicate!r}"


@dataclass(frozen=True)
class Rest(Step):
    """Keeps the rows for which the predicate is false or null."""

    predicate: ExprNode

    def label(self) -> str:
        return f"filter not is_true({self.predicate!r})"


OnFail = Literal["warn", "drop", "dead_letter", "fail"]
"""What becomes of a row that does not meet an expectation."""


@dataclass(frozen=True)
class Expect(Step):
    """Counts the rows for which a predicate is false, not null, and does with them what `on_fail` says.

    `max_failed` is how many of an epoch's rows may fail, or which share of them; None = any.
    """

    name: str
    predicate: ExprNode
    on_fail: OnFail = "warn"
    max_failed: float | None = None

    @property
    def limit(self) -> float | None:
        """The most rows of an epoch that may fail, or their share if it is a float; None = any."""
        return 0 if self.max_failed is None and self.on_fail == "fail" else self.max_failed

    def label(self) -> str:
        limit = "" if self.max_failed is None else f", max_failed={self.max_failed}"
        return f"expect {self.name!r}: {self.predicate!r}, on_fail={self.on_fail!r}{limit}"


@dataclass(frozen=True)
class Select(Step):
    """Keeps exactly these columns, in this order."""

    columns: tuple[ExprNode, ...]

    def label(self) -> str:
        return f"select {', '.join(map(repr, self.columns))}"


@dataclass(frozen=True)
class WithColumns(Step):
    """Appends columns, or replaces those of the same names in their places; all values are of the rows as they were."""

    columns: tuple[tuple[str, ExprNode], ...]

    def label(self) -> str:
        verb = "with_column" if len(self.columns) == 1 else "with_columns"
        return f"{verb} {', '.join(f'{name!r} = {value!r}' for name, value in self.columns)}"


@dataclass(frozen=True)
class ProcessingTime(Step):
    """Appends a column with the time of the computer's clock at which a row's epoch was planned, or replaces it."""

    column: str

    def label(self) -> str:
        return f"with_processing_time {self.column!r}"


@dataclass(frozen=True)
class Drop(Step):
    """Drops these columns."""

    columns: tuple[str, ...]

    def label(self) -> str:
        return f"drop {', '.join(map(repr, self.columns))}"


@dataclass(frozen=True)
class Rename(Step):
    """Renames columns: pairs of (old, new)."""

    names: tuple[tuple[str, str], ...]

    def label(self) -> str:
        return "rename " + ", ".join(f"{old!r} → {new!r}" for old, new in self.names)


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", repr(function))


@dataclass(frozen=True)
class Apply(Step):
    """Applies a Python function; `schema` is its output's (see `volley.types.names`), None = the input's schema."""

    verb: ClassVar[str]
    function: Callable[..., Any]
    schema: Any = None

    def label(self) -> str:
        return f"{self.verb} {_name(self.function)}"


@dataclass(frozen=True)
class Map(Apply):
    """Applies a function that takes a row (a dict) and returns one."""

    verb: ClassVar[str] = "map"


@dataclass(frozen=True)
class FlatMap(Apply):
    """Applies a function that takes a row (a dict) and returns any number of rows."""

    verb: ClassVar[str] = "flat_map"


@dataclass(frozen=True)
class MapBatches(Apply):
    """Applies a function that takes an Arrow record batch and returns one."""

    verb: ClassVar[str] = "map_batches"


@dataclass(frozen=True)
class Explode(Step):
    """Makes a row of each item of a list; of an empty list or null none, or with `keep_empty` one with a null."""

    column: str
    keep_empty: bool = False

    def label(self) -> str:
        return f"explode {self.column!r}" + (" keep_empty" if self.keep_empty else "")


@dataclass(frozen=True)
class Repartition(Step):
    """Divides an epoch's rows among tasks that write them; only a sort or writes follow.

    `tasks` None = as many as there are cores. Rows with equal values of `keys` go to one task.
    """

    tasks: int | None
    keys: tuple[str, ...] = ()

    def label(self) -> str:
        by = f" by {', '.join(map(repr, self.keys))}" if self.keys else ""
        return f"repartition{'' if self.tasks is None else f' {self.tasks}'}{by}"


@dataclass(frozen=True)
class SortWithinEpoch(Step):
    """Sorts the rows that each task of an epoch writes; only writes follow. Columns, each with ``asc`` or ``desc``."""

    order: tuple[str, ...]

    def label(self) -> str:
        return f"sort_within_epoch by {', '.join(map(repr, self.order))}"


@dataclass(frozen=True)
class Ordered(Step):
    """Sorts all rows, and keeps the first ones; no job has it, as its rows never end.

    Args:
        order: The columns, each with ``asc`` or ``desc``.
        rows: How many rows it keeps; None = all.
    """

    order: tuple[str, ...]
    rows: int | None = None

    def label(self) -> str:
        first = "" if self.rows is None else f", the first {self.rows:,}"
        return f"order by {', '.join(map(repr, self.order))}{first}"


@dataclass(frozen=True)
class Join(Step):
    """Adds the columns of a table's rows with the same key.

    Args:
        join: The table, and how to join with it.
        rows: The table's rows; None = the table is not open yet.
    """

    join: TableJoin
    rows: JoinedRows | None = field(default=None, compare=False, repr=False)

    @property
    def added(self) -> frozenset[str] | None:
        """The names of the columns that it adds; None = not known before the table is open."""
        if self.rows is None:
            return self.join.known_additions
        return frozenset(name + self.join.suffix for name in self.join.added(self.rows.schema.names))

    def alone(self) -> Node:
        join = replace(self.join, table=NamedTable(repr(self.join.table)))
        return replace(self, input=_Before(), join=join)

    def label(self) -> str:
        return str(self.join)


@dataclass(frozen=True)
class Union(Node):
    """Combines the rows of several streams with the same columns."""

    streams: tuple[Node, ...]

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.streams

    def after(self, inputs: Sequence[Node]) -> Node:
        return Union(tuple(inputs))

    def label(self) -> str:
        return "union"


@dataclass(frozen=True)
class Write(Step):
    """Writes the rows to a sink, bad ones to its dead letter. A job's graph is what leads to its writes."""

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


def walk(nodes: Iterable[Node]) -> Iterator[Node]:
    """Yield every node of the graph that ends in `nodes` once, inputs first.

    Streams that continue one stream share its nodes: nodes are the same by identity, not by value.
    """
    seen: set[int] = set()

    def visit(node: Node) -> Iterator[Node]:
        if id(node) in seen:
            return
        seen.add(id(node))
        for source in node.inputs:
            yield from visit(source)
        yield node

    for node in nodes:
        yield from visit(node)
