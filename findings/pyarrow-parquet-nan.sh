#!/usr/bin/env bash
# pyarrow 26.0.1: a filter on a Parquet file loses NaN where all other values of the row group are equal.
#
# A Parquet file's least and greatest value don't count NaN. pyarrow still drops a row group by them: one of 1.0 and NaN
# is said to hold nothing but 1.0, so `x != 1` and even `is_nan(x)` find no row. On the table in memory, both find it.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check pyarrow==26.0.1
"$folder/venv/bin/python" - "$folder" <<'PYTHON'
import sys

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

file = f"{sys.argv[1]}/readings.parquet"
x = pc.field("x")
filters = {"x != 1": x != 1.0, "not (x <= 1)": ~(x <= 1.0), "is_nan(x)": pc.is_nan(x)}


def counts(values: list[float]) -> dict[str, tuple[int, int]]:
    table = pa.table({"x": values})
    pq.write_table(table, file)
    return {
        text: (table.filter(condition).num_rows, pq.read_table(file, filters=condition).num_rows)
        for text, condition in filters.items()
    }


one, two = counts([1.0, float("nan")]), counts([1.0, float("nan"), 0.5])
for values, seen in (("1.0, NaN", one), ("1.0, NaN, 0.5", two)):
    for text, (memory, read) in seen.items():
        print(f"{values}: {text} finds {memory} rows in memory, {read} in the file")
assert one == {"x != 1": (1, 0), "not (x <= 1)": (1, 0), "is_nan(x)": (1, 0)}, "the behaviour has changed"
assert two == {"x != 1": (2, 2), "not (x <= 1)": (1, 0), "is_nan(x)": (1, 1)}, "the behaviour has changed"
PYTHON
