#!/usr/bin/env bash
# DuckDB 1.5.5: instants with nanoseconds in a Parquet file lose three digits without a word; local times keep them.
#
# Parquet has both with nanoseconds (TIMESTAMP(NANOS), with isAdjustedToUTC or without). DuckDB reads local times as
# TIMESTAMP_NS, and instants as TIMESTAMP WITH TIME ZONE, which has microseconds: different values become equal, and those
# before 1970 are cut towards it, so that the last nanosecond of 1969 is in 1970.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check duckdb==1.5.5 pyarrow==26.0.1
"$folder/venv/bin/python" - "$folder" <<'PYTHON'
import sys

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

path = f"{sys.argv[1]}/times.parquet"
values = [1_704_067_200_123_456_789, 1_704_067_200_123_456_700, -1]
columns = {name: pa.array(values, pa.timestamp("ns", zone)) for name, zone in (("local", None), ("instant", "UTC"))}
pq.write_table(pa.table(columns), path)
assert pq.read_table(path)["instant"].cast(pa.int64()).to_pylist() == values
duckdb.sql("SET timezone = 'UTC'")


def seen(column: str) -> tuple[object, ...]:
    rows = duckdb.sql(f"SELECT typeof({column}), epoch_ns({column}) FROM '{path}'").fetchall()
    ((distinct,),) = duckdb.sql(f"SELECT count(DISTINCT {column}) FROM '{path}'").fetchall()
    ((before,),) = duckdb.sql(f"SELECT count(*) FROM '{path}' WHERE {column} < '1970-01-01'").fetchall()
    return rows[0][0], [nanoseconds for _, nanoseconds in rows], distinct, before


for column in columns:
    print(f"{column}: type, nanoseconds, distinct values, rows before 1970: {seen(column)}")
assert seen("local") == ("TIMESTAMP_NS", values, 3, 1), "the behaviour has changed"
cut = [1_704_067_200_123_456_000, 1_704_067_200_123_456_000, 0]
assert seen("instant") == ("TIMESTAMP WITH TIME ZONE", cut, 2, 0), "the behaviour has changed"
PYTHON
