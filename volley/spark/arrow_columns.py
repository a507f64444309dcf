"""Spark columns that Arrow computes, for expressions that Spark would compute otherwise."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.types import StructField, StructType

from volley.arrow.batches import conform
from volley.arrow.compiled import CompiledExpression
from volley.arrow.expressions import compile_expression
from volley.arrow.uuids import stored
from volley.plan.expression_nodes import ExprNode, column_names
from volley.task.errors import carried

__all__ = ["arrow_column"]

_VALUE = "value"


def arrow_column(node: ExprNode, schema: pa.Schema, in_order: bool = False) -> SparkColumn:
    """Return the Spark column of an expression that Arrow computes, in Spark's Python workers.

    Args:
        node: The expression.
        schema: The Arrow schema of the rows.
        in_order: True for the condition of a filter: Spark computes no later step, which may fail, for rows that it
            drops. Spark is told that the values vary, and moves no filter before one like that.
    """
    # Without columns, a function would not learn how many rows there are.
    names = sorted(column_names(node)) or schema.names[:1]
    part = pa.schema([schema.field(name) for name in names])
    data_type = compile_expression(node, part).type
    arrow_type = pa.string() if pa.types.is_null(data_type) else stored(data_type)
    spark_type = from_arrow_type(arrow_type, prefer_timestamp_ntz=True)
    # In Arrow, Spark's times are nanoseconds, Volley's microseconds.
    output = to_arrow_schema(StructType([StructField(_VALUE, spark_type)]), timezone="UTC")

    def compute(*columns: pa.Array) -> pa.Array:
        with carried():
            batch = conform(pa.RecordBatch.from_arrays(list(columns), names), part)
            values = _compiled(node, part).evaluate(batch)
            array = pa.repeat(values, batch.num_rows) if isinstance(values, pa.Scalar) else values
            return conform(pa.RecordBatch.from_arrays([array], [_VALUE]), output).column(0)

    named = (F.col("`" + name.replace("`", "``") + "`") for name in names)
    # The stub has no types for functions of any number of arrays.
    function: Any = arrow_udf(compute, spark_type)  # type: ignore[call-overload]
    column: SparkColumn = (function.asNondeterministic() if in_order else function)(*named)
    return column


@lru_cache(maxsize=256)
def _compiled(node: ExprNode, schema: pa.Schema) -> CompiledExpression:
    return compile_expression(node, schema)
