"""Messages in a shape that the user declares: expressions tell what happened, and where."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from volley.columns.compiled import CompiledExpression
from volley.columns.expressions import compile_expression
from volley.errors import ExpressionError, SourceError, message_of
from volley.formats.change_shape import Unwrap
from volley.formats.changes.events import (
    INSERTED,
    LOADED,
    REMOVED,
    TRUNCATED,
    UPDATED,
    Events,
    columns_of,
    nothing,
    operations,
    unknown,
    with_moves,
    without,
)
from volley.formats.changes.sequence import of_numbers
from volley.plan.expression_nodes import ExprNode

__all__ = ["Declared"]

_OPERATIONS = {"load": LOADED, "insert": INSERTED, "update": UPDATED, "delete": REMOVED, "truncate": TRUNCATED}


@dataclass(frozen=True)
class Declared:
    """Reads messages by the expressions of an `Unwrap`.

    Args:
        keys: The columns of the key: an update that changes one is the deletion of the old key, then the new row.
        columns: The columns of rows.
    """

    unwrap: Unwrap
    keys: tuple[str, ...]
    columns: Collection[str]
    texts: ClassVar[bool] = False

    @property
    def path(self) -> tuple[str, ...]:
        return tuple(filter(None, self.unwrap.row))

    def message(self, row: pa.DataType) -> pa.Schema:
        message = pa.struct(self.unwrap.schema)
        for path in (*self.unwrap.row, *self.unwrap.before):
            message = _merged(message, _within(path, row))
        return pa.schema(message)

    def events(self, messages: pa.RecordBatch) -> Events:
        names = self._values(messages, "operation", self.unwrap.operation, pa.string())
        operation = operations(names, _OPERATIONS)
        faults = unknown(names, pc.and_(names.is_valid(), operation.is_null()))
        rows = _first(messages, self.unwrap.row)
        is_row = pc.and_(operation.is_valid(), pc.not_equal(operation, TRUNCATED))
        faults |= without(pc.if_else(is_row, operation, None), rows.is_valid(), " or ".join(self.unwrap.row))
        source = {
            name: self._values(messages, f"source[{name!r}]", node, pa.int64() if name == "ts_ms" else pa.string())
            for name, node in self.unwrap.source.items()
        }
        sequence, negative = self._sequence(messages)
        events = Events(self._row(rows), operation, sequence, source, faults=negative | faults)
        before = self._row(_first(messages, self.unwrap.before)) if self.unwrap.before else {}
        return with_moves(events, before, self.keys)

    def _row(self, rows: pa.StructArray) -> dict[str, pa.Array]:
        return {name: values for name, values in columns_of(rows).items() if name in self.columns}

    def _sequence(self, messages: pa.RecordBatch) -> tuple[pa.Array, dict[int, str]]:
        """Return the places of messages in the log, and the faults of those that have a negative number."""
        faults = dict[int, str]()
        if not self.unwrap.sequence:
            return nothing(messages), faults
        parts = [self._values(messages, "sequence", node, pa.int64()) for node in self.unwrap.sequence]
        known = parts[0].is_valid()
        for number, part in enumerate(parts):
            is_negative = pc.less(part, 0).fill_null(False)
            for row in pc.indices_nonzero(is_negative).to_pylist():
                faults[row] = f"unwrap sequence: {part[row].as_py()} is negative, which no place in a log is"
            parts[number] = pc.if_else(is_negative, 0, part)
            known = pc.and_(known, part.is_valid())
        return of_numbers(parts, known), faults

    def _values(self, messages: pa.RecordBatch, entry: str, node: Any, data_type: pa.DataType) -> pa.Array:
        """Return the values of an expression.

        Raises:
            SourceError: If it can't be computed of a message, as a text that is cast to a number and is none.
        """
        try:
            return _compiled(node, messages.schema).column(messages).cast(data_type)
        except (ExpressionError, pa.ArrowInvalid) as error:
            raise SourceError(f"unwrap {entry}: {message_of(error)}") from error


@lru_cache(maxsize=1_000)
def _compiled(node: ExprNode, schema: pa.Schema) -> CompiledExpression:
    return compile_expression(node, schema)


def _first(messages: pa.RecordBatch, paths: Collection[str]) -> pa.StructArray:
    """Return of each message the first of these fields that is no null; the message itself for an empty path."""
    whole = messages.to_struct_array()
    return pc.coalesce(*(pc.struct_field(whole, path.split(".")) if path else whole for path in paths))


def _within(path: str, row: pa.DataType) -> pa.StructType:
    """Return the type of messages that have a row at a path."""
    for name in filter(None, reversed(path.split("."))):
        row = pa.struct([(name, row)])
    return row


def _merged(one: pa.StructType, other: pa.StructType) -> pa.StructType:
    """Return a type with the fields of both; structs that both have are merged, and other fields are the same."""
    types = {part.name: part.type for part in one}
    for part in other:
        both = part.name in types and pa.types.is_struct(part.type)
        types[part.name] = _merged(types[part.name], part.type) if both else part.type
    return pa.struct(list(types.items()))
