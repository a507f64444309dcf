#!/usr/bin/env bash
# pyiceberg 0.12.0: geometry and geography types are refused as the specification writes them.
#
# Appendix C of Iceberg's specification gives "geometry(srid:4326)" and "geography(srid:4326, spherical)" as the types'
# JSON, and Iceberg's Java library writes them so. pyiceberg reads and writes parameters in quotes only:
# geometry('srid:4326').
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check pyiceberg==0.12.0
"$folder/venv/bin/python" - <<'PYTHON'
from pyiceberg.exceptions import ValidationError
from pyiceberg.schema import Schema
from pyiceberg.types import GeographyType, GeometryType


def read(kind: str) -> object:
    field = {"id": 1, "name": "place", "type": kind, "required": False}
    try:
        return Schema.model_validate({"type": "struct", "schema-id": 0, "fields": [field]}).fields[0].field_type
    except ValidationError as error:
        return f"ValidationError: {error}"


refused = "ValidationError: Could not parse {} into a {}"
expected = {
    "geometry": GeometryType(),
    "geometry(srid:4326)": refused.format("geometry(srid:4326)", "GeometryType"),
    "geometry('srid:4326')": GeometryType("srid:4326"),
    "geography(srid:4326, spherical)": refused.format("geography(srid:4326, spherical)", "GeographyType"),
    "geography('srid:4326', 'spherical')": GeographyType("srid:4326", "spherical"),
}
seen = {kind: read(kind) for kind in expected}
for kind, result in seen.items():
    print(f"{kind}: {result!r}")
written = GeometryType("srid:4326").model_dump_json()
print("written:", written)
assert seen == expected, "the behaviour has changed"
assert written == "\"geometry('srid:4326')\"", "the behaviour has changed"
PYTHON
