"""The name of a row's table, as a template or an expression over the row's columns."""

from __future__ import annotations

from dataclasses import dataclass
from string import Formatter

from volley.errors import ConfigError
from volley.iceberg.table import check_name, check_namespace
from volley.plan.expression_nodes import Column, ExprNode
from volley.plan.expressions import Expr

__all__ = ["SEPARATOR", "TableNames"]

SEPARATOR = "\x1f"
"""What stands between the values of a route's columns in its key."""


@dataclass(frozen=True)
class TableNames:
    """The parts that a table's name consists of, and the namespace of a name without one.

    A row's key has the values of the columns or expressions in its table's name; rows of one key go to one table.

    Args:
        parts: Texts that stand in every name, and nodes that are computed for each row.
        namespace: The namespace of names without a dot.

    Example:
        >>> names = TableNames.of("{shop}.orders_{country}", ("lake",))
        >>> names.identifier(f"nord{SEPARATOR}no")
        ('nord', 'orders_no')
    """

    parts: tuple[str | ExprNode, ...]
    namespace: tuple[str, ...]

    @classmethod
    def of(cls, route: str | Expr, namespace: tuple[str, ...]) -> TableNames:
        """Return the names that a template with columns in braces, or an expression, describes.

        Raises:
            ConfigError: If the template is not valid, or has no column.
        """
        if isinstance(route, Expr):
            return cls((route.node,), namespace)
        if not isinstance(route, str):
            raise ConfigError(f"route is of type {type(route).__name__}", hint='"{namespace}.{table}", or col("type")')
        names = cls(_parse(route), namespace)
        if not names.nodes:
            raise ConfigError(
                f"route {route!r} has no column in braces: all rows would go to one table",
                hint='"{namespace}.{table}"; for one table: to_sink(IcebergSink(config))',
            )
        return names

    @property
    def nodes(self) -> tuple[ExprNode, ...]:
        """The parts that are computed for each row."""
        return tuple(part for part in self.parts if isinstance(part, ExprNode))

    def identifier(self, key: str) -> tuple[str, ...]:
        """Return the namespace and name of the table for a key; a dot in it ends a part of the namespace.

        Raises:
            ConfigError: If it is not a valid name.
        """
        texts = key.split(SEPARATOR)
        if len(texts) != len(self.nodes):
            raise ConfigError(f"{key!r} can't be in a table's name", hint="without control characters")
        values = iter(texts)
        name = "".join(next(values) if isinstance(part, ExprNode) else part for part in self.parts)
        *namespace, table = name.split(".")
        check_namespace(namespace)
        check_name("table", table)
        return (*(namespace or self.namespace), table)

    def __str__(self) -> str:
        """The template, with expressions in braces."""
        texts = (f"{{{part.name}}}" if isinstance(part, Column) else f"{{{part!r}}}" for part in self.nodes)
        return "".join(next(texts) if isinstance(part, ExprNode) else part for part in self.parts)


def _parse(template: str) -> tuple[str | ExprNode, ...]:
    parts: list[str | ExprNode] = []
    try:
        for text, column, layout, conversion in Formatter().parse(template):
            if text:
                parts.append(text)
            if column is not None:
                if not column or layout or conversion:
                    raise ValueError("braces are for the names of columns")
                parts.append(Column(column))
    except ValueError as error:
        raise ConfigError(f"route {template!r} is not a template: {error}", hint='"{namespace}.{table}"') from error
    return tuple(parts)
