#!/usr/bin/env bash
# pyarrow 26.0.1: the CSV and JSON readers take decimals that have too many digits; Parquet then holds another number.
#
# A decimal(9, 2) has at most 7 digits before the point, and `cast` refuses 123456789. Both readers look at the digits as
# they are written, before they add the two zeros of the scale. Parquet keeps 9 digits in 4 bytes, and the rest is lost.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check pyarrow==26.0.1
"$folder/venv/bin/python" - "$folder" <<'PYTHON'
import io
import sys

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.json as json
import pyarrow.parquet as pq

file = f"{sys.argv[1]}/amounts.parquet"
amount = pa.decimal128(9, 2)
options = csv.ConvertOptions(column_types={"amount": amount})
schema = json.ParseOptions(explicit_schema=pa.schema([("amount", amount)]))
tables = {
    "CSV": csv.read_csv(io.BytesIO(b"amount\n123456789\n"), convert_options=options),
    "JSON": json.read_json(io.BytesIO(b'{"amount": 123456789}\n'), parse_options=schema),
}
for reader, table in tables.items():
    pq.write_table(table, file)
    seen = [str(each["amount"][0]) for each in (table, pq.read_table(file))]
    print(f"123456789 from {reader}: {seen[0]}, and read back from Parquet: {seen[1]}")
    assert seen == ["123456789.00", "-5392229.88"], "the behaviour has changed"

try:
    pa.array(["123456789"]).cast(amount)
    raise SystemExit("the cast takes it now")
except pa.ArrowInvalid as error:
    print("by a cast:", error)
try:
    csv.read_csv(io.BytesIO(b"amount\n123456789.00\n"), convert_options=options)
    raise SystemExit("123456789.00 is taken now")
except pa.ArrowInvalid as error:
    print(error)
PYTHON
