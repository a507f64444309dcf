"""Exprs → Spark Columns and narrow nodes → DataFrame calls: the general path, with the types the Arrow path has."""

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
from volley.plan.expressions import output_name
from volley.spark.expressions import _condition, _named, to_column, to_spark_schema
from volley.task.errors import carried

__all__ = ["apply", "map_in_arrow"]

_OnBatches = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def apply(frame: DataFrame, node: nodes.Node, schema: pa.Schema) -> DataFrame:
    """The frame after one narrow node; `schema` is the Arrow schema of its rows before it."""
    match node:
        case nodes.Filter(predicate=predicate):
            return frame.filter(_condition(predicate, schema))
        case nodes.Rest(predicate=predicate):
            return frame.filter(~F.coalesce(_condition(predicate, schema), F.lit(False)))
        case nodes.Select(columns=columns):
            return frame.select(*(to_column(each, schema).alias(output_name(each)) for each in columns))
        case nodes.WithColumn(name=name, value=value):
            new_column = to_column(value, schema).alias(name)
            # Not withColumn: where Spark ignores case, it would put "A" in the place of "a".
            kept = [new_column if each == name else _named(each) for each in schema.names]
            return frame.select(*kept, *([] if name in schema.names else [new_column]))
        case nodes.Drop(columns=columns):
            return frame.select(*(_named(name) for name in schema.names if name not in columns))
        case nodes.Rename(names=names):
            new = dict(names)
            return frame.select(*(_named(name).alias(new.get(name, name)) for name in schema.names))
    stage = lower([node], schema)
    made = to_spark_schema(stage.schema)
    # Spark's times are nanoseconds in Arrow, ours microseconds.
    rows = to_arrow_schema(made, timezone="UTC")
    return map_in_arrow(
        frame, lambda batches: (conform(stage(conform(batch, stage.input)), rows) for batch in batches), made
    )


def map_in_arrow(frame: DataFrame, function: _OnBatches, schema: StructType | str) -> DataFrame:
    """As the method of that name, for columns of any name: Spark takes a dot or a backtick in one for its own.

    Args:
        frame: The rows.
        function: From a task's batches to those it gives; it pickles.
        schema: The schema of what it gives.
    """
    names = frame.columns
    plain = frame.toDF(*(f"c{number}" for number in range(len(names))))

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with carried():
            yield from function(batch.rename_columns(names) for batch in batches)

    return plain.mapInArrow(work, schema)
