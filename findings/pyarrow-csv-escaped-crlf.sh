#!/usr/bin/env bash
# pyarrow 26.0.1: with an escape character, an escaped CRLF in a CSV value ends the row after the CR.
#
# MySQL's SELECT INTO OUTFILE and PostgreSQL's COPY escape line ends inside of values. An escape before LF keeps it in the
# value. Before CRLF it keeps the CR alone: the LF ends the row, and what follows is another row, without an error where it
# has as many columns.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check pyarrow==26.0.1
"$folder/venv/bin/python" - <<'PYTHON'
import io

import pyarrow.csv as csv

parsing = csv.ParseOptions(escape_char="\\", newlines_in_values=True)


def read(line_end: str) -> list[str]:
    text = f"note\none\\{line_end}two\nthree\n"
    return csv.read_csv(io.BytesIO(text.encode()), parse_options=parsing)["note"].to_pylist()


seen = {name: read(end) for name, end in (("LF", "\n"), ("CRLF", "\r\n"))}
for name, rows in seen.items():
    print(f"escaped {name}: {rows}")
assert seen == {"LF": ["one\ntwo", "three"], "CRLF": ["one\r", "two", "three"]}, "the behaviour has changed"
PYTHON
