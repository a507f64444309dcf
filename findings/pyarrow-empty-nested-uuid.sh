#!/usr/bin/env bash
# pyarrow 26.0.1: an empty table with a UUID inside of a struct, list or map can't be made by the usual ways.
#
# Schema.empty_table, array([], type) and RecordBatch.from_pylist([]) raise "extension", for a UUID column itself they don't.
# nulls(0, type) and Table.from_batches([], schema) make the same empty values. pyiceberg 0.12.0 takes the first way: a scan
# that finds no rows of such a table fails, one that finds some does not.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "pyiceberg[sql-sqlite]==0.12.0" pyarrow==26.0.1
"$folder/venv/bin/python" - "$folder" 2> /dev/null <<'PYTHON'
import sys
import uuid

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StructType, UUIDType

folder = sys.argv[1]
NESTED = pa.schema([("x", pa.struct([("id", pa.uuid())]))])
PLAIN = pa.schema([("x", pa.uuid())])
WAYS = {
    "empty_table": lambda schema: schema.empty_table(),
    "array": lambda schema: pa.array([], schema.field("x").type),
    "from_pylist": lambda schema: pa.RecordBatch.from_pylist([], schema),
    "nulls": lambda schema: pa.nulls(0, schema.field("x").type),
    "from_batches": lambda schema: pa.Table.from_batches([], schema),
}


def outcome(way, *arguments) -> str:
    try:
        return f"{len(way(*arguments))} rows"
    except Exception as error:
        return f"{type(error).__name__}: {error}"


seen = {name: (outcome(way, PLAIN), outcome(way, NESTED)) for name, way in WAYS.items()}
for name, (plain, nested) in seen.items():
    print(f"{name}: a UUID: {plain}; a UUID in a struct: {nested}")
fails = "ArrowNotImplementedError: extension"
assert {name for name, (plain, nested) in seen.items() if (plain, nested) == ("0 rows", fails)} == {
    *("empty_table", "array", "from_pylist")
}, "the behaviour has changed"
assert seen["nulls"] == seen["from_batches"] == ("0 rows", "0 rows"), "the behaviour has changed"

catalog = SqlCatalog("local", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/lake")
catalog.create_namespace("db")
item = StructType(NestedField(2, "id", UUIDType(), required=False))
table = catalog.create_table("db.t", Schema(NestedField(1, "x", item, required=False)))
scan = outcome(lambda: table.scan().to_arrow())
print(f"pyiceberg's scan of a table without rows: {scan}")
assert scan == fails, "the behaviour has changed"
PYTHON
