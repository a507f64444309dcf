"""``python -m examples.nexmark q5 [FOLDER]``: 100,000 events through a query of Nexmark, into an Iceberg table."""

from __future__ import annotations

import sys
from pathlib import Path

from examples.nexmark import QUERIES, sources_of
from examples.nexmark.events import write
from volley import Environment, IcebergSinkConfig, IcebergSource, IcebergSourceConfig, IcebergStorage


def main(name: str, folder: Path) -> int:
    """Write events, run the query over them, show the first rows of its table; return how many rows it has."""
    query, environment = QUERIES[name], Environment(checkpoint_dir=folder / "checkpoints")
    if not (folder / "events").exists():
        write(folder / "events", 100_000, files=4)
    lake = IcebergStorage.Local(str(folder / "lake"))
    config = IcebergSinkConfig(namespace="nexmark", table=name, storage=lake)
    query.rows(environment, sources_of(folder / "events")).to_sink(query.sink(config)).execute(name)
    print(query.text)
    rows = environment.from_source(IcebergSource(IcebergSourceConfig(config.ref)))
    rows.show()
    return len(rows.to_arrow())


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2] if len(sys.argv) > 2 else ".volley/nexmark"))
