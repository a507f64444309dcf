#!/usr/bin/env bash
# pyiceberg 0.12.0: an append to a table that is partitioned by a float column writes zeros twice, and fails on NaN.
#
# The rows of each partition are found by `=`. 0.0 and -0.0 are two partitions, and each takes the rows of both, so one
# append writes them twice. NaN is a partition that equals nothing: a ZeroDivisionError.
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
catalog = SqlCatalog("local", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/lake")
catalog.create_namespace("db")
table = catalog.create_table("db.t", pa.schema([("x", pa.float64()), ("id", pa.int64())]))
with table.update_spec() as update:
    update.add_identity("x")

table.append(pa.table({"x": [1.0, 0.0, -0.0], "id": [1, 2, 3]}))
seen = sorted(table.scan().to_arrow()["id"].to_pylist())
print("appended ids 1, 2, 3; read", seen)
assert seen == [1, 2, 2, 3, 3], "the behaviour has changed"
try:
    table.append(pa.table({"x": [float("nan")], "id": [4]}))
    raise SystemExit("NaN is taken now")
except ZeroDivisionError as error:
    print("NaN:", error)
PYTHON
