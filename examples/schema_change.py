"""A schema that changes: a new column and a renamed one, in the same commit as the first rows that have them.

Run it with ``python -m examples.schema_change [FOLDER]``.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from volley import Environment, IcebergSink, IcebergSinkConfig, IcebergStorage, IcebergTable, MemorySource


def main(folder: Path) -> list[dict[str, Any]]:
    """Run the job as it was, then as it is now; return the rows of the table."""
    users = IcebergSinkConfig(namespace="db", table="users", storage=IcebergStorage.Local(str(folder / "lake")))
    environment = Environment(checkpoint_dir=str(folder / "checkpoints"))

    before = MemorySource([{"id": 1, "name": "Ada"}], name="before")
    environment.from_source(before).to_sink(IcebergSink(users)).execute("users-1")

    after = MemorySource([{"id": 2, "full_name": "Bob Ross", "email": "bob@example.com"}], name="after")
    changed = users.with_schema_evolution("full", renames={"name": "full_name"})
    environment.from_source(after).to_sink(IcebergSink(changed)).execute("users-2")

    rows = sorted(IcebergTable(users).to_arrow().to_pylist(), key=lambda row: row["id"])
    for row in rows:
        print(row)
    return rows


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else ".volley/schema"))
