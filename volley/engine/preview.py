"""Checks a job before Spark starts, which takes seconds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from volley.columns.schemas import Schemas
from volley.contracts.source import SourceContext, SparkSource
from volley.plan import graph, nodes
from volley.plan.places import naming
from volley.types.arrow import canonical_schema

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["preview"]


def preview(writes: Sequence[nodes.Write], state: str) -> None:
    """Check each step against the schema of its input, and each sink, as far as the schemas of sources are known yet.

    Args:
        writes: The writes of the job.
        state: The fsspec URL of the folder below which sources keep their state, as long as the checkpoint lives.

    Raises:
        VolleyError: If a source can't be read, a step does not fit its input, or a sink can't take the rows.
    """
    folders = {id(read): folder for read, folder in graph.states(writes, state)}

    def of_read(read: nodes.Read) -> pa.Schema | None:
        if isinstance(read.source, SparkSource):
            return None
        schema = read.source.preview(SourceContext(folders[id(read)]))
        return None if schema is None else canonical_schema(schema)

    schemas = Schemas(of_read)
    for write in writes:
        schema = schemas.of(write)
        with naming(write):
            write.sink.check(schema)
