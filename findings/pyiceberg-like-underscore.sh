#!/usr/bin/env bash
# pyiceberg 0.12.0: `_` in a LIKE pattern is an underscore, not any one character, and can't be escaped.
#
# `%` is SQL's, and is refused by an error where pyiceberg can't do it. `_` is silently another thing: `like 'a_1'` doesn't
# find ab1. A pattern for SQL, 'a\_1', which means the text a_1, finds nothing.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "pyiceberg[sql-sqlite]==0.12.0" pyarrow==26.0.1
"$folder/venv/bin/python" - "$folder" <<'PYTHON'
import sys

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

folder = sys.argv[1]
rows = pa.table({"s": ["a_1", "ab1", "b1"]})
catalog = SqlCatalog("local", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/lake")
catalog.create_namespace("db")
table = catalog.create_table("db.t", rows.schema)
table.append(rows)


def found(pattern: str) -> object:
    try:
        return table.scan(row_filter=f"s like '{pattern}'").to_arrow()["s"].to_pylist()
    except ValueError as error:
        return str(error)


seen = {pattern: found(pattern) for pattern in ("a_1", "a_%", r"a\_1", "%1")}
for pattern, rows_found in seen.items():
    print(f"like '{pattern}': {rows_found}")
assert seen == {
    "a_1": ["a_1"],
    "a_%": ["a_1"],
    r"a\_1": [],
    "%1": "LIKE expressions only supports wildcard, '%', at the end of a string",
}, "the behaviour has changed"
PYTHON
