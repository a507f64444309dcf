"""Random joins with a table are those of DuckDB, and the same on both execution paths."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from tests.duck import query
from tests.properties.test_joins import counted, joins, sql, stream
from tests.tiers import examples
from volley import MemorySource
from volley.engine.joins import with_rows, with_schemas
from volley.plan.joins import How
from volley.spark.expressions import to_spark_schema
from volley.spark.nodes import apply


@settings(max_examples=examples(0.48), suppress_health_check=list(HealthCheck))
@given(joins(), st.sampled_from(["inner", "left"]), st.booleans())
def test_random_joins(
    job_session: SparkSession, drawn: tuple[pa.Table, pa.Table, list[str]], how: How, as_of: bool
) -> None:
    left, right, keys = drawn
    joined = stream(left).join(MemorySource(right), on=keys, how=how, as_of=("at", "valid_from") if as_of else None)
    expected = query(sql(keys, how, as_of), l=left, r=right).to_arrow_table().cast(joined.schema)
    (node,) = with_rows(with_schemas([joined._node]))
    frame = apply(job_session.createDataFrame(left, to_spark_schema(left.schema)), node, left.schema)
    assert counted(joined.to_arrow()) == counted(expected)
    assert counted(frame.toArrow().cast(joined.schema)) == counted(expected)
