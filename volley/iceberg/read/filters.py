"""Reads the text of a table's filter in SQL: the dialect of `volley.sql`, with constants of the columns' types."""

from __future__ import annotations

from collections.abc import Sequence

from pyiceberg.schema import Schema
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from volley.errors import ConfigError, ExpressionError
from volley.iceberg.schema.types import ROW_TYPES
from volley.plan.expression_nodes import ExprNode
from volley.plan.sql_columns import KnownColumn
from volley.plan.sql_nodes import expression_of

__all__ = ["parse_predicate"]

# The types by which casts name them; those of other columns take constants as they are.
_TYPES: dict[type[IcebergType], str] = {
    BooleanType: "boolean",
    IntegerType: "int",
    LongType: "long",
    FloatType: "float",
    DoubleType: "double",
    DecimalType: "decimal",
    DateType: "date",
    TimeType: "time",
    TimestampType: "timestamp_ntz",
    TimestamptzType: "timestamp",
    TimestampNanoType: "timestamp_ntz(9)",
    TimestamptzNanoType: "timestamp(9)",
    UUIDType: "uuid",
}


def parse_predicate(text: str, schema: Schema) -> ExprNode:
    """Parse a predicate in SQL, such as ``"year = 2024 and month = 10"``.

    Args:
        text: As for `volley.sql`. Dates, times, UUIDs and numbers that a column is compared with may be texts;
            ``place.city`` is a field of a struct.
        schema: The table's schema, which determines the constants' types.

    Raises:
        ConfigError: If it can't be parsed, or has parts of a list or map.

    Example:
        >>> from pyiceberg.schema import Schema
        >>> from pyiceberg.types import DateType, NestedField
        >>> parse_predicate("day >= '2026-11-01'", Schema(NestedField(1, "day", DateType())))
        col('day') >= lit(datetime.date(2026, 11, 1))
    """

    def resolve(names: Sequence[str]) -> KnownColumn | None:
        return _column(names, schema.fields, ())

    try:
        return expression_of(text, resolve).node
    except ExpressionError as error:
        raise ConfigError(f"it is not a predicate: {error.message}", hint=error.hint) from error


def _column(names: Sequence[str], fields: Sequence[NestedField], within: Sequence[str]) -> KnownColumn | None:
    """Return the column, or the field of a struct, that names with dots between them mean; names may have dots, too."""
    for length in range(1, len(names) + 1):
        name, rest = ".".join(names[:length]), names[length:]
        field = next((field for field in fields if field.name == name), None)
        if field is None:
            continue
        if not rest:
            data_type = ROW_TYPES.get(field.field_type, field.field_type)
            return KnownColumn([*within, name], _TYPES.get(type(data_type), ""))
        if isinstance(field.field_type, StructType):
            if inner := _column(rest, field.field_type.fields, [*within, name]):
                return inner
        elif not field.field_type.is_primitive:
            raise ExpressionError(
                f"{'.'.join([*within, *names])!r} is in a list or map",
                hint='give an expression: col("tags").list.contains("new"), col("labels").map.get("country") == "NO"',
            )
    return None
