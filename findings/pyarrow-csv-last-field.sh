#!/usr/bin/env bash
# pyarrow 26.0.1: an empty last CSV field is null or an empty text, depending on the end of the file.
#
# With strings_can_be_null and without quoted_strings_can_be_null, an empty field without quotes is null, and "" is an
# empty text. In a last line without a line end, an empty field without quotes behind a quoted one is an empty text.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check pyarrow==26.0.1
"$folder/venv/bin/python" - <<'PYTHON'
import io

import pyarrow.csv as csv

options = csv.ConvertOptions(strings_can_be_null=True, quoted_strings_can_be_null=False)


def last_field(text: bytes) -> object:
    return csv.read_csv(io.BytesIO(text), convert_options=options)["b"].to_pylist()[-1]


seen = {
    "quoted before, with line end": last_field(b'a,b\n"x",\n'),
    "quoted before, without": last_field(b'a,b\n"x",'),
    "not quoted before, without": last_field(b"a,b\nx,"),
}
print(seen)
assert seen == {
    "quoted before, with line end": None,
    "quoted before, without": "",
    "not quoted before, without": None,
}, "the behaviour has changed"
PYTHON
