#!/usr/bin/env bash
# pyiceberg 0.12.0: manifests declare equality_ids (field 135) as a list of longs.
#
# The specification has `list<136: int>`. pyiceberg writes no equality deletes, so the list is null in its own manifests;
# whoever copies entries of equality deletes by its schema makes a table that Iceberg's Java library can't read.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "pyiceberg[sql-sqlite]==0.12.0" pyarrow==26.0.1 fastavro==1.13.1
"$folder/venv/bin/python" - "$folder" <<'PYTHON'
import sys
from pathlib import Path

import fastavro
import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

folder = sys.argv[1]
rows = pa.table({"id": pa.array([1], pa.int64())})
catalog = SqlCatalog("local", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/lake")
catalog.create_namespace("db")
table = catalog.create_table("db.t", rows.schema)
table.append(rows)

(manifest,) = table.current_snapshot().manifests(table.io)
with Path(manifest.manifest_path.removeprefix("file://")).open("rb") as file:
    (data_file,) = (field for field in fastavro.reader(file).writer_schema["fields"] if field["name"] == "data_file")
(ids,) = (field for field in data_file["type"]["fields"] if field["field-id"] == 135)
items = [kind["items"] for kind in ids["type"] if isinstance(kind, dict)]
print("equality_ids, in the specification a list of ints, is a list of", *items)
assert items == ["long"], items
PYTHON
