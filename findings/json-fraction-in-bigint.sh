#!/usr/bin/env bash
# A JSON number with a fraction, read into a 64-bit integer that the schema declares: DuckDB rounds, DataFusion cuts.
#
# DuckDB 1.5.5 makes 1.5 two, DataFusion 55.0.0 (arrow-json of Rust) makes it one; neither says so. pyarrow 26.0.1 refuses.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check duckdb==1.5.5 datafusion==55.0.0 pyarrow==26.0.1
"$folder/venv/bin/python" - "$folder/rows.json" <<'PYTHON'
import sys

import datafusion
import duckdb
import pyarrow as pa
import pyarrow.json

path = sys.argv[1]
with open(path, "w") as file:
    file.write('{"a": 1.5}\n')
schema = pa.schema({"a": pa.int64()})
by_duckdb = duckdb.sql(f"SELECT a FROM read_json('{path}', columns={{a: 'BIGINT'}})").fetchall()[0][0]
by_datafusion = datafusion.SessionContext().read_json(path, schema=schema).to_pydict()["a"][0]
try:
    by_pyarrow = pyarrow.json.read_json(path, parse_options=pyarrow.json.ParseOptions(explicit_schema=schema))["a"][0]
except pa.ArrowInvalid as error:
    by_pyarrow = str(error)
print(f"1.5 as a 64-bit integer: DuckDB {by_duckdb}, DataFusion {by_datafusion}, pyarrow: {by_pyarrow}")
assert (by_duckdb, by_datafusion) == (2, 1), "the behaviour has changed"
assert "Failed to convert JSON to int64" in str(by_pyarrow), "the behaviour has changed"
PYTHON
