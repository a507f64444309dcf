#!/usr/bin/env bash
# DuckDB 1.5.5's iceberg extension: a table of format version 1 can't be read once it is upgraded to version 2.
#
# An upgrade writes metadata only. The manifest list stays as it is, without sequence numbers; the specification says that
# they are 0 then. pyiceberg 0.12.0, which upgrades the table, reads it. DuckDB says that they are missing, until the next
# append writes another list.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "pyiceberg[sql-sqlite]==0.12.0" pyarrow==26.0.1 \
  duckdb==1.5.5 duckdb-extensions==1.5.5 duckdb-extension-avro==1.5.5 duckdb-extension-iceberg==1.5.5
HOME="$folder" "$folder/venv/bin/python" - "$folder" <<'PYTHON'
import sys

import duckdb
import pyarrow as pa
from duckdb_extensions import import_extension
from pyiceberg.catalog.sql import SqlCatalog

folder = sys.argv[1]
for name in ("avro", "iceberg"):
    import_extension(name)
duckdb.sql("LOAD avro; LOAD iceberg")
rows = pa.table({"id": pa.array([1], pa.int64())})
catalog = SqlCatalog("local", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/lake")
catalog.create_namespace("db")
table = catalog.create_table("db.t", rows.schema, properties={"format-version": "1"})


def by_duckdb() -> str:
    try:
        return str(duckdb.sql(f"SELECT id FROM iceberg_scan('{table.metadata_location}')").fetchall())
    except duckdb.Error as error:
        return str(error).splitlines()[0]


seen = []
table.append(rows)
seen.append((table.format_version, len(table.scan().to_arrow()), by_duckdb()))
with table.transaction() as transaction:
    transaction.upgrade_table_version(2)
seen.append((table.format_version, len(table.scan().to_arrow()), by_duckdb()))
table.append(rows)
seen.append((table.format_version, len(table.scan().to_arrow()), by_duckdb()))
for version, count, answer in seen:
    print(f"version {version}: pyiceberg reads {count} rows, DuckDB: {answer}")
assert seen == [
    (1, 1, "[(1,)]"),
    (2, 1, "required field 'sequence_number' is NULL!"),
    (2, 2, "[(1,), (1,)]"),
], "the behaviour has changed"
PYTHON
