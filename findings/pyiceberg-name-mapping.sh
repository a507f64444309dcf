#!/usr/bin/env bash
# pyiceberg 0.12.0: in files without field ids, a new column takes over the values of a renamed one.
#
# A table that has taken files in by add_files has a name mapping. A rename adds the new name for the same field. A column
# that is added under the old name takes that name from the renamed one in the mapping, and with it the values in the file:
# the renamed column is null from then on.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "pyiceberg[sql-sqlite]==0.12.0" pyarrow==26.0.1
"$folder/venv/bin/python" - "$folder" <<'PYTHON'
import sys

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.types import StringType

folder = sys.argv[1]
rows = pa.table({"id": pa.array([1], pa.int64()), "name": ["ada"]})
pq.write_table(rows, f"{folder}/foreign.parquet")
catalog = SqlCatalog("local", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/lake")
catalog.create_namespace("db")
table = catalog.create_table("db.people", rows.schema)
table.add_files([f"{folder}/foreign.parquet"])
table.update_schema().rename_column("name", "full_name").commit()
table.update_schema().add_column("name", StringType()).commit()
seen = catalog.load_table("db.people").scan().to_arrow().to_pylist()
print(seen)
print(table.properties["schema.name-mapping.default"])
assert seen == [{"id": 1, "full_name": None, "name": "ada"}], "the behaviour has changed"
PYTHON
