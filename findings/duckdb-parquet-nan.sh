#!/usr/bin/env bash
# DuckDB 1.5.5: the answer about NaN depends on which library wrote the Parquet file.
#
# In DuckDB NaN is greater than all other values. The statistics of files that pyarrow and polars write leave NaN out;
# DuckDB trusts them when it filters and takes `max`. DuckDB itself writes no such statistics beside NaN.
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

folder = sys.argv[1]
duckdb.sql(f"COPY (SELECT unnest([1.0::DOUBLE, 'nan'::DOUBLE]) AS x) TO '{folder}/duckdb.parquet'")
pq.write_table(pa.table({"x": [1.0, float("nan")]}), f"{folder}/pyarrow.parquet")


def seen(writer: str) -> dict[str, object]:
    rows = f"FROM '{folder}/{writer}.parquet'"
    queries = (f"SELECT x {rows} WHERE x > 1", f"SELECT x {rows} WHERE NOT (x > 1)", f"SELECT max(x) {rows}")
    return {query.replace(folder, "."): str(duckdb.sql(query).fetchall()) for query in queries}


answers = {writer: seen(writer) for writer in ("duckdb", "pyarrow")}
for each in answers.values():
    for query, rows in each.items():
        print(f"{query}: {rows}")
assert list(answers["duckdb"].values()) == ["[(nan,)]", "[(1.0,)]", "[(nan,)]"], "the behaviour has changed"
assert list(answers["pyarrow"].values()) == ["[]", "[(1.0,), (nan,)]", "[(1.0,)]"], "the behaviour has changed"
PYTHON
