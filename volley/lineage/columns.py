"""From which columns of its sources each column of a stream comes, and how: found in the plan alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from volley.contracts.source import Source
from volley.plan import keyed_nodes, nodes
from volley.plan.aggregates import Aggregation
from volley.plan.expression_nodes import Call, Column, ExprNode, column_names, output_name

__all__ = ["Columns", "Origin", "columns_of"]

Origins = frozenset["Origin"]
Names = Callable[[nodes.Node], Sequence[str]]
"""Returns the names of a node's columns; of a join with a table, those that it adds."""

# What they return tells nothing of the value, as OpenLineage counts it.
_MASKING = {"md5", "sha256", "uuid5", "murmur3", "xxhash64"}
_MASKING_AGGREGATES = {"count", "count_distinct", "approx_distinct"}


@dataclass(frozen=True)
class Origin:
    """A column of a source that another one depends on.

    Args:
        source: The ``id()`` of the source, or of the table that a stream is joined with: these may have no hash.
        column: Its name there.
        how: ``"IDENTITY"``, ``"TRANSFORMATION"`` or ``"AGGREGATION"``: the value comes from it. ``"CONDITIONAL"``,
            ``"FILTER"``, ``"JOIN"``, ``"GROUP_BY"``, ``"SORT"`` or ``"WINDOW"``: it decides which rows or values.
        masking: True if its values can't be told from the result's.
    """

    source: int
    column: str
    how: str = "IDENTITY"
    masking: bool = False

    @property
    def is_direct(self) -> bool:
        """True if values come from it."""
        return self.how in _DIRECT

    def then(self, how: str, masking: bool = False) -> Origin:
        """Return the origin after one more step."""
        if not self.is_direct:
            return self
        if how in _DIRECT:
            how = max(self.how, how, key=_DIRECT.index)
        return replace(self, how=how, masking=self.masking or masking)


_DIRECT = ("IDENTITY", "TRANSFORMATION", "AGGREGATION")


@dataclass(frozen=True)
class Columns:
    """The columns of a stream.

    Args:
        values: By name, what each depends on.
        rows: What all depend on: filters, joins, groups.
    """

    values: Mapping[str, Origins]
    rows: Origins = frozenset()

    def origins(self, names: Iterable[str], how: str, masking: bool = False) -> Origins:
        """Return what columns depend on, after one more step."""
        found = (origin for name in names for origin in self.values.get(name, ()))
        return frozenset(origin.then(how, masking) for origin in found)

    def value(self, node: ExprNode) -> Origins:
        """Return what an expression of these columns depends on."""
        return frozenset(
            origin.then(how, masking) for name, how, masking in _uses(node) for origin in self.values.get(name, ())
        )

    def after(self, names: Iterable[str], how: str) -> Columns:
        """Return the same columns after a step in which others decide which rows are there."""
        return replace(self, rows=self.rows | self.origins(names, how))

    def __or__(self, other: Columns) -> Columns:
        names = dict.fromkeys([*self.values, *other.values])
        none: Origins = frozenset()
        values = {name: self.values.get(name, none) | other.values.get(name, none) for name in names}
        return Columns(values, self.rows | other.rows)


def columns_of(end: nodes.Node, names: Names) -> Columns:
    """Return the columns of a node's output; of a write, those that it writes.

    Args:
        names: See `Names`.
    """
    done: dict[int, Columns] = {}

    def visit(node: nodes.Node) -> Columns:
        if id(node) not in done:
            done[id(node)] = _step(node, [visit(source) for source in node.inputs], names)
        return done[id(node)]

    return visit(end)


def _uses(node: ExprNode) -> Iterator[tuple[str, str, bool]]:
    """Yield the columns that an expression reads, each with how, and whether that masks it."""
    if isinstance(node, Column):
        yield node.name, "IDENTITY", False
    elif isinstance(node, Call) and node.op == "alias":
        yield from _uses(node.args[0])
    elif isinstance(node, Call):
        for arg, how in _arguments(node):
            for name, inner, masking in _uses(arg):
                is_direct = inner in _DIRECT
                yield name, how if is_direct else inner, is_direct and (masking or node.op in _MASKING)


def _arguments(node: Call) -> Iterator[tuple[ExprNode, str]]:
    """Yield the arguments of a call, each with how its result depends on it."""
    *pairs, last = node.args
    for number, arg in enumerate(pairs):
        # Conditions and values take turns; the last value is for the other rows.
        yield arg, "CONDITIONAL" if node.op == "when" and number % 2 == 0 else "TRANSFORMATION"
    yield last, "TRANSFORMATION"


def _step(node: nodes.Node, inputs: Sequence[Columns], names: Names) -> Columns:
    """Return the columns behind a node.

    Args:
        inputs: Those of its inputs.
    """
    match node:
        case nodes.Read():
            return Columns({name: frozenset({_of_source(node.source, name)}) for name in names(node)})
        case nodes.Union():
            united = inputs[0]
            for other in inputs[1:]:
                united |= other
            return united
        case keyed_nodes.JoinStreams():
            return _joined_streams(node, *inputs)
    before = inputs[0]
    match node:
        case nodes.Filter() | nodes.Rest():
            return before.after(column_names(node.predicate), "FILTER")
        case nodes.Expect(on_fail="drop" | "dead_letter"):
            return before.after(column_names(node.predicate), "FILTER")
        case nodes.Select():
            return replace(before, values={output_name(column): before.value(column) for column in node.columns})
        case nodes.WithColumns():
            added = {name: before.value(value) for name, value in node.columns}
            return replace(before, values={**before.values, **added})
        case nodes.ProcessingTime():
            return replace(before, values={**before.values, node.column: frozenset()})
        case nodes.Drop():
            kept = {name: origins for name, origins in before.values.items() if name not in node.columns}
            return replace(before, values=kept)
        case nodes.Rename():
            renamed = dict(node.names)
            return replace(before, values={renamed.get(name, name): value for name, value in before.values.items()})
        case nodes.Apply():
            everything = before.origins(before.values, "TRANSFORMATION")
            return replace(before, values=dict.fromkeys(names(node), everything))
        case nodes.SortWithinEpoch() | nodes.Ordered():
            return before.after((column.rpartition(" ")[0] or column for column in node.order), "SORT")
        case nodes.Explode():
            items = before.origins([node.column], "TRANSFORMATION")
            return replace(before, values={**before.values, node.column: items})
        case nodes.Join():
            return _joined(node, before, names)
        case keyed_nodes.Aggregate():
            return _aggregated(node, before)
        case keyed_nodes.Series():
            return _series(node, before)
        case keyed_nodes.Over():
            return _over(node, before)
        case keyed_nodes.Deduplicate():
            return before.after(node.keys, "GROUP_BY")
        case keyed_nodes.CompareExtracts():
            kept = {name: before.values.get(name, frozenset()) for name in names(node)}
            return replace(before, values=kept).after(node.keys, "GROUP_BY")
    return before


def _of_source(source: Source, column: str) -> Origin:
    """Return the origin of a source's column; dead letters have the columns of their rows in one."""
    return Origin(id(source), "payload", "TRANSFORMATION") if source.reads_letters else Origin(id(source), column)


def _joined(node: nodes.Join, before: Columns, names: Names) -> Columns:
    join, table = node.join, id(node.join.table)
    added = {name: name.removesuffix(join.suffix) for name in names(node)}
    values = {name: frozenset({Origin(table, column)}) for name, column in added.items()}
    right = (*join.right_keys, *([] if join.valid_from is None else [join.valid_from]))
    keys = frozenset(Origin(table, column, "JOIN") for column in right)
    matched = before.after(join.left_columns, "JOIN")
    return Columns({**before.values, **values}, matched.rows | keys)


def _joined_streams(node: keyed_nodes.JoinStreams, left: Columns, right: Columns) -> Columns:
    join, (left_time, right_time) = node.join, node.join.times
    added = {name + join.suffix: right.values.get(name, frozenset()) for name in join.added(tuple(right.values))}
    # A row that only the right side has has its keys.
    keys = {ours: left.value(Column(ours)) | right.value(Column(theirs)) for ours, theirs in join.on}
    left = left.after((*join.left_keys, left_time), "JOIN")
    right = right.after((*join.right_keys, right_time), "JOIN")
    return Columns({**left.values, **(keys if join.keeps_right else {}), **added}, left.rows | right.rows)


def _aggregated(node: keyed_nodes.Aggregate, before: Columns) -> Columns:
    on = [node.windowing.on] if node.windowing else []
    moments = before.origins(on, "TRANSFORMATION")
    values = {name: moments for name in node.names if name in keyed_nodes.WINDOW_COLUMNS} if on else {}
    values |= {output_name(key): before.value(key) for key in node.keys}
    for name, aggregation in node.aggregates:
        masks = aggregation.function in _MASKING_AGGREGATES
        used = frozenset((aggregation.value and column_names(aggregation.value)) or ())
        ranked = column_names(aggregation.by) if aggregation.by is not None else set()
        values[name] = before.origins(used, "AGGREGATION", masks) | before.origins(ranked, "SORT")
    keys = {name for key in node.keys for name in column_names(key)}
    rows = before.after(keys, "GROUP_BY").after(on, "WINDOW").rows
    return Columns({name: values.get(name, frozenset()) for name in node.names}, rows)


def _over(node: keyed_nodes.Over, before: Columns) -> Columns:
    keys = {name for key in node.keys for name in column_names(key)}
    window = before.origins([*keys, *node.order_columns], "WINDOW")
    added = {}
    for name, function in node.functions:
        is_aggregated = isinstance(function, Aggregation) or function.aggregation is not None
        how = "AGGREGATION" if is_aggregated else "TRANSFORMATION"
        added[name] = window | before.origins(function.used_columns, how)
    return replace(before, values={**before.values, **added})


def _series(node: keyed_nodes.Series, before: Columns) -> Columns:
    keys = {name for key in node.keys for name in column_names(key)}
    window = before.origins([*keys, node.ordering.on], "WINDOW")
    added = {}
    for name, function in node.functions:
        how = "AGGREGATION" if function.aggregation else "TRANSFORMATION"
        added[name] = window | before.origins(function.used_columns or {node.ordering.on}, how)
    return replace(before, values={**before.values, **added})
