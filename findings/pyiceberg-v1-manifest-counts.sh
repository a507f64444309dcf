#!/usr/bin/env bash
# pyiceberg 0.12.0: a manifest list of format version 1 without counts can't be read.
#
# The counts of files and rows (fields 504 to 506 and 512 to 514) are optional in version 1. pyiceberg writes them as
# optional fields, but reads every manifest list by the schema of a later version, which requires them. Such lists stay in
# a table that is upgraded to version 2.
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
from pyiceberg.exceptions import ResolveError

folder = sys.argv[1]
rows = pa.table({"id": pa.array([1], pa.int64())})
catalog = SqlCatalog("local", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/lake")
catalog.create_namespace("db")
table = catalog.create_table("db.t", rows.schema, properties={"format-version": "1"})
table.append(rows)

manifest_list = Path(table.current_snapshot().manifest_list.removeprefix("file://"))
with manifest_list.open("rb") as file:
    reader = fastavro.reader(file)
    schema, manifests = reader.writer_schema, list(reader)
counts = [field for field in schema["fields"] if field["name"].endswith("_count")]
print("optional in the file:", *(field["name"] for field in counts))
assert all("null" in field["type"] for field in counts)
schema["fields"] = [field for field in schema["fields"] if field not in counts]
with manifest_list.open("wb") as file:
    fastavro.writer(file, schema, manifests)

try:
    seen = f"no error: {catalog.load_table('db.t').scan().to_arrow().to_pylist()}"
except ResolveError as error:
    seen = str(error)
print("without them:", seen)
assert seen == "504: added_files_count: required int is non-optional, and not part of the file schema", seen
PYTHON
