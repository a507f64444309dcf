#!/usr/bin/env bash
# pyiceberg 0.12.0: the first append to a branch of a table without snapshots is a CommitFailedException.
#
# That class stands for conflicts with other writers, which callers retry: this one fails each time.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "pyiceberg[sql-sqlite]==0.12.0" pyarrow==26.0.1
"$folder/venv/bin/python" - "$folder" 2> /dev/null <<'PYTHON'
import sys

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException

folder = sys.argv[1]
rows = pa.table({"id": pa.array([1], pa.int64())})
catalog = SqlCatalog("local", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/lake")
catalog.create_namespace("db")
table = catalog.create_table("db.t", rows.schema)
for attempt in (1, 2):
    try:
        table.append(rows, branch="audit")
        answer = "appended"
    except CommitFailedException as error:
        answer = f"CommitFailedException: {error}"
    print(f"attempt {attempt}: {answer}")
    assert answer.startswith("CommitFailedException: "), "the behaviour has changed"
    table.refresh()
table.append(rows)
table.manage_snapshots().create_branch(table.current_snapshot().snapshot_id, "audit").commit()
table.append(rows, branch="audit")
print(f"with a snapshot on main: {sorted(table.refs())}")
PYTHON
