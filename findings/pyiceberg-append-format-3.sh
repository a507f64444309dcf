#!/usr/bin/env bash
# pyiceberg 0.12.0: an append to a table of format version 3 fails only when its rows are written, and they stay there.
#
# pyiceberg reads format version 3 and doesn't write it. `create_table` says so at once. `append` writes the data files
# first, and fails at the manifest: each attempt leaves its files, which belong to no snapshot.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "pyiceberg[sql-sqlite]==0.12.0" pyarrow==26.0.1
"$folder/venv/bin/python" - "$folder" <<'PYTHON'
import json
import sys
from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

lake = Path(sys.argv[1]) / "lake"
rows = pa.table({"id": pa.array([1, 2], pa.int64())})
catalog = SqlCatalog("local", uri=f"sqlite:///{lake.parent}/catalog.db", warehouse=f"file://{lake}")
catalog.create_namespace("db")
try:
    catalog.create_table("db.other", rows.schema, properties={"format-version": "3"})
except NotImplementedError as error:
    print(f"create_table: {error}")
else:
    raise AssertionError("the behaviour has changed")

# The metadata of an upgraded table, as other engines write it.
place = Path(catalog.create_table("db.t", rows.schema).metadata_location.removeprefix("file://"))
place.write_text(json.dumps({**json.loads(place.read_text()), "format-version": 3, "next-row-id": 0}))
table = catalog.load_table("db.t")
assert (table.format_version, len(table.scan().to_arrow())) == (3, 0)
for attempt in (1, 2):
    try:
        table.append(rows)
    except ValueError as error:
        files = [*lake.rglob("*.parquet")]
        print(f"append: {error}; files of rows: {len(files)}")
        assert (str(error), len(files)) == ("Cannot write manifest for table version: 3", attempt), "it has changed"
    else:
        raise AssertionError("the behaviour has changed")
assert catalog.load_table("db.t").current_snapshot() is None
PYTHON
