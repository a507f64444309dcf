"""What the verbs of streams and pipelines have in common: checks of arguments, and hints for unknown verbs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from volley.checks import between
from volley.errors import ConfigError, ExpressionError, PlanError, near
from volley.plan import nodes
from volley.plan.choices import xxhash64
from volley.plan.expressions import Expr, col
from volley.plan.sql import sql

__all__ = [
    *("MAX_AHEAD", "UnknownVerb", "check_bounded", "check_continues", "check_expression", "check_predicate"),
    *("check_sample", "check_text", "nearest_verb"),
]

MAX_AHEAD = timedelta(days=1)
"""How far ahead of the clock a row may be by default."""

# What polars and PySpark call otherwise.
_ELSEWHERE = {
    "withColumn": 'with_column("name", value)',
    "withColumns": "with_columns(name=value)",
    "withColumnRenamed": 'rename({"old": "new"})',
    "withColumnsRenamed": 'rename({"old": "new"})',
    "where": "filter(predicate)",
    "unique": 'deduplicate("key")',
    "selectExpr": 'select("id", gross=sql("price * 1.2"))',
    "select_expr": 'select("id", gross=sql("price * 1.2"))',
    "query": 'filter("price > 1")',
    "assign": "with_columns(name=value)",
    "cast": 'with_column("id", col("id").cast("long"))',
    "fill_null": 'with_column("id", col("id").fill_null(0))',
    "fillna": 'with_column("id", col("id").fill_null(0))',
    "dropna": 'filter(col("id").is_not_null())',
    "drop_nulls": 'filter(col("id").is_not_null())',
    "unnest": 'with_column("city", col("place")["city"])',
    "toDF": 'rename({"old": "new"})',
    "groupBy": 'key_by("id").window(tumbling("1m"), on="at").aggregate(n=count())',
    "group_by": 'key_by("id").window(tumbling("1m"), on="at").aggregate(n=count())',
    "groupby": 'key_by("id").window(tumbling("1m"), on="at").aggregate(n=count())',
    "group_by_dynamic": 'key_by("id").window(tumbling("1m"), on="at").aggregate(n=count())',
    "rolling": 'key_by("id").window(sliding("10m", "1m"), on="at").aggregate(n=count())',
    "agg": 'key_by("id").window(tumbling("1m"), on="at").aggregate(n=count())',
    "window": 'key_by("id").window(tumbling("1m"), on="at")',
    "withWatermark": 'key_by("id").window(…, on="at", lateness="1m")',
    "join_asof": 'join(table, on="id", as_of=("at", "valid_from"))',
    "crossJoin": 'join(table, on="id")',
    "cross_join": 'join(table, on="id")',
    "foreach": "to_sink(FunctionSink(function))",
    "foreachBatch": "to_sink(FunctionSink(function))",
    "map_elements": "map(function)",
    "map_rows": "map(function)",
    "apply": "map(function)",
    "flatMap": "flat_map(function)",
    "mapPartitions": "map_batches(function)",
    "transform": "pipe(function)",
    "sink_parquet": "to_sink(FileSink(path))",
    "write_parquet": "to_sink(FileSink(path))",
    "write_iceberg": "to_sink(IcebergSink(config))",
    "lazy": "not needed: a stream is lazy",
    "cache": "not needed: what several sinks share is read once",
    "persist": "not needed: what several sinks share is read once",
    "first": "head(1)",
    "count": "to_arrow().num_rows",
    "to_dicts": "to_arrow().to_pylist()",
    "iter_rows": "to_arrow().to_pylist()",
    "dtypes": "schema, without parentheses",
    "distinct": 'deduplicate("key")',
    "dropDuplicates": 'deduplicate("key")',
    "drop_duplicates": 'deduplicate("key")',
    "unionByName": "union(other)",
    "unionAll": "union(other)",
    "concat": "union(other)",
    "mapInArrow": "map_batches(function)",
    "mapInPandas": "map_batches(function)",
    "writeStream": "to_sink(sink)",
    "write": "to_sink(sink)",
    "collect": "to_arrow()",
    "take": "head(rows)",
    "toPandas": "to_pandas()",
    "toArrow": "to_arrow()",
    "sort": 'sort_within_epoch("id")',
    "sort_by": 'sort_within_epoch("id")',
    "orderBy": 'sort_within_epoch("id")',
    "order_by": 'sort_within_epoch("id")',
    "sortWithinPartitions": 'sort_within_epoch("id")',
    "coalesce": "repartition(tasks)",
    "repartitionByRange": 'repartition(tasks).sort_within_epoch("id")',
    "printSchema": "schema, without parentheses",
}


class UnknownVerb(PlanError, AttributeError):
    """An unknown method of a stream or a pipeline; also an AttributeError, so that `hasattr` returns False."""


def nearest_verb(name: str, builder: type) -> str:
    """Return the hint for an unknown verb: ours for one of polars or PySpark, else the ones with similar names."""
    ours = _ELSEWHERE.get(name)
    return f"here {name} is {ours}" if ours else near(name, [verb for verb in dir(builder) if not verb.startswith("_")])


def check_expression(value: Expr, verb: str) -> Expr:
    """Return an expression.

    Raises:
        ExpressionError: If it is none.
    """
    if not isinstance(value, Expr):
        raise ExpressionError(
            f"{verb} takes an expression, not {type(value).__name__}",
            hint='build one with col and lit: col("status").eq(lit("active"))',
        )
    return value


def check_predicate(value: Expr | str, verb: str) -> Expr:
    """Return a predicate, of an expression or a SQL text.

    Raises:
        ExpressionError: If it is neither, or the text is wrong.
    """
    if isinstance(value, str | Expr):
        return sql(value) if isinstance(value, str) else value
    raise ExpressionError(
        f"{verb} takes a condition, not {type(value).__name__}",
        hint='an expression, col("status") == "active"; or a SQL text, "status = \'active\'"',
    )


def check_sample(fraction: float, by: Sequence[str], seed: int) -> Expr:
    """Return the condition that is true for a part of the keys, by their hashes.

    Raises:
        ConfigError: If there is no key column, or an argument is wrong.
    """
    between(0, 1)("fraction", fraction)
    if type(seed) is not int:
        raise ConfigError(f"seed is {seed!r}", hint="a whole number")
    if not isinstance(by, Sequence) or not by:
        raise ConfigError("sample without key columns", hint='name what to draw: sample(0.1, "user")')
    # Doubles have all whole numbers up to this one.
    all_hashes = 1 << 53
    hashes = xxhash64(*(col(check_text(name, "sample")) for name in by), seed)
    return hashes.bit_and(all_hashes - 1) < round(fraction * all_hashes)


def check_bounded(node: nodes.Node, verb: str) -> None:
    """Raise PlanError if a source of the rows has no end."""
    for read in nodes.walk([node]):
        if isinstance(read, nodes.Read) and not read.source.bounded:
            raise PlanError(
                f"{verb} of rows without end: {read.source!r}", hint="head() and show() look at its rows now"
            )


# A plan is looked through step by step: each takes up to 3 of Python's 1,000 frames.
_MOST_STEPS = 200


def check_continues(node: nodes.Node, step: nodes.Node) -> None:
    """Raise PlanError if a step can't follow a node: what arranges rows stands last; or there are too many steps."""
    _check_length(node)
    is_last = isinstance(node, nodes.SortWithinEpoch)
    if is_last or (isinstance(node, nodes.Repartition) and not isinstance(step, nodes.SortWithinEpoch)):
        raise PlanError(
            f"a step behind {node.label()}",
            hint="take that as the last one: .repartition(…).sort_within_epoch(…).to_sink(…)",
        )


def _check_length(node: nodes.Node) -> None:
    layer = [node]
    for _ in range(_MOST_STEPS):
        layer = list({id(before): before for step in layer for before in step.inputs}.values())
        if not layer:
            return
    raise PlanError(
        f"a stream of more than {_MOST_STEPS} steps",
        hint="take several in one step: with_columns(a=…, b=…), rename({…}), filter_expr(first & second)",
    )


def check_text(name: str, verb: str) -> str:
    """Return a column's name.

    Raises:
        ExpressionError: If it is empty, or not a text.
    """
    if not isinstance(name, str) or not name:
        raise ExpressionError(
            f"{verb} takes column names, not {name!r} of type {type(name).__name__}", hint="a text that is not empty"
        )
    return name
