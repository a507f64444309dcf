#!/usr/bin/env bash
# pyiceberg 0.12.0: a catalog's plan of a scan can't be read if a file's partition has a null.
#
# Iceberg's REST protocol gives a file's partition as a list of values; a file whose rows have no value in a partition
# column has null there, and Iceberg's own handler (RESTCatalogAdapter on core 1.12.0) answers so, as below. pyiceberg's
# model of the answer has no null among the values: `scan()` of such a table fails with scan-planning-mode=server.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "pyiceberg==0.12.0"
"$folder/venv/bin/python" - <<'PYTHON'
from pydantic import ValidationError
from pyiceberg.catalog.rest.scan_planning import PlanCompleted


def plan(value: str | None) -> dict[str, object]:
    file = {
        "spec-id": 0,
        "content": "data",
        "file-path": "s3://lake/db/t/data/0.parquet",
        "file-format": "parquet",
        "partition": [value],
        "file-size-in-bytes": 2130,
        "record-count": 1,
    }
    return {"status": "completed", "file-scan-tasks": [{"data-file": file, "residual-filter": True}]}


print("a value:", PlanCompleted.model_validate(plan("x")).file_scan_tasks[0].data_file.partition)
try:
    PlanCompleted.model_validate(plan(None))
except ValidationError as error:
    print("null:", error.error_count(), "errors, the first:", error.errors()[0]["loc"], error.errors()[0]["msg"])
else:
    raise AssertionError("the behaviour has changed")
PYTHON
