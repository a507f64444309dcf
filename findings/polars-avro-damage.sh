#!/usr/bin/env bash
# polars 2.1.0: read_avro returns values for bytes that are damaged.
#
# By the specification a union's number is that of one of its branches, a boolean is a byte of 0 or 1, and an int has 32
# bits. fastavro 1.13.1 fails on the union and keeps all bits of the number. polars takes any number but that of null for
# the other branch, cuts the number, and ignores what is left of a block behind its last record.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check polars==2.1.0
"$folder/venv/bin/python" - <<'PYTHON'
import io
import json

import polars


def text(data: bytes) -> bytes:
    return bytes([2 * len(data)]) + data


def read(kind: object, record: bytes) -> object:
    """Read a file of one record with one field, of which the bytes are given."""
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": kind}]}
    value = json.dumps(schema).encode()
    size = len(value) * 2
    name = bytes([size & 0x7F | 0x80, size >> 7]) + value
    mark = b"0123456789abcdef"
    header = b"Obj\x01\x02" + text(b"avro.schema") + name + b"\x00" + mark
    return polars.read_avro(io.BytesIO(header + b"\x02" + text(record) + mark)).to_dicts()[0]["a"]


seen = {
    "branch 3 of two": read(["null", "string"], b"\x06" + text(b"x")),
    "a boolean of 7": read("boolean", b"\x07"),
    "an int of 2 ** 33": read("int", b"\x80\x80\x80\x80\x40"),
    "5, and a byte more": read("int", b"\x0a\x0c"),
}
for what, value in seen.items():
    print(f"polars {polars.__version__}: {what} is read as {value!r}")
assert [*seen.values()] == ["x", False, 0, 5], "the behaviour has changed"
PYTHON
