#!/usr/bin/env bash
# pyiceberg 0.12.0: expiry by age takes no notice of how many snapshots a branch or table wants to keep.
#
# The specification lets a branch say min-snapshots-to-keep, and the table property of the same name
# (history.expire.min-snapshots-to-keep) is the default of all branches: that many snapshots stay, however old they are.
# expire_snapshots().older_than(…) keeps the head of each branch and tag only.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "pyiceberg[sql-sqlite]==0.12.0" pyarrow==26.0.1
"$folder/venv/bin/python" - "$folder" <<'PYTHON'
import sys
from datetime import datetime, timedelta

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

folder = sys.argv[1]
rows = pa.table({"id": pa.array([1], pa.int64())})
catalog = SqlCatalog("local", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/lake")
catalog.create_namespace("db")


def left_of_five(name: str, properties: dict[str, str], kept_by_branch: int | None) -> int:
    table = catalog.create_table(name, rows.schema, properties=properties)
    for _ in range(5):
        table.append(rows)
    if kept_by_branch:
        head = table.current_snapshot().snapshot_id
        table.manage_snapshots().create_branch(head, "main", min_snapshots_to_keep=kept_by_branch).commit()
        assert catalog.load_table(name).metadata.refs["main"].min_snapshots_to_keep == kept_by_branch
    tomorrow = datetime.now() + timedelta(days=1)
    table.maintenance.expire_snapshots().older_than(tomorrow).commit()
    return len(catalog.load_table(name).metadata.snapshots)


by_branch = left_of_five("db.branch", {}, kept_by_branch=4)
by_table = left_of_five("db.table", {"history.expire.min-snapshots-to-keep": "4"}, kept_by_branch=None)
print(f"snapshots left of five: {by_branch} where the branch keeps 4, {by_table} where the table keeps 4")
assert (by_branch, by_table) == (1, 1), "the behaviour has changed"
PYTHON
