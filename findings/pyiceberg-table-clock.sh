#!/usr/bin/env bash
# pyiceberg 0.12.0: a commit by a clock that is behind the table's takes the times of its metadata back.
#
# Two writers share a table; the first one's clock is two hours ahead. The second one's snapshot, log entry and
# last-updated-ms are earlier than those before. Iceberg's Java library (TableMetadata of 1.12.0) refuses to read a table
# whose log goes back by more than a minute: "[BUG] Expected sorted snapshot log entries".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "pyiceberg[sql-sqlite]==0.12.0" pyarrow==26.0.1
"$folder/venv/bin/python" - "$folder" <<'PYTHON'
import sys
import time
from unittest.mock import patch

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

folder = sys.argv[1]
rows = pa.table({"id": pa.array([1], pa.int64())})
catalog = SqlCatalog("local", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/lake")
catalog.create_namespace("db")
table = catalog.create_table("db.t", rows.schema)
now = time.time
with patch("time.time", lambda: now() + 7200):
    table.append(rows)
catalog.load_table("db.t").append(rows)
first, second = (entry.timestamp_ms for entry in catalog.load_table("db.t").metadata.snapshot_log)
print(f"snapshot log: the second entry is {(first - second) / 60_000:.0f} minutes before the first")
assert first - second > 7_000_000, "the behaviour has changed"
PYTHON
