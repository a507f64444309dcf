"""Compiles narrow nodes to DataFrame calls: the general path, with the same types as the Arrow-native path."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from volley.arrow.batches import conform
from volley.arrow.nodes import lower
from volley.plan import nodes
from volley.plan.expression_nodes import output_name
from volley.spark.expressions import named_column, to_column, to_condition, to_spark_schema
from volley.task.errors import carried

__all__ = ["apply", "map_in_arrow"]

_OnBatches = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def apply(frame: DataFrame, node: nodes.Node, schema: pa.Schema) -> DataFrame:
    """Apply one narrow node to a frame.

    Args:
        frame: The rows.
        node: The node.
        schema: The Arrow schema of the rows.
    """
    match node:
        case nodes.Filter(predicate=predicate):
            return frame.filter(to_condition(predicate, schema))
        case nodes.Rest(predicate=predicate):
            return frame.filter(~F.coalesce(to_condition(predicate, schema), F.lit(False)))
        case nodes.Select(columns=columns):
            return frame.select(*(to_column(column, schema).alias(output_name(column)) for column in columns))
        case nodes.WithColumns(columns=columns):
            new_columns = {name: to_column(value, schema).alias(name) for name, value in columns}
            names = [*schema.names, *(name for name in new_columns if name not in schema.names)]
            # Not withColumns: if Spark ignores case, it replaces "a" by "A".
            return frame.select(*(new_columns[name] if name in new_columns else named_column(name) for name in names))
        case nodes.Drop(columns=columns):
            return frame.select(*(named_column(name) for name in schema.names if name not in columns))
        case nodes.Rename(names=names):
            new = dict(names)
            return frame.select(*(named_column(name).alias(new.get(name, name)) for name in schema.names))
    steps = lower([node], schema)
    output = to_spark_schema(steps.schema)
    # In Arrow, Spark's times are nanoseconds, Volley's microseconds.
    output_rows = to_arrow_schema(output, timezone="UTC")
    return map_in_arrow(
        frame,
        lambda batches: (conform(steps(conform(batch, steps.input)), output_rows) for batch in batches),
        output,
    )


def map_in_arrow(frame: DataFrame, function: _OnBatches, schema: StructType | str) -> DataFrame:
    """Call `DataFrame.mapInArrow`, for any column names: Spark itself fails on a dot or a backtick in a name.

    Args:
        frame: The rows.
        function: Turns a task's batches into others; picklable.
        schema: The schema of its output.
    """
    names = frame.columns
    renamed = frame.toDF(*(f"c{number}" for number in range(len(names))))

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with carried():
            yield from function(batch.rename_columns(names) for batch in batches)

    return renamed.mapInArrow(work, schema)
