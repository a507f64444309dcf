"""The tables that a query names: streams, sources and rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from volley.connectors.memory.source import MemorySource
from volley.contracts.dimension import Dimension
from volley.contracts.source import Source
from volley.errors import ConfigError, near
from volley.iceberg.source import IcebergSource
from volley.iceberg.source_config import IcebergSourceConfig
from volley.iceberg.table import TableRef
from volley.plan import nodes
from volley.plan.nodes import walk
from volley.plan.sql_nodes import Mistake
from volley.queries.joined import JoinedQuery
from volley.queries.scope import Item, Relation, Types
from volley.stream.joins import dimension_of
from volley.stream.stream import DataStream

__all__ = ["Tables", "full_name"]


def full_name(table: exp.Table) -> str:
    """Return the name of a table as the text has it, with its namespace: ``shop.orders``."""
    return ".".join(part.name for part in table.parts)


@dataclass(frozen=True)
class _Table:
    stream: DataStream
    value: Any = None


class Tables:
    """The tables of one query.

    Args:
        values: What each name stands for.
        from_source: Returns the stream of a source.
        types: Gets the schemas of what is used.
    """

    def __init__(self, values: Mapping[str, Any], from_source: Callable[[Source], DataStream], types: Types) -> None:
        self._values, self._from_source, self._types = values, from_source, types
        self._used: dict[str, _Table] = {}
        self._queries = 0

    def relation(self, node: exp.Table) -> Relation:
        """Return the rows of a table that the text names."""
        name = full_name(node)
        if name not in self._values:
            raise Mistake(f"there is no table {name}", node, near(name, self._values))
        if name not in self._used:
            table = self._used[name] = self._opened(name, self._values[name])
            self._types.add(table.stream)
        stream = self._used[name].stream
        return Relation(stream, tuple(Item(node.name, name, name) for name in self._types.of(stream).names))

    def unused(self) -> list[str]:
        """Return the names that the text does not have."""
        return sorted({*self._values} - {*self._used})

    def is_endless(self, stream: DataStream) -> bool:
        """Return True if new rows can come while a job runs, other than those of a table as a whole."""
        return any(not read.source.bounded for read in self._streams(stream))

    def is_stream(self, stream: DataStream) -> bool:
        """Return True if rows are not those of a table as a whole."""
        return any(self._streams(stream))

    def _streams(self, stream: DataStream) -> Iterator[nodes.Read]:
        """Yield the reads of rows that are not those of a table as a whole."""
        tables = [table.stream._node for table in self._used.values() if table.value is not None]
        for node in walk([stream._node]):
            if isinstance(node, nodes.Read) and all(node is not table for table in tables):
                yield node

    def dimension(self, stream: DataStream, node: exp.Expression) -> Dimension:
        """Return rows as a table to join with."""
        for table in self._used.values():
            if table.stream._node is stream._node and table.value is not None:
                return self._noted(dimension_of(table.value), stream)
        for read in walk([stream._node]):
            if isinstance(read, nodes.Read) and not read.source.bounded:
                raise Mistake(
                    f"a join with rows of {read.source!r}, which has no end",
                    node,
                    "give a table in place of a stream, such as IcebergTable(…), and join it as a whole; two streams "
                    "are joined within a bound of time: a.id = b.id and b.at between a.at - interval '1' hour and a.at",
                )
        self._queries += 1
        return self._noted(JoinedQuery(self._queries, stream), stream)

    def _noted(self, dimension: Dimension, stream: DataStream) -> Dimension:
        self._types.add_table(dimension, self._types.of(stream))
        return dimension

    def _opened(self, name: str, value: Any) -> _Table:
        if isinstance(value, DataStream):
            return _Table(value)
        if isinstance(value, Source):
            return _Table(self._from_source(value), value)
        reference = value if isinstance(value, TableRef) else getattr(value, "ref", None)
        if isinstance(reference, TableRef):
            return _Table(self._from_source(IcebergSource(IcebergSourceConfig(reference))), value)
        try:
            source = MemorySource(value)
        except ConfigError as error:
            raise ConfigError(
                f"table {name!r} is of type {type(value).__name__}: {error.message}",
                hint="give a stream, a source, an IcebergTable, a DataFrame, Arrow data or a list of dicts",
            ) from error
        return _Table(self._from_source(source), source)
