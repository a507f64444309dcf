"""What a source may leave out because the job does not use it: rows that every sink's filters drop, and columns."""

from __future__ import annotations

from functools import partial, reduce

from volley.plan import keyed_nodes, nodes
from volley.plan.expression_nodes import Column, ExprNode, column_names, joined
from volley.plan.graph import Followers

__all__ = ["only_keys", "used_columns", "used_rows"]


def used_rows(followers: Followers, read: nodes.Read) -> ExprNode | None:
    """Return a predicate that is true for each of a source's rows that any step but a leading filter gets.

    Args:
        followers: The steps that take each node's output.

    Returns:
        The predicate; None if all rows are used.
    """
    alternatives: list[ExprNode] = []
    for follower in followers.get(id(read), []):
        filters: list[ExprNode] = []
        while isinstance(follower, nodes.Filter):
            filters.append(follower.predicate)
            next_nodes = followers.get(id(follower), [])
            if len(next_nodes) != 1:
                break
            (follower,) = next_nodes
        if not filters:
            return None
        alternatives.append(reduce(partial(joined, "and_"), filters))
    return reduce(partial(joined, "or_"), alternatives) if alternatives else None


def used_columns(followers: Followers, read: nodes.Read) -> frozenset[str] | None:
    """Return the names of the columns that the job uses of a source, or more; None = all of them.

    Args:
        followers: The steps that take each node's output.
    """

    def used_after(node: nodes.Node) -> frozenset[str] | None:
        """Return the columns used by the steps after a node that passes on the source's columns."""
        if not (after := followers.get(id(node), [])):
            return None
        parts = [used_by(step) for step in after]
        return frozenset().union(*(part for part in parts if part is not None)) if None not in parts else None

    def used_by(step: nodes.Node) -> frozenset[str] | None:
        match step:
            case nodes.Select():
                return frozenset().union(*map(column_names, step.columns))
            case nodes.Filter() | nodes.Rest() | nodes.Expect():
                own = frozenset(column_names(step.predicate))
            case nodes.WithColumns():
                further = used_after(step)
                names, values = {name for name, _ in step.columns}, (value for _, value in step.columns)
                return None if further is None else (further - names).union(*map(column_names, values))
            case nodes.ProcessingTime():
                further = used_after(step)
                return None if further is None else further - {step.column}
            case keyed_nodes.Series() | keyed_nodes.Over():
                further = used_after(step)
                names = {name for name, _ in step.functions}
                return None if further is None else (further - names) | step.used_columns
            case keyed_nodes.Aggregate():
                return frozenset(step.used_columns)
            case keyed_nodes.Side():
                return used_by_side(step)
            case nodes.Drop():
                own = frozenset(step.columns)
            case keyed_nodes.Deduplicate():
                own = step.used_columns
            case nodes.Ordered():
                own = frozenset(column.rpartition(" ")[0] for column in step.order)
            case nodes.Union() | keyed_nodes.Limit():
                own = frozenset()
            case nodes.Join():
                further, added = used_after(step), step.added
                own = frozenset(step.join.left_columns)
                return None if further is None or added is None else own | (further - added)
            case _:
                return None
        further = used_after(step)
        return None if further is None else own | further

    def used_by_side(side: keyed_nodes.Side) -> frozenset[str] | None:
        (node,) = followers[id(side)]
        assert isinstance(node, keyed_nodes.JoinStreams)
        join, added, further = node.join, node.join.known_additions, used_after(node)
        own = frozenset([*(join.right_keys if side.is_right else join.left_keys), join.times[side.is_right]])
        if side.is_right:
            return None if join.columns is None else own.union(join.columns)
        return None if further is None or added is None else own | (further - added)

    return used_after(read)


def only_keys(followers: Followers, read: nodes.Read) -> frozenset[str]:
    """Return the names of columns of a source that the job uses for nothing but as keys of windowed aggregates.

    Only of a source whose rows get to such aggregates without a step between.

    Args:
        followers: The steps that take each node's output.
    """
    keys: set[str] = set()
    values: set[str] = set()
    for step in followers.get(id(read), []):
        if not isinstance(step, keyed_nodes.Aggregate):
            return frozenset()
        names = {key.name for key in step.keys if isinstance(key, Column)}
        keys |= names
        # A column that is a key may be the event time, or have an aggregate, too.
        values |= step.used_columns - names | step.used_values
    return frozenset(keys - values)
