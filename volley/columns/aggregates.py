"""The types of aggregates, and the schema of what a keyed stream is reduced to."""

from __future__ import annotations

import pyarrow as pa

from volley.columns.compiled import CompiledExpression
from volley.columns.expressions import compile_expression
from volley.columns.groups import sum_type
from volley.columns.roles import ChangeColumns
from volley.errors import ExpressionError, near
from volley.plan.aggregates import Aggregation
from volley.plan.expression_nodes import ExprNode, output_name
from volley.plan.keyed_nodes import CHANGE, WINDOW_COLUMNS, Aggregate
from volley.plan.windows import Calendar, Session, Windowing
from volley.types.arrow import is_number, type_name

__all__ = ["aggregate_type", "aggregated_schema", "key_fields", "time_type", "value_of"]

_NUMBERS = ("sum", "avg", "quantile", "variance")
_DOUBLES = ("avg", "quantile", "variance")


def aggregated_schema(node: Aggregate, schema: pa.Schema) -> pa.Schema:
    """Return the schema of a keyed aggregate: the window's columns, if any, the keys, the aggregates.

    Raises:
        ExpressionError: If an expression names an unknown column, or a type does not fit.
    """
    windows = (
        [pa.field(name, _window_type(node.windowing, schema)) for name in WINDOW_COLUMNS] if node.windowing else []
    )
    aggregates = [pa.field(name, _column_type(aggregation, schema)) for name, aggregation in node.aggregates]
    changes = [pa.field(CHANGE, pa.string())] if node.has_changes else []
    rows = pa.schema([*windows, *key_fields(node.keys, schema), *aggregates, *changes])
    if node.windowing is not None and not node.emits_changes:
        return rows
    # A session changes its end.
    are_sessions = node.windowing is not None and isinstance(node.windowing.window, Session)
    keys = [*rows.names[: 1 if are_sessions else len(windows)], *map(output_name, node.keys)]
    change = CHANGE if node.emits_changes else None
    return ChangeColumns(keys, order=change, operation=change).noted(rows)


def _window_type(windowing: Windowing, schema: pa.Schema) -> pa.DataType:
    """Return the type of a window's bounds."""
    data_type = time_type(windowing.on, schema)
    if isinstance(windowing.window, Calendar) and windowing.window.zone and data_type.tz is None:
        raise ExpressionError(
            f"{windowing.window!r} on {windowing.on!r}, which is timestamp_ntz: a time without a zone",
            hint="leave the zone out; or say which one the times have: "
            f'with_column("{windowing.on}", col("{windowing.on}").dt.from_zone("{windowing.window.zone}"))',
        )
    return data_type


def aggregate_type(aggregation: Aggregation, schema: pa.Schema) -> pa.DataType:
    """Return the type of an aggregate's results.

    Raises:
        ExpressionError: If its expression names an unknown column, or has a type that it does not take.
    """
    value = value_of(aggregation, schema)
    if aggregation.function in _NUMBERS and not is_number(value.type):
        raise _wrong_type(aggregation, value.type, "a number")
    if aggregation.function == "top":
        first, rank = value.type
        if _is_nested(rank.type):
            raise _wrong_type(aggregation, rank.type, "a rank that is a number, text, boolean, date or time")
        return pa.list_(first.type)
    if _is_nested(value.type) and aggregation.function not in ("count", "first", "last", "list"):
        raise _wrong_type(aggregation, value.type, "a number, text, boolean, date or time")
    if aggregation.is_count:
        return pa.int64()
    if aggregation.function in _DOUBLES:
        return pa.float64()
    if aggregation.function == "list":
        return pa.list_(value.type)
    return sum_type(value.type) if aggregation.function == "sum" else value.type


def _column_type(aggregation: Aggregation, schema: pa.Schema) -> pa.DataType:
    result = aggregate_type(aggregation, schema)
    if aggregation.gap != "linear":
        return result
    if not is_number(result):
        raise ExpressionError(f"{aggregation!r} is between texts or times, not numbers", hint="use forward_fill()")
    return pa.float64()


def value_of(aggregation: Aggregation, schema: pa.Schema) -> CompiledExpression:
    """Return the compiled expression of an aggregate.

    A count of rows counts the constant True; a value with a rank is a struct of both.
    """
    if aggregation.value is None:
        return CompiledExpression(pa.bool_(), lambda batch: pa.scalar(True))
    value = _typed(compile_expression(aggregation.value, schema))
    return value if aggregation.by is None else _pair(value, _typed(compile_expression(aggregation.by, schema)))


def _pair(value: CompiledExpression, rank: CompiledExpression) -> CompiledExpression:
    def evaluate(batch: pa.RecordBatch) -> pa.Array:
        return pa.StructArray.from_arrays([value.column(batch), rank.column(batch)], fields=list(data_type))

    data_type = pa.struct([("value", value.type), ("rank", rank.type)])
    return CompiledExpression(data_type, evaluate, value.can_fail or rank.can_fail)


def key_fields(keys: tuple[ExprNode, ...], schema: pa.Schema) -> list[pa.Field]:
    """Return the fields of keys.

    Raises:
        ExpressionError: If a key names an unknown column, or has a nested type.
    """
    fields = [pa.field(output_name(key), _typed(compile_expression(key, schema)).type) for key in keys]
    for field in fields:
        if _is_nested(field.type):
            raise ExpressionError(
                f"key {field.name!r} is {type_name(field.type)}: a nested value is not a key",
                hint='use its fields: key_by(city=col("place")["city"])',
            )
    return fields


def _typed(value: CompiledExpression) -> CompiledExpression:
    """Give the constant null a type."""
    if not pa.types.is_null(value.type):
        return value
    return CompiledExpression(pa.string(), lambda batch: pa.scalar(None, pa.string()))


def time_type(name: str, schema: pa.Schema, what: str = "window") -> pa.DataType:
    """Return the type of the event times in a column, which are microseconds, rounded down.

    Raises:
        ExpressionError: If there is no such column, or it has no timestamps.
    """
    if name not in schema.names:
        raise ExpressionError(f"{what} on the unknown column {name!r}", hint=near(name, schema.names))
    data_type = schema.field(name).type
    if not pa.types.is_timestamp(data_type):
        raise ExpressionError(
            f"{what} on {name!r}, which is {type_name(data_type)} and not a timestamp",
            hint=f'cast it before: with_column("{name}", col("{name}").cast("timestamp"))',
        )
    return pa.timestamp("us", data_type.tz)


def _is_nested(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_nested(data_type))


def _wrong_type(aggregation: Aggregation, data_type: pa.DataType, expected: str) -> ExpressionError:
    return ExpressionError(f"{aggregation!r} takes {expected}, not {type_name(data_type)}", hint='cast it: .cast("…")')
