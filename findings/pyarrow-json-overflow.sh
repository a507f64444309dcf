#!/usr/bin/env bash
# pyarrow 26.0.1: the JSON reader takes Inf and -NaN, which are no JSON, and refuses 1e400, which is.
#
# JSON's grammar sets no limit to a number, and has none but finite ones. 1e400 is an error, also in a field that the schema
# leaves out; 1e39 in a float32 column is inf. Python's json reads 1e400 as inf, and knows Infinity and NaN only.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check pyarrow==26.0.1
"$folder/venv/bin/python" - <<'PYTHON'
import io
import json

import pyarrow as pa
import pyarrow.json


def by_arrow(text: str, kind: pa.DataType) -> str:
    options = pyarrow.json.ParseOptions(explicit_schema=pa.schema([("x", kind)]), unexpected_field_behavior="ignore")
    try:
        return str(pyarrow.json.read_json(io.BytesIO(text.encode()), parse_options=options)["x"][0])
    except pa.ArrowInvalid as error:
        return str(error)


def by_python(text: str) -> str:
    try:
        return str(json.loads(text)["x"])
    except json.JSONDecodeError:
        return "error"


too_big = "JSON parse error: Number too big to be stored in double. in row 0"
expected = {
    ('{"x": Inf}', pa.float64()): ("inf", "error"),
    ('{"x": -Inf}', pa.float64()): ("-inf", "error"),
    ('{"x": -NaN}', pa.float64()): ("nan", "error"),
    ('{"x": 1e400}', pa.float64()): (too_big, "inf"),
    ('{"x": 1, "other": 1e400}', pa.float64()): (too_big, "1"),
    ('{"x": 1e39}', pa.float32()): ("inf", "1e+39"),
}
for (text, kind), result in expected.items():
    seen = (by_arrow(text, kind), by_python(text))
    print(f"{text} as {kind}: pyarrow: {seen[0]}; Python: {seen[1]}")
    assert seen == result, "the behaviour has changed"
PYTHON
