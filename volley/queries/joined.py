"""The rows of a query that another one is joined with: computed when the job, or the reading, begins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from volley.contracts.dimension import DimensionReader
from volley.plan.nodes import Node
from volley.plan.queried import QueriedTable, described

if TYPE_CHECKING:
    from volley.stream.stream import DataStream

__all__ = ["JoinedQuery"]


@dataclass(frozen=True, repr=False)
class JoinedQuery(QueriedTable):
    """The rows of a query over sources that end, as a table to join with.

    Args:
        number: Its place among the joined queries of one text.
        stream: The query.
    """

    number: int
    stream: DataStream

    @property
    def identity(self) -> str:
        return f"query {self.number}: {described(self.query)}"

    @property
    def selection(self) -> str:
        # Other rows are another version.
        return ""

    def open(self) -> DimensionReader:
        from volley.connectors.memory.reader import MemoryDimensionReader

        return MemoryDimensionReader(self.stream.to_arrow())

    @property
    def query(self) -> Node:
        return self.stream._node

    def __repr__(self) -> str:
        return f"query {self.number}"
