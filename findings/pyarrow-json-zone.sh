#!/usr/bin/env bash
# pyarrow 26.0.1: the JSON reader makes no difference between timestamps with and without a zone; the CSV reader does.
#
# In a column without a zone, the CSV reader refuses 10:00+02:00, and in one with a zone 10:00. The JSON reader takes both:
# the first is 08:00 without a zone, the second 10:00 UTC. An inferred column of both kinds is one without a zone.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check pyarrow==26.0.1
"$folder/venv/bin/python" - <<'PYTHON'
import io

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.json as json

plain, zoned = "2024-01-01T10:00:00", "2024-01-01T10:00:00+02:00"


def from_json(kind: pa.DataType, text: str) -> str:
    options = json.ParseOptions(explicit_schema=pa.schema([("x", kind)]))
    return str(json.read_json(io.BytesIO(b'{"x": "%s"}\n' % text.encode()), parse_options=options)["x"][0])


def from_csv(kind: pa.DataType, text: str) -> str:
    options = csv.ConvertOptions(column_types={"x": kind})
    try:
        return str(csv.read_csv(io.BytesIO(b"x\n%s\n" % text.encode()), convert_options=options)["x"][0])
    except pa.ArrowInvalid as error:
        return str(error).partition("expected ")[2].partition(" in ")[0]


seen = {}
for kind, text in ((pa.timestamp("us"), zoned), (pa.timestamp("us", "UTC"), plain)):
    seen[text] = (from_csv(kind, text), from_json(kind, text))
    print(f"{text} as {kind}: CSV: {seen[text][0]}; JSON: {seen[text][1]}")
assert seen[zoned] == ("no zone offset", "2024-01-01 08:00:00"), "the behaviour has changed"
assert seen[plain] == ("a zone offset", "2024-01-01 10:00:00+00:00"), "the behaviour has changed"

both = json.read_json(io.BytesIO(f'{{"x": "{plain}"}}\n{{"x": "{zoned}"}}\n'.encode()))["x"]
print("inferred:", both.type, *both)
assert both.type == pa.timestamp("s") and [str(each) for each in both] == ["2024-01-01 10:00:00", "2024-01-01 08:00:00"]
PYTHON
