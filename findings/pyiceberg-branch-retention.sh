#!/usr/bin/env bash
# pyiceberg 0.12.0: an append to a branch forgets how long the branch keeps its snapshots.
#
# A branch can have a retention of its own: max-snapshot-age-ms, min-snapshots-to-keep and max-ref-age-ms. Iceberg's
# Java library moves the branch and keeps the three. An append by pyiceberg sets the branch anew without them; so it
# does with main.
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
rows = pa.table({"id": pa.array([1], pa.int64())})
catalog = SqlCatalog("local", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/lake")
catalog.create_namespace("db")
table = catalog.create_table("db.t", rows.schema)
table.append(rows)
day = 24 * 3600 * 1000
limits = {"main": (day, 5, None), "audit": (day, 5, 30 * day)}
for branch, (snapshot_age, minimum, ref_age) in limits.items():
    table.manage_snapshots().create_branch(
        table.current_snapshot().snapshot_id,
        branch,
        max_snapshot_age_ms=snapshot_age,
        min_snapshots_to_keep=minimum,
        max_ref_age_ms=ref_age,
    ).commit()


def retention(branch: str) -> tuple[int | None, ...]:
    ref = catalog.load_table("db.t").metadata.refs[branch]
    return ref.max_snapshot_age_ms, ref.min_snapshots_to_keep, ref.max_ref_age_ms


for branch in limits:
    before = retention(branch)
    catalog.load_table("db.t").append(rows, branch=branch)
    after = retention(branch)
    print(f"{branch}: before the append {before}, after it {after}")
    assert before == limits[branch], "the retention is not set as asked"
    assert after == (None, None, None), "the behaviour has changed"
PYTHON
