"""What the names in a query mean: the columns of its tables, by table and name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from volley.columns.schemas import Schemas
from volley.errors import near
from volley.plan import nodes
from volley.plan.expressions import Expr
from volley.plan.sql_columns import KnownColumn, with_columns
from volley.plan.sql_nodes import Mistake, expression_of_tree
from volley.queries.parse import is_decimal
from volley.types.arrow import type_name

if TYPE_CHECKING:
    import pyarrow as pa

    from volley.contracts.dimension import Dimension
    from volley.stream.stream import DataStream

__all__ = ["BOUND", "PLACEHOLDER", "Item", "Relation", "Types", "expression"]

BOUND = "bound"
"""Marks a column of groups, which no table has."""


PLACEHOLDER = "placeholder"
"""Marks what stands for a query in an expression over groups."""


@dataclass(frozen=True)
class Item:
    """A column that a query can name.

    Args:
        table: The name of its table in the query.
        name: Its name in the query.
        column: Its name in the stream.
    """

    table: str
    name: str
    column: str


@dataclass(frozen=True)
class Relation:
    """The rows of a query or of a part of it, and the columns that can be named."""

    stream: DataStream
    items: tuple[Item, ...]

    def under(self, table: str, names: Sequence[str] = ()) -> Relation:
        """Return the rows as those of a table, whose columns may have other names."""
        renamed = names or [item.name for item in self.items]
        items = (Item(table, name, item.column) for name, item in zip(renamed, self.items, strict=True))
        return Relation(self.stream, tuple(items))

    def resolved(self, tree: exp.Expression, aliases: dict[str, exp.Expression] | None = None) -> exp.Expression:
        """Return a tree whose columns are those of the stream.

        Args:
            aliases: What further names stand for, which no column has.
        """

        def named(node: exp.Expr) -> exp.Expr:
            return self._named(node, aliases or {}) if isinstance(node, exp.Column) and BOUND not in node.meta else node

        result = tree.transform(named)
        assert isinstance(result, exp.Expression)
        return result

    def item(self, node: exp.Column) -> Item:
        """Return the column that a name of one or two parts means."""
        items = self._matching(node)
        if len(items) == 1:
            return items[0]
        raise self._unclear(node, items)

    def has(self, node: exp.Column) -> bool:
        """Return True if a name is that of a column, or of several."""
        return bool(self._matching(node))

    def _matching(self, node: exp.Column) -> list[Item]:
        names = [part.name for part in node.parts]
        qualified = [item for item in self.items if [item.table, item.name] == names[:2]] if len(names) > 1 else []
        return qualified or [item for item in self.items if item.name == names[0]]

    def _unclear(self, node: exp.Column, items: Sequence[Item]) -> Mistake:
        shown = ".".join(part.name for part in node.parts)
        if items:
            tables = " or ".join(f"{item.table}.{item.name}" for item in items)
            return Mistake(f"{shown} is a column of several tables", node, f"write {tables}")
        known = {item.name for item in self.items} | {f"{item.table}.{item.name}" for item in self.items if item.table}
        return Mistake(f"there is no column {shown}", node, near(shown, known))

    def _named(self, node: exp.Column, aliases: dict[str, exp.Expression]) -> exp.Expression:
        if any(isinstance(part, exp.Star) for part in node.parts):
            raise Mistake("SQL's * is not an expression", node, "name the columns")
        parts = [part.name for part in node.parts]
        if len(parts) == 1 and not self.has(node) and parts[0] in aliases:
            return aliases[parts[0]].copy()
        item = self.item(node)
        named: exp.Expression = exp.column(item.column, quoted=True)
        fields = parts[2:] if parts[:2] == [item.table, item.name] else parts[1:]
        for field in fields:
            named = exp.Bracket(this=named, expressions=[exp.Literal.string(field)])
        for part in node.walk():
            if "start" in part.meta:
                next(iter(named.find_all(exp.Identifier))).meta["start"] = part.meta["start"]
                break
        return named


class Types:
    """The schemas of streams, without a look at sources but the first one at each."""

    def __init__(self) -> None:
        self._reads: dict[int, pa.Schema] = {}
        self._tables: dict[int, pa.Schema] = {}

    def add(self, stream: DataStream) -> None:
        """Look at the sources of a stream."""
        from volley.engine.collect import schema_of
        from volley.plan.nodes import walk

        for node in walk([stream._node]):
            if isinstance(node, nodes.Read) and id(node) not in self._reads:
                self._reads[id(node)] = schema_of(node)
            elif isinstance(node, nodes.Join):
                self._tables[id(node.join.table)] = node.join.table.open().schema

    def add_table(self, table: Dimension, schema: pa.Schema) -> None:
        """Note the schema of a joined table."""
        self._tables[id(table)] = schema

    def of(self, stream: DataStream) -> pa.Schema:
        """Return the schema of a stream's rows."""
        return Schemas(lambda read: self._reads[id(read)], lambda table: self._tables[id(table)]).known(stream._node)


def expression(tree: exp.Expression, schema: pa.Schema) -> Expr:
    """Return the expression of a resolved tree; constants have the types of the columns that they are compared with.

    Raises:
        Mistake: If expressions can't say it.
    """

    def known(names: Sequence[str]) -> KnownColumn | None:
        if names[0] not in schema.names or len(names) > 1:
            return None
        name = type_name(schema.field(names[0]).type)
        return KnownColumn(names, "decimal" if name.startswith("decimal") else name)

    typed = with_columns(tree.copy(), known).transform(_decimals)
    assert isinstance(typed, exp.Expression)
    return expression_of_tree(typed)


def _decimals(node: exp.Expr) -> exp.Expr:
    if not is_decimal(node):
        return node
    return exp.Cast(this=exp.Literal.string(node.this), to=exp.DataType(this=exp.DType.DECIMAL, nested=False))
