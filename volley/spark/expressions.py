"""Compiles expressions to Spark columns with the same types as on the Arrow-native path."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date, time
from typing import Any

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema, from_arrow_type
from pyspark.sql.types import StructType

from volley.arrow.casts import casts_by_spark
from volley.arrow.expressions import output_type
from volley.arrow.operand_types import literal_type, operand_type
from volley.arrow.uuids import stored
from volley.plan.expression_nodes import Call, Column, ExprNode, Literal
from volley.spark.arrow_columns import arrow_column

__all__ = ["LOWERED", "is_native", "named_column", "to_column", "to_condition", "to_spark_schema"]

# Spark's unary minus rounds a longer decimal: it computes in Java's DECIMAL128.
_EXACT_DIGITS = 34
_HEX = "(.{8})(.{4})(.{4})(.{4})(.{12})"


def to_spark_schema(schema: pa.Schema) -> StructType:
    """Return the Spark schema of an Arrow schema."""
    stored_schema = pa.schema([field.with_type(stored(field.type)) for field in schema])
    return from_arrow_schema(stored_schema, prefer_timestamp_ntz=True)


def to_column(node: ExprNode, schema: pa.Schema) -> SparkColumn:
    """Return the Spark column of an expression over rows of `schema`, with the type of `output_type`.

    An expression with an operation that Spark computes otherwise, or not at all, is computed by Arrow as a whole: Spark
    would compute a part of it for all rows, also for those that another part leaves out.
    """
    column = _column(node, schema) if is_native(node, schema) else arrow_column(node, schema)
    return _of_type(column, output_type(node, schema))


def to_condition(predicate: ExprNode, schema: pa.Schema) -> SparkColumn:
    """Return the Spark column of a condition; null for a constant null."""
    native = is_native(predicate, schema)
    column = _column(predicate, schema) if native else arrow_column(predicate, schema, in_order=True)
    return _of_type(column, pa.bool_())


def is_native(node: ExprNode, schema: pa.Schema) -> bool:
    """Return True if Spark has all operations of an expression over rows of `schema`, with the same values."""
    if not isinstance(node, Call):
        return True
    if node.op == "cast" and not casts_by_spark(output_type(node.args[0], schema), output_type(node, schema)):
        return False
    return node.op in LOWERED and all(is_native(arg, schema) for arg in node.args)


def named_column(name: str) -> SparkColumn:
    """Return the Spark column of this name, whatever characters it has."""
    return F.col("`" + name.replace("`", "``") + "`")


def _of_type(column: SparkColumn, data_type: pa.DataType) -> SparkColumn:
    # An untyped null becomes a string, as on the Arrow-native path.
    arrow_type = pa.string() if pa.types.is_null(data_type) else stored(data_type)
    return column.cast(from_arrow_type(arrow_type, prefer_timestamp_ntz=True))


def _column(node: ExprNode, schema: pa.Schema) -> SparkColumn:
    if isinstance(node, Column):
        return named_column(node.name)
    if isinstance(node, Literal):
        return _literal(node)
    assert isinstance(node, Call)
    return LOWERED[node.op](node, schema)


def _literal(node: Literal) -> SparkColumn:
    value, data_type = node.value, literal_type(node)
    if isinstance(value, date | time):
        # Pass it as text: java.sql.Date and Timestamp shift with the process' time zone, and all dates before 1582.
        value = pa.scalar(value, data_type).cast(pa.string()).as_py()
    return _of_type(F.lit(value), data_type)


def _operands(node: Call, schema: pa.Schema, data_type: pa.DataType | None = None) -> list[SparkColumn]:
    """Return the arguments, each cast to `data_type`, or to the common type that both paths use."""
    types = [output_type(arg, schema) for arg in node.args]
    common = data_type or operand_type(node, types)
    columns = [_column(arg, schema) for arg in node.args]
    if pa.types.is_null(common):
        return columns
    return [column if own == common else _of_type(column, common) for column, own in zip(columns, types, strict=True)]


def _on_common_type(compute: Callable[[Any, Any], SparkColumn]) -> Callable[[Call, pa.Schema], SparkColumn]:
    def lowered(node: Call, schema: pa.Schema) -> SparkColumn:
        left, right = _operands(node, schema)
        return compute(left, right)

    return lowered


def _arithmetic(compute: Callable[[Any, Any], SparkColumn]) -> Callable[[Call, pa.Schema], SparkColumn]:
    def lowered(node: Call, schema: pa.Schema) -> SparkColumn:
        out = output_type(node, schema)
        if not pa.types.is_decimal(out):
            left, right = _operands(node, schema)
        else:
            left, right = (_decimal_operand(node, arg, schema) for arg in node.args)
        return _of_type(compute(left, right), out)

    return lowered


def _decimal_operand(node: Call, arg: ExprNode, schema: pa.Schema) -> SparkColumn:
    """Cast an operand to the digits of the type check: Spark gives a long one digit more, and may round the result."""
    own = output_type(arg, schema)
    column = _column(arg, schema)
    # Decimals need no cast: for them Spark's rule for the digits of the result is that of the type check.
    return column if pa.types.is_decimal(own) else _of_type(column, operand_type(node, [own, pa.decimal128(1)]))


def _neg(node: Call, schema: pa.Schema) -> SparkColumn:
    data_type = output_type(node, schema)
    (value,) = _operands(node, schema)
    if not pa.types.is_decimal(data_type) or data_type.precision <= _EXACT_DIGITS:
        return -value
    minus = F.concat(F.lit("-"), value.cast("string"))
    return _of_type(F.replace(minus, F.lit("--"), F.lit("")), data_type)


def _div(node: Call, schema: pa.Schema) -> SparkColumn:
    left, right = _operands(node, schema, pa.float64())
    return left / right


def _logic(compute: Callable[[Any, Any], SparkColumn]) -> Callable[[Call, pa.Schema], SparkColumn]:
    def lowered(node: Call, schema: pa.Schema) -> SparkColumn:
        left, right = _operands(node, schema, pa.bool_())
        return compute(left, right)

    return lowered


def _is_in(node: Call, schema: pa.Schema) -> SparkColumn:
    value, *listed = _operands(node, schema)
    if any(map(pa.types.is_floating, (output_type(arg, schema) for arg in node.args))):
        # Spark looks for more than ten constants in a hash set, where 0.0 is not -0.0: their sum with 0.0 is 0.0.
        value, *listed = (column + F.lit(0.0) for column in (value, *listed))
    return value.isin(*listed)


def _unary(compute: Callable[[Any], SparkColumn], data_type: pa.DataType | None = None) -> Any:
    def lowered(node: Call, schema: pa.Schema) -> SparkColumn:
        (value,) = _operands(node, schema, data_type)
        return compute(value)

    return lowered


def _string_test(compute: Callable[[SparkColumn, Any], SparkColumn]) -> Callable[[Call, pa.Schema], SparkColumn]:
    def lowered(node: Call, schema: pa.Schema) -> SparkColumn:
        return compute(_of_type(_column(node.args[0], schema), pa.string()), _parameter(node.args))

    return lowered


def _first(node: Call, schema: pa.Schema) -> SparkColumn:
    return _column(node.args[0], schema)


def _when(node: Call, schema: pa.Schema) -> SparkColumn:
    *branches, last = node.args
    values = [*branches[1::2], last]
    out = output_type(node, schema)
    first, *others = [_of_type(_column(value, schema), out) for value in values]
    conditions = [_of_type(_column(condition, schema), pa.bool_()) for condition in branches[::2]]
    chosen = F.when(conditions[0], first)
    for condition, value in zip(conditions[1:], others[:-1], strict=True):
        chosen = chosen.when(condition, value)
    return chosen.otherwise(others[-1])


def _hash(compute: Callable[..., SparkColumn]) -> Callable[[Call, pa.Schema], SparkColumn]:
    return lambda node, schema: compute(*(_column(arg, schema) for arg in node.args))


def _cast(node: Call, schema: pa.Schema) -> SparkColumn:
    if output_type(node.args[0], schema) == pa.uuid() and output_type(node, schema) == pa.string():
        return F.regexp_replace(F.lower(F.hex(_first(node, schema))), _HEX, "$1-$2-$3-$4-$5")
    return _of_type(_first(node, schema), output_type(node, schema))


def _parameter(args: Sequence[ExprNode]) -> Any:
    last = args[-1]
    assert isinstance(last, Literal)
    return last.value


LOWERED: dict[str, Callable[[Call, pa.Schema], SparkColumn]] = {
    "eq": _on_common_type(lambda left, right: left == right),
    "ne": _on_common_type(lambda left, right: left != right),
    "gt": _on_common_type(lambda left, right: left > right),
    "gt_eq": _on_common_type(lambda left, right: left >= right),
    "lt": _on_common_type(lambda left, right: left < right),
    "lt_eq": _on_common_type(lambda left, right: left <= right),
    "and_": _logic(lambda left, right: left & right),
    "or_": _logic(lambda left, right: left | right),
    "not_": _unary(lambda value: ~value, pa.bool_()),
    "add": _arithmetic(lambda left, right: left + right),
    "sub": _arithmetic(lambda left, right: left - right),
    "mul": _arithmetic(lambda left, right: left * right),
    "div": _div,
    "mod": _arithmetic(lambda left, right: left % right),
    "neg": _neg,
    "is_null": _unary(lambda value: value.isNull()),
    "is_not_null": _unary(lambda value: value.isNotNull()),
    "is_in": _is_in,
    "starts_with": _string_test(lambda value, prefix: value.startswith(prefix)),
    "contains": _string_test(lambda value, part: value.contains(part)),
    "cast": _cast,
    "alias": _first,
    "coalesce": lambda node, schema: F.coalesce(*_operands(node, schema)),
    "when": _when,
    "murmur3": _hash(F.hash),
    "xxhash64": _hash(F.xxhash64),
    "field": lambda node, schema: _first(node, schema).getField(_parameter(node.args)),
}
