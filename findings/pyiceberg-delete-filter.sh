#!/usr/bin/env bash
# pyiceberg 0.12.0: a delete removes rows that a scan by the same filter doesn't find, depending on their files.
#
# A scan by `x != 1` finds no null. A delete by it drops a file as a whole if all its values are other than 1, and null
# counts as such. If one value is 1, the file is rewritten, and its null stays. A scan by `not (x > 1)` finds NaN; the
# delete leaves it, but for a file whose other values all go.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "pyiceberg[sql-sqlite]==0.12.0" pyarrow==26.0.1
"$folder/venv/bin/python" -W ignore - "$folder" <<'PYTHON'
import sys

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

folder = sys.argv[1]
nan = float("nan")
catalog = SqlCatalog("local", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/lake")
catalog.create_namespace("db")


def scanned_and_left(row_filter: str, *files: list[float | None]) -> tuple[str, str]:
    table = catalog.create_table("db.t", pa.schema([("x", pa.float64())]))
    for values in files:
        table.append(pa.table({"x": pa.array(values, pa.float64())}))
    scanned = table.scan(row_filter=row_filter).to_arrow()["x"].to_pylist()
    table.delete(row_filter)
    left = table.scan().to_arrow()["x"].to_pylist()
    catalog.drop_table("db.t")
    print(f"{row_filter}, files {files}: the scan finds {scanned}, the delete leaves {left}")
    return str(scanned), str(left)


assert scanned_and_left("x != 1", [None, 3.0], [1.0]) == ("[3.0]", "[1.0]"), "the behaviour has changed"
assert scanned_and_left("x != 1", [None, 3.0, 1.0]) == ("[3.0]", "[None, 1.0]"), "the behaviour has changed"
assert scanned_and_left("not (x > 1)", [1.0, nan, 3.0]) == ("[1.0, nan]", "[nan, 3.0]"), "the behaviour has changed"
assert scanned_and_left("not (x > 1)", [1.0, nan]) == ("[1.0, nan]", "[]"), "the behaviour has changed"
PYTHON
