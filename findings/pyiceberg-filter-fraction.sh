#!/usr/bin/env bash
# pyiceberg 0.12.0: a fraction that is compared with a whole-number column is rounded first.
#
# Of the rows 1, 2, 3, `x > 1.5` should find 2 and 3, and `x = 1.5` none. pyiceberg makes 1.5 the whole number 2, so
# `x > 1.5` loses the 2, and `x = 1.5` finds it; a delete by that filter removes it.
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
rows = pa.table({"x": pa.array([1, 2, 3], pa.int64())})
catalog = SqlCatalog("local", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/lake")
catalog.create_namespace("db")
table = catalog.create_table("db.t", rows.schema)
table.append(rows)

filters = ("x > 1.5", "x >= 1.5", "x < 1.5", "x = 1.5", "x != 1.5")
seen = {text: table.scan(row_filter=text).to_arrow()["x"].to_pylist() for text in filters}
for text, found in seen.items():
    print(f"{text}: {found}")
assert seen == {"x > 1.5": [3], "x >= 1.5": [2, 3], "x < 1.5": [1], "x = 1.5": [2], "x != 1.5": [1, 3]}, "it has changed"

table.delete("x = 1.5")
left = table.scan().to_arrow()["x"].to_pylist()
print("left after delete x = 1.5:", left)
assert left == [1, 3], "the behaviour has changed"
PYTHON
