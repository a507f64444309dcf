"""Pushes filters and columns into Spark's readers: of a predicate those conditions that Spark decides as Arrow does.

The tasks filter the rows again, so what is not pushed is slower, never wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import date
from operator import and_, eq, ge, gt, invert, le, lt, ne, or_
from typing import Any

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ByteType,
    DataType,
    DateType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from volley.columns.compiled import literal_type
from volley.plan.expression_nodes import Call, Column, ExprNode, Literal

__all__ = ["condition", "pushed"]

_Types = Mapping[str, DataType]

_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {"eq": eq, "ne": ne, "gt": gt, "gt_eq": ge, "lt": lt, "lt_eq": le}
_LOGIC: dict[str, Callable[..., Any]] = {"and_": and_, "or_": or_, "not_": invert}

# Not floats and decimals, which Spark compares after casts of its own, and no text with a collation.
_SAME: dict[pa.DataType, tuple[DataType, ...]] = {
    **dict.fromkeys((pa.int32(), pa.int64()), (ByteType(), ShortType(), IntegerType(), LongType())),
    pa.string(): (StringType(),),
    pa.date32(): (DateType(),),
    pa.timestamp("us", "UTC"): (TimestampType(),),
    pa.timestamp("us"): (TimestampNTZType(),),
}


def pushed(frame: DataFrame, predicate: ExprNode | None, columns: frozenset[str] | None) -> DataFrame:
    """Return a frame without rows and columns that a job does not use.

    Args:
        frame: The frame of a source that Spark reads.
        predicate: Is true for all rows that are used; None = all are.
        columns: The names of the columns that are used; None = all are.
    """
    types = {field.name: field.dataType for field in frame.schema}
    for part in _conjuncts(predicate):
        if (test := condition(part, types)) is not None:
            frame = frame.filter(test)
    if columns is None or len(types) < len(frame.columns):
        return frame
    # A frame without columns would not tell how many rows it has.
    used = [name for name in frame.columns if name in columns] or frame.columns[:1]
    return frame.select(*map(_named, used))


def condition(node: ExprNode, types: _Types) -> SparkColumn | None:
    """Return the Spark column that is true, false and null for the same rows as an expression; None = there is none.

    Args:
        types: The types of the frame's columns.
    """
    match node:
        case Call(op="and_" | "or_" | "not_" as op, args=args):
            parts = [condition(part, types) for part in args]
            return None if any(part is None for part in parts) else _LOGIC[op](*parts)
        case Call(op="is_null" | "is_not_null" as op, args=(Column(name=name),)) if name in types:
            return _named(name).isNull() if op == "is_null" else _named(name).isNotNull()
        case Call(op=op, args=(Column(name=name), Literal() as value)) if op in _COMPARISONS:
            return _COMPARISONS[op](_named(name), _constant(value)) if _fits(name, value, types) else None
        case Call(op="is_in", args=(Column(name=name), *values)):
            constants = [value for value in values if isinstance(value, Literal) and _fits(name, value, types)]
            return _named(name).isin(*map(_constant, constants)) if len(constants) == len(values) else None
        case Call(op="starts_with", args=(Column(name=name), Literal() as prefix)) if _fits(name, prefix, types):
            return _named(name).startswith(prefix.value)
    return None


def _conjuncts(node: ExprNode | None) -> Iterator[ExprNode]:
    if isinstance(node, Call) and node.op == "and_":
        for part in node.args:
            yield from _conjuncts(part)
    elif node is not None:
        yield node


def _fits(name: str, value: Literal, types: _Types) -> bool:
    return types.get(name) in _SAME.get(literal_type(value), ())


def _constant(node: Literal) -> SparkColumn:
    if not isinstance(node.value, date):
        return F.lit(node.value)
    # As text: java.sql.Date and Timestamp shift with the process' time zone, and all dates before 1582.
    data_type = literal_type(node)
    spark_type = _SAME[data_type][0]
    return F.lit(pa.scalar(node.value, data_type).cast(pa.string()).as_py()).cast(spark_type)


def _named(name: str) -> SparkColumn:
    """Return the Spark column of this name, whatever characters it has."""
    return F.col("`" + name.replace("`", "``") + "`")
