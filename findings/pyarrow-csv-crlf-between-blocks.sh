#!/usr/bin/env bash
# pyarrow 26.0.1: a CRLF in a quoted CSV value loses its LF where a block ends between the two.
#
# With newlines_in_values, blocks are cut anywhere. Behind a block that ends with CR, an LF at the beginning of the next one
# is dropped as the rest of a line end, also where a quote is open: the value depends on the block size.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check pyarrow==26.0.1
"$folder/venv/bin/python" - <<'PYTHON'
import io

import pyarrow.csv as csv

TEXT = b'note,day\n"first line\r\nsecond line",monday\nthird,tuesday\n'


def read(block_size: int) -> list[str]:
    reading = csv.ReadOptions(block_size=block_size)
    parsing = csv.ParseOptions(newlines_in_values=True)
    return csv.read_csv(io.BytesIO(TEXT), read_options=reading, parse_options=parsing)["note"].to_pylist()


# The block ends with the CR.
short = TEXT.index(b"\r") + 1
seen = {size: read(size) for size in (1 << 20, short + 1, short)}
for size, notes in seen.items():
    print(f"blocks of {size} bytes: {notes}")
whole = ["first line\r\nsecond line", "third"]
assert list(seen.values()) == [whole, whole, ["first line\rsecond line", "third"]], "the behaviour has changed"
PYTHON
