#!/usr/bin/env bash
# pyiceberg 0.12.0: a filter on a decimal column refuses a number that isn't written with all decimals of the column.
#
# On a decimal(9, 2), `x > 1.2` is an error, and so is the Decimal of it, though 1.2 is a value of that type. 1 and 1.20 are
# taken, and the float 1.2 is.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "pyiceberg[sql-sqlite]==0.12.0" pyarrow==26.0.1
"$folder/venv/bin/python" - "$folder" <<'PYTHON'
import sys
from decimal import Decimal

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import GreaterThan

folder = sys.argv[1]
rows = pa.table({"x": pa.array([Decimal("1.15"), Decimal("1.25")], pa.decimal128(9, 2))})
catalog = SqlCatalog("local", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/lake")
catalog.create_namespace("db")
table = catalog.create_table("db.t", rows.schema)
table.append(rows)


def found(row_filter: object) -> str:
    try:
        return str([str(x) for x in table.scan(row_filter=row_filter).to_arrow()["x"]])
    except ValueError as error:
        return str(error)


filters = ("x > 1", "x > 1.20", "x > 1.2", GreaterThan("x", Decimal("1.2")), GreaterThan("x", 1.2))
seen = [found(each) for each in filters]
for each, answer in zip(filters, seen, strict=True):
    print(f"{each}: {answer}")
refused = "Could not convert 1.2 into a decimal(9, 2)"
assert seen == ["['1.15', '1.25']", "['1.25']", refused, refused, "['1.25']"], "the behaviour has changed"
PYTHON
