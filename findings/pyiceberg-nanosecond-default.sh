#!/usr/bin/env bash
# pyiceberg 0.12.0: a default of a column with nanoseconds makes the whole schema unreadable.
#
# Format version 3 has timestamp_ns and timestamptz_ns, and defaults, which the metadata holds as text
# ("2026-01-05T10:00:00.123456789"). pyiceberg reads both types, and the defaults of timestamps of microseconds. With a
# default on one of nanoseconds, reading the schema is a TypeError, though the table has other columns.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check pyiceberg==0.12.0
"$folder/venv/bin/python" - <<'PYTHON'
from pyiceberg.schema import Schema


def read(kind: str, **defaults: str) -> str:
    field = {"id": 1, "name": "at", "type": kind, "required": False, **defaults}
    try:
        return str(Schema.model_validate({"type": "struct", "schema-id": 0, "fields": [field]}))
    except TypeError as error:
        return f"TypeError: {error}"


micros, nanos = "2026-01-05T10:00:00.123456", "2026-01-05T10:00:00.123456789"
assert "1: at: optional timestamp" in read("timestamp", **{"initial-default": micros})
for kind, value in (("timestamp_ns", nanos), ("timestamptz_ns", f"{nanos}+00:00")):
    assert f"1: at: optional {kind}" in read(kind)
    for default in ("initial-default", "write-default"):
        seen = read(kind, **{default: value})
        print(f"{kind} with {default}: {seen}")
        assert seen == f"TypeError: Cannot deserialize bytes, type {kind} not supported: {value}", seen
PYTHON
