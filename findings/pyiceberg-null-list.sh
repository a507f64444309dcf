#!/usr/bin/env bash
# pyiceberg writes an empty list for a null in a column of lists of structs, and reads one for a null that a file has.
#
# pyiceberg 0.12.0 with pyarrow 24.0.0. A null means "not known" or "not sent": after an append it is lost in the data
# file, and a scan of another writer's file loses it too. A list of texts keeps its null.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "pyiceberg[sql-sqlite]==0.12.0" pyarrow==24.0.0 \
  duckdb==1.5.5
"$folder/venv/bin/python" - "$folder" <<'PYTHON'
import sys

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog

folder = sys.argv[1]
catalog = SqlCatalog("lake", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")
catalog.create_namespace("db")
items = pa.list_(pa.struct({"sku": pa.string()}))
schema = pa.schema({"id": pa.int64(), "items": items, "tags": pa.list_(pa.string())})
rows = pa.Table.from_pylist([{"id": 1, "items": None, "tags": None}, {"id": 2, "items": [], "tags": []}], schema)


def in_file(path: str, column: str) -> list[object]:
    return [value for (value,) in duckdb.sql(f"select {column} from '{path}' order by id").fetchall()]


appended = catalog.create_table("db.appended", schema)
appended.append(rows)
(path,) = (path.removeprefix("file://") for path in appended.inspect.files()["file_path"].to_pylist())
written = in_file(path, "items"), in_file(path, "tags")
print("in the file of an append, lists of structs and of texts:", *written)

pq.write_table(rows, f"{folder}/other.parquet")
added = catalog.create_table("db.added", schema)
added.add_files([f"file://{folder}/other.parquet"])
read = added.scan().to_arrow().sort_by("id")["items"].to_pylist()
print("in a file of pyarrow, and as pyiceberg reads it:", in_file(f"{folder}/other.parquet", "items"), read)

assert written == ([[], []], [None, []])
assert in_file(f"{folder}/other.parquet", "items") == [None, []]
assert read == [[], []]
PYTHON
