#!/usr/bin/env bash
# pyarrow 26.0.1 on Linux: strptime makes another day of one that is in no calendar, and takes a year of two digits.
#
# By "%Y-%m-%d", 30 February 2026 is 2 March and "26-01-05" is in the year 26; second 61 is second 1 of the next minute.
# Python's own strptime refuses all three, and so does pyarrow's cast of text to a timestamp. The timestamp_parsers of a
# CSV file behave like strptime.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check pyarrow==26.0.1
"$folder/venv/bin/python" - <<'PYTHON'
import io
from collections.abc import Callable
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv

kind = pa.timestamp("us")
cases = {
    ("2026-02-30", "%Y-%m-%d"): datetime(2026, 3, 2),
    ("2026-04-31", "%Y-%m-%d"): datetime(2026, 5, 1),
    ("26-01-05", "%Y-%m-%d"): datetime(26, 1, 5),
    ("2026-01-05 10:00:61", "%Y-%m-%d %H:%M:%S"): datetime(2026, 1, 5, 10, 1, 1),
}


def raises(function: Callable[[], object]) -> bool:
    try:
        function()
    except (ValueError, pa.ArrowInvalid):
        return True
    return False


for (text, pattern), expected in cases.items():
    parsed = pc.strptime([text], pattern, "us", error_is_null=True).to_pylist()[0]
    options = csv.ConvertOptions(column_types={"at": kind}, timestamp_parsers=[pattern])
    from_csv = csv.read_csv(io.BytesIO(f"at\n{text}\n".encode()), convert_options=options)["at"].to_pylist()[0]
    print(f"{text} by {pattern}: {parsed}")
    assert parsed == from_csv == expected, "the behaviour has changed"
    assert raises(lambda: datetime.strptime(text, pattern)), "Python's strptime takes it, too"
    assert raises(lambda: pa.array([text]).cast(kind)), "the cast takes it, too"
PYTHON
