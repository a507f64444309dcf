#!/usr/bin/env bash
# pyarrow 26.0.1: the JSON reader refuses an ISO date and a time of day where the schema has that type; it wants numbers.
#
# With a declared date32 column, "2024-01-01" is an error and 19723 that date; a time64 column takes microseconds only. A
# timestamp column is the other way round: it takes ISO texts, and no number. The CSV reader takes ISO texts for all three.
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

types = {"date": pa.date32(), "time": pa.time64("us"), "timestamp": pa.timestamp("us")}
texts = {"date": "2024-01-01", "time": "10:00:00", "timestamp": "2024-01-01T10:00:00"}
numbers = {"date": 19723, "time": 36_000_000_000, "timestamp": 1_704_103_200_000_000}


def from_json(name: str, value: str) -> str:
    options = json.ParseOptions(explicit_schema=pa.schema([("x", types[name])]))
    try:
        return str(json.read_json(io.BytesIO(b'{"x": %s}\n' % value.encode()), parse_options=options)["x"][0])
    except pa.ArrowInvalid as error:
        return str(error).partition(" in row")[0]


def from_csv(name: str, value: str) -> str:
    options = csv.ConvertOptions(column_types={"x": types[name]})
    return str(csv.read_csv(io.BytesIO(b"x\n%s\n" % value.encode()), convert_options=options)["x"][0])


seen = {}
for name, text in texts.items():
    seen[name] = (from_csv(name, text), from_json(name, f'"{text}"'), from_json(name, str(numbers[name])))
    print(f"{name}: CSV {seen[name][0]}; JSON text: {seen[name][1]}; JSON number: {seen[name][2]}")
to_text = "JSON parse error: Column(/x) changed from number to string"
to_number = "JSON parse error: Column(/x) changed from string to number"
assert seen == {
    "date": ("2024-01-01", to_text, "2024-01-01"),
    "time": ("10:00:00", to_text, "10:00:00"),
    "timestamp": ("2024-01-01 10:00:00", "2024-01-01 10:00:00", to_number),
}, "the behaviour has changed"
PYTHON
