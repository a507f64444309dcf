#!/usr/bin/env bash
# DuckDB 1.5.5: a declared FLOAT column of read_json isn't the nearest float of the number in the file.
#
# The reader makes the number a DOUBLE first, and rounds that. Near the middle between two floats this is the wrong one.
# The same digits in a CSV file, or as a text that is cast, give the nearest.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check duckdb==1.5.5
"$folder/venv/bin/python" - "$folder" <<'PYTHON'
import sys
from pathlib import Path

import duckdb

folder = Path(sys.argv[1])
number = "1.00000017881393432617187499"  # just below the middle between 1 + 2**-23 and 1 + 2**-22
(folder / "x.json").write_text(f'{{"x": {number}}}\n')
(folder / "x.csv").write_text(f"x\n{number}\n")

queries = {
    "JSON": f"SELECT x FROM read_json('{folder}/x.json', columns = {{x: 'FLOAT'}})",
    "CSV": f"SELECT x FROM read_csv('{folder}/x.csv', columns = {{x: 'FLOAT'}})",
    "cast of the text": f"SELECT CAST('{number}' AS FLOAT)",
}
seen = {name: duckdb.sql(query).fetchall()[0][0] for name, query in queries.items()}
for name, value in seen.items():
    print(f"{name}: {value}")
assert seen == {"JSON": 1 + 2**-22, "CSV": 1 + 2**-23, "cast of the text": 1 + 2**-23}, "the behaviour has changed"
PYTHON
