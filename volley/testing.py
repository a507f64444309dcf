"""Helps to test pipelines: runs their steps over given rows, in milliseconds, without Spark."""

from __future__ import annotations

from typing import Any

from volley.connectors.files.source import FileDimension
from volley.connectors.memory.source import MemoryDimension, MemorySource
from volley.errors import ConfigError, PlanError
from volley.stream.pipeline import Pipeline
from volley.stream.stream import DataStream
from volley.types.schemas import column_names

__all__ = ["run"]


def run(pipeline: DataStream | Pipeline, *rows: Any) -> list[dict[str, Any]]:
    """Run the steps of a pipeline over given rows in place of its sources' own, and return the rows for its sinks.

    Runs in this process, by the code that a job's tasks run; sources are not opened, and sinks get nothing. Steps that
    keep state give what they give in a job that ends with these rows: all windows close.

    Args:
        pipeline: The pipeline, or a stream.
        rows: For each of its sources, the one of the stream first and then those of the streams that it unites: rows as
            dicts, or anything else that `MemorySource` takes. Dicts get the types of the source's own schema, if it has
            one with all of their columns; a `MemorySource` says how rows fall into epochs, too. Then, in the same way,
            for each table that it joins; an Iceberg table is not opened: the types are inferred, or those of Arrow
            data.

    Returns:
        The rows, as dicts.

    Raises:
        ConfigError: If `pipeline` is neither a pipeline nor a stream.
        PlanError: If the number of sources and joined tables differs from that of `rows`, or a job could not run the
            steps.
        VolleyError: If a step does not fit the rows, or fails at one.

    Example:
        >>> from volley import Environment, FileSource, col, testing
        >>> def gross(stream):
        ...     return stream.filter(col("price") > 0).select("id", gross=col("price") * 1.5)
        >>> orders = Environment().from_source(FileSource("/data/orders", format="parquet")).pipe(gross)
        >>> testing.run(orders, [{"id": 1, "price": 2.0}, {"id": 2, "price": None}])
        [{'id': 1, 'gross': 3.0}]
    """
    from volley.engine.collect import collect, sources, tables, with_sources

    if isinstance(pipeline, Pipeline):
        node = pipeline._writes[0].input
    elif isinstance(pipeline, DataStream):
        node = pipeline._node
    else:
        raise ConfigError(f"run takes a pipeline, not {type(pipeline).__name__}", hint="or a stream")
    read, joined = sources(node), tables(node)
    if len(rows) != len(read) + len(joined):
        counted = f"{len(read)} sources" + (f" and {len(joined)} joined tables" if joined else "")
        raise PlanError(f"the pipeline has {counted}, and rows for {len(rows)}", hint="give rows for each")
    declared = [getattr(source, "schema", None) for source in read]
    declared += [
        table.source.schema if isinstance(table, MemoryDimension | FileDimension) else None for table in joined
    ]
    replacements = [_source(schema, content) for schema, content in zip(declared, rows, strict=True)]
    dimensions = [MemoryDimension(source) for source in replacements[len(read) :]]
    results: list[dict[str, Any]] = collect(with_sources(node, replacements[: len(read)], dimensions), None).to_pylist()
    return results


def _source(schema: Any, rows: Any) -> MemorySource:
    if isinstance(rows, MemorySource):
        return rows
    if schema is None or not isinstance(rows, list):
        return MemorySource(rows)
    columns = {name for row in rows if isinstance(row, dict) for name in row}
    return MemorySource(rows, schema if columns <= set(column_names(schema)) else None)
