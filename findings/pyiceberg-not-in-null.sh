#!/usr/bin/env bash
# pyiceberg 0.12.0: whether `not in` finds null depends on the number of values in the list.
#
# In SQL neither `x <> 1` nor `x NOT IN (1, 2)` finds null. pyiceberg makes `not in` of one value a `!=`, which doesn't
# find it; with two values it does. So a longer list, which excludes more, finds more rows.
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
rows = pa.table({"x": pa.array([1, 3, None], pa.int64())})
catalog = SqlCatalog("local", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/lake")
catalog.create_namespace("db")
table = catalog.create_table("db.t", rows.schema)
table.append(rows)

seen = {text: table.scan(row_filter=text).to_arrow()["x"].to_pylist() for text in ("x not in (1)", "x not in (1, 2)")}
for text, found in seen.items():
    print(f"{text}: {found}")
assert seen == {"x not in (1)": [3], "x not in (1, 2)": [3, None]}, "the behaviour has changed"
PYTHON
