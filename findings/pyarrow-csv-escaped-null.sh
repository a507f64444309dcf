#!/usr/bin/env bash
# pyarrow 26.0.1: with a backslash as the escape character, \N can't be read as null.
#
# MySQL's and PostgreSQL's text files write null as \N and escape with a backslash. pyarrow removes the escape before it
# compares with null_values, so only "N" matches what was \N; then a text N is null as well.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check pyarrow==26.0.1
"$folder/venv/bin/python" - <<'PYTHON'
import io

import pyarrow.csv as csv

dump = b"1\t\\N\n2\tN\n3\ta\\\tb\n"


def read(null: str, escape: str | bool) -> list[str | None]:
    return csv.read_csv(
        io.BytesIO(dump if escape else dump.replace(b"\\\t", b"")),
        read_options=csv.ReadOptions(column_names=["id", "name"]),
        parse_options=csv.ParseOptions(delimiter="\t", quote_char=False, escape_char=escape),
        convert_options=csv.ConvertOptions(null_values=[null], strings_can_be_null=True),
    )["name"].to_pylist()


seen = {
    r"null \N, no escape": read(r"\N", False),
    r"null \N, escape \ ": read(r"\N", "\\"),
    r"null N, escape \ ": read("N", "\\"),
}
for options, names in seen.items():
    print(f"{options}: {names}")
assert list(seen.values()) == [[None, "N", "ab"], ["N", "N", "a\tb"], [None, None, "a\tb"]], "the behaviour has changed"
PYTHON
