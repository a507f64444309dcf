#!/usr/bin/env bash
# PySpark 4.3.0: IN (query) is false in a select list where it is null in SQL.
#
# The standard, and Spark itself for a list of values, have null where the value is null, or where it matches nothing and
# the query has a null. In WHERE both drop the row; in a select list, a CASE or a NOT of it the difference shows.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check pyspark==4.3.0 duckdb==1.5.5 setuptools
"$folder/venv/bin/python" - 2> "$folder/log" <<'PYTHON'
import duckdb
from pyspark.sql import SparkSession

VALUES = "(values (1), (2), (null)) as a(x)"
QUERY = f"select x, x in (select y from (values (1), (null)) as n(y)) as found from {VALUES}"
LIST = f"select x, x in (1, null) as found from {VALUES}"

spark = SparkSession.builder.master("local[1]").getOrCreate()


def by_spark(text: str) -> dict[int | None, bool | None]:
    return {row.x: row.found for row in spark.sql(text).collect()}


seen = by_spark(QUERY), by_spark(LIST), dict(duckdb.sql(QUERY).fetchall())
for name, rows in zip(("Spark, query", "Spark, list", "DuckDB, query"), seen, strict=True):
    print(f"{name}: {rows}")
in_sql = {1: True, 2: None, None: None}
assert seen == ({1: True, 2: False, None: False}, in_sql, in_sql), "the behaviour has changed"
PYTHON
