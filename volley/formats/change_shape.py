"""The shape of a program's change messages, as the user declares it: a table of expressions. Imports Arrow to check."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any

from volley.checks import keep, mapping, names, one_of
from volley.errors import ConfigError, ExpressionError, near
from volley.plan.expression_nodes import ExprNode
from volley.plan.expressions import Expr
from volley.plan.sql import sql
from volley.types.schemas import schema_setting

if TYPE_CHECKING:
    import pyarrow as pa

    from volley.types.names import SchemaLike

__all__ = ["SOURCE_FIELDS", "Unwrap", "unwrap"]

SOURCE_FIELDS = ("connector", "name", "db", "schema", "table", "collection", "snapshot", "ts_ms")
"""What a format knows of the place of a change, to be added as columns ``source_…``."""

_TEXT, _NUMBER = "a text", "a whole number"
_SHARED = ("string", "int64", "int32", "bool", "double")


@dataclass(frozen=True)
class Unwrap:
    """How a program writes changes of rows in JSON. Expressions are SQL texts, as `sql` takes, or those of `col`.

    Args:
        fields: The fields of a message that expressions read, as a schema: ``"op_type string, pos string"``.
        operation: An expression of what happened to the row: ``"load"``, ``"insert"``, ``"update"``, ``"delete"`` or
            ``"truncate"``. Null: the message is no change, and left out; another text makes it a bad row.
        row: The field with the row, such as ``"data"`` or ``"payload.after"``; of several, the first one that is no
            null. ``""`` (the default) = the message itself.
        before: The field with the old row, or several likewise: an update that has changed a column of the key deletes
            the row of the old key. Empty = there is none.
        sequence: Expressions of whole numbers that are not negative, compared one after the other: the place in the log
            of the database, the column ``_seq``. Where one is null, it is unknown, and no upsert by it takes the row.
            Empty = there is none.
        source: Expressions of the place of a change, which are added as columns ``source_…``, by name: texts
            ``"connector"``, ``"name"``, ``"db"``, ``"schema"``, ``"table"``, ``"collection"`` and ``"snapshot"``, and
            the number ``"ts_ms"``.

    Raises:
        ConfigError: If an entry is wrong, or an expression does not fit the fields.

    Example:
        >>> Unwrap(fields="op string", operation="case op when 'I' then 'insert' end", row="after").row
        ('after',)
    """

    fields: SchemaLike
    operation: str | Expr
    row: Sequence[str] = ""
    before: Sequence[str] = ()
    sequence: Sequence[str | Expr] = ()
    source: Mapping[str, str | Expr] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        from volley.formats import json

        keep(self, fields=schema_setting, row=_row, before=_paths)
        json.check(self.schema)
        keep(self, operation=self._node(_TEXT), sequence=self._sequence, source=self._source)

    @cached_property
    def schema(self) -> pa.Schema:
        """The fields that expressions read."""
        from volley.types.arrow import arrow_schema, canonical_schema

        return canonical_schema(arrow_schema(self.fields))

    @cached_property
    def own(self) -> frozenset[str]:
        """The fields that stand beside the columns of a row, and are no columns."""
        declared = (part.name for path in self.row for part in self._beside(path))
        return frozenset(declared).union(*map(self._inside, self.row))

    def check(self, columns: pa.Schema, wire: Mapping[str, str]) -> None:
        """Check that a field which is a column, too, can be read as both.

        Args:
            columns: The columns of rows.
            wire: How values of some are written.

        Raises:
            ConfigError: If one is not.
        """
        for path in (*self.row, *self.before):
            if both := self._inside(path) & {*columns.names}:
                raise ConfigError(
                    f"{min(both)!r} is a column of the row, and unwrap has another row there",
                    hint="leave the column out of the schema",
                )
            for part in self._beside(path):
                if part.name in columns.names and (
                    columns.field(part.name).type != part.type or str(part.type) not in _SHARED or part.name in wire
                ):
                    raise ConfigError(
                        f"unwrap fields has {part.name!r}, which is a column of the row, too, and read in another way",
                        hint="declare both as the same type, one of string, long, int, boolean, double, without wire",
                    )

    def _inside(self, path: str) -> set[str]:
        """Return the fields of a row in which other rows are."""
        start = f"{path}." if path else ""
        others = (other for other in (*self.row, *self.before) if other != path and other.startswith(start))
        return {other.removeprefix(start).partition(".")[0] for other in others}

    def _beside(self, path: str) -> Iterator[pa.Field]:
        """Yield the fields that are declared beside the columns of a row.

        Raises:
            ConfigError: If a row is declared as another type.
        """
        import pyarrow as pa

        parts: Any = self.schema
        for name in filter(None, path.split(".")):
            declared = next((part.type for part in parts if part.name == name), pa.struct([]))
            if not pa.types.is_struct(declared):
                raise ConfigError(
                    f"unwrap fields declares {name!r} of {path!r} as {declared}, and it has the row",
                    hint="leave it out of fields; or declare what expressions read of it: struct<…>",
                )
            parts = declared
        yield from parts

    def _sequence(self, name: str, value: Any) -> tuple[ExprNode, ...]:
        listed = (value,) if isinstance(value, str | Expr) else value
        if not isinstance(listed, Sequence) or isinstance(listed, bytes):
            raise ConfigError(f"unwrap {name} is {type(value).__name__}, not a list", hint="""["cast(pos as long)"]""")
        return tuple(self._node(_NUMBER)(name, each) for each in listed)

    def _source(self, name: str, value: Any) -> dict[str, ExprNode]:
        for part in mapping(f"unwrap {name}", value):
            one_of(SOURCE_FIELDS)(f"unwrap {name}", part)
        return {
            part: self._node(_NUMBER if part == "ts_ms" else _TEXT)(f"{name}[{part!r}]", each)
            for part, each in value.items()
        }

    def _node(self, expected: str) -> Any:
        """Return a check that returns the node of an expression of texts or whole numbers."""

        def check(name: str, value: Any) -> ExprNode:
            if isinstance(value, ExprNode):
                return value
            if not isinstance(value, str | Expr):
                raise ConfigError(
                    f"unwrap {name} is {type(value).__name__}, no expression", hint="a SQL text, or one of col and lit"
                )
            try:
                node = (sql(value) if isinstance(value, str) else value).node
                self._check_type(node, expected)
            except ExpressionError as error:
                raise ConfigError(f"unwrap {name} {value!r}: {error.args[0]}", hint=error.hint) from error
            return node

        return check

    def _check_type(self, node: ExprNode, expected: str) -> None:
        import pyarrow as pa

        from volley.columns.expressions import compile_expression
        from volley.types.arrow import type_name

        data_type = compile_expression(node, self.schema).type
        fits = pa.types.is_string if expected == _TEXT else pa.types.is_integer
        if not (fits(data_type) or pa.types.is_null(data_type)):
            raise ExpressionError(
                f"it is {type_name(data_type)}, not {expected}",
                hint=f"cast it: cast(… as {'string' if expected == _TEXT else 'long'})",
            )


def _row(name: str, value: Any) -> tuple[str, ...]:
    return ("",) if value in ("", [""], ("",)) else _paths(name, value) or ("",)


def _paths(name: str, value: Any) -> tuple[str, ...]:
    paths = names(f"unwrap {name}", value)
    for path in paths:
        if not all(path.split(".")):
            raise ConfigError(f"unwrap {name} has {path!r}, which is no path", hint='for example "payload.after"')
    return paths


def unwrap(name: str, value: Any) -> Unwrap:
    """Return the shape that a mapping declares."""
    if isinstance(value, Unwrap):
        return value
    entries, known = mapping(name, value), [entry.name for entry in fields(Unwrap)]
    for entry in entries:
        if entry not in known:
            raise ConfigError(f"{name} has no entry {entry!r}", hint=near(entry, known))
    for needed in ("fields", "operation"):
        if needed not in entries:
            raise ConfigError(f"{name} has no {needed}", hint="""{"fields": "op string", "operation": "op"}""")
    return Unwrap(**entries)
