"""Joined tables whose rows are those of a query, and walks through such queries."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator

from volley.contracts.dimension import Dimension
from volley.plan.graph import describe
from volley.plan.nodes import Join, Node, walk

__all__ = ["QueriedTable", "described", "queries_in", "walk_all"]


class QueriedTable(Dimension):
    """A table whose rows are those of a query. A view follows the tables of the query, too."""

    @property
    @abstractmethod
    def query(self) -> Node:
        """The last step of the query."""


def queries_in(query: Node) -> list[Node]:
    """Return the last steps of a query and of those that it is joined with, each once."""
    queries = [query]
    for known in queries:
        for node in walk([known]):
            if isinstance(node, Join) and isinstance(node.join.table, QueriedTable):
                other = node.join.table.query
                queries += [other] if all(other is not one for one in queries) else []
    return queries


def walk_all(query: Node) -> Iterator[Node]:
    """Yield every node of a query and of those that it is joined with, once."""
    yield from walk(queries_in(query))


def described(query: Node) -> str:
    """Return a query as text, and below it those that it is joined with."""
    return "\n".join(map(describe, queries_in(query)))
