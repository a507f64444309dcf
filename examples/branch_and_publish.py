"""Write, audit, publish: rows go to a branch, a check looks at them, and only then do readers of the table see them.

Run it with ``python -m examples.branch_and_publish [FOLDER]``.
"""

from __future__ import annotations

import sys
from pathlib import Path

from volley import (
    Environment,
    IcebergSink,
    IcebergSinkConfig,
    IcebergStorage,
    IcebergTable,
    MemorySource,
    publish_branch,
)

ROWS = [{"id": 1, "price": 2.5}, {"id": 2, "price": 4.0}]


def main(folder: Path) -> tuple[int, int]:
    """Write to the branch, check it, publish it; return the rows that readers see before and after."""
    prices = IcebergSinkConfig(namespace="shop", table="prices", storage=IcebergStorage.Local(str(folder / "lake")))
    audit = prices.with_branch("audit")
    stream = Environment(checkpoint_dir=str(folder / "checkpoints")).from_source(MemorySource(ROWS))
    stream.to_sink(IcebergSink(audit)).execute("prices")

    table = IcebergTable(prices)
    before = table.to_arrow().num_rows
    bad = table.at("audit").filter("price is null or price <= 0").to_arrow().num_rows
    if bad:
        sys.exit(f"{bad} prices are wrong: the branch is not published")
    publish_branch(audit)
    after = table.to_arrow().num_rows
    print(f"readers saw {before} rows, and see {after} now")
    return before, after


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else ".volley/branch"))
