#!/usr/bin/env bash
# pyarrow 26.0.1: a CSV column of hexadecimal identifiers is inferred as whole numbers, and long ones are negative.
#
# 0x10 is 16, and digits that fill a type's width are its bits: 0xffffffffffffffff is -1 as int64, 0xff is -1 as int8, where
# 255 is an error. -0x10 and +5 are refused. pandas takes +5 and no hexadecimal number; DuckDB's cast takes both, but refuses
# what is too big. `cast` of an array of texts does the same.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check pyarrow==26.0.1 pandas==3.0.1 duckdb==1.5.5
"$folder/venv/bin/python" - <<'PYTHON'
import io

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.csv as csv

identifiers = "id\n0x10\n0xffffffffffffffff\n"
inferred = csv.read_csv(io.BytesIO(identifiers.encode()))["id"]
print("inferred by pyarrow:", inferred.type, inferred.to_pylist())
assert inferred.type == pa.int64() and inferred.to_pylist() == [16, -1], "the behaviour has changed"
by_pandas = pd.read_csv(io.StringIO(identifiers))["id"].tolist()
print("inferred by pandas:", by_pandas)
assert by_pandas == ["0x10", "0xffffffffffffffff"], "the behaviour has changed"


def cast(text: str, kind: pa.DataType) -> int | str:
    try:
        return pa.array([text]).cast(kind)[0].as_py()
    except pa.ArrowInvalid:
        return "error"


def by_duckdb(text: str, kind: str) -> int | str:
    try:
        return duckdb.execute(f"SELECT CAST(? AS {kind})", [text]).fetchall()[0][0]
    except duckdb.ConversionException:
        return "error"


expected = {
    ("0x10", "BIGINT"): (16, 16),
    ("0xffffffffffffffff", "BIGINT"): (-1, "error"),
    ("0xff", "TINYINT"): (-1, "error"),
    ("255", "TINYINT"): ("error", "error"),
    ("-0x10", "BIGINT"): ("error", "error"),
    ("+5", "BIGINT"): ("error", 5),
}
for (text, kind), result in expected.items():
    seen = (cast(text, pa.int64() if kind == "BIGINT" else pa.int8()), by_duckdb(text, kind))
    print(f"{text} as {kind}: pyarrow {seen[0]}, DuckDB {seen[1]}")
    assert seen == result, "the behaviour has changed"
PYTHON
