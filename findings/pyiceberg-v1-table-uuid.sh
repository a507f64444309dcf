#!/usr/bin/env bash
# pyiceberg 0.12.0: a table of format version 1 without a table-uuid can be read, but neither refreshed nor written.
#
# table-uuid is optional in version 1. Where it is missing, pyiceberg makes up another random one each time it reads the
# metadata file, and then refuses its own refresh and commits, because the table is not the same any more.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "pyiceberg[sql-sqlite]==0.12.0" pyarrow==26.0.1
"$folder/venv/bin/python" - "$folder" <<'PYTHON'
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException

folder = sys.argv[1]
rows = pa.table({"id": pa.array([1], pa.int64())})
catalog = SqlCatalog("local", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/lake")
catalog.create_namespace("db")
table = catalog.create_table("db.t", rows.schema, properties={"format-version": "1"})
table.append(rows)
metadata = json.loads(table.io.new_input(table.metadata_location).open().read())
assert metadata["format-version"] == 1
del metadata["table-uuid"]
old_writer = Path(folder, "00000-of-an-old-writer.metadata.json")
old_writer.write_text(json.dumps(metadata))
catalog.register_table("db.old", f"file://{old_writer}")


def refusal(kind: type[Exception], change: Callable[[], object]) -> str:
    try:
        change()
    except kind as error:
        return str(error)
    return "no error"


table = catalog.load_table("db.old")
uuids = {catalog.load_table("db.old").metadata.table_uuid for _ in range(3)}
refresh = refusal(ValueError, table.refresh)
commit = refusal(CommitFailedException, lambda: table.transaction().set_properties(a="b").commit_transaction())
print("rows:", table.scan().to_arrow().num_rows)
print("uuids in three loads:", len(uuids))
print("refresh:", refresh)
print("commit:", commit)
assert len(uuids) == 3, "the behaviour has changed"
assert refresh.startswith("Table UUID does not match"), "the behaviour has changed"
assert commit.startswith("Table UUID does not match"), "the behaviour has changed"
PYTHON
