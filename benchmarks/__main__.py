"""``python -m benchmarks [NAME] [options]``: run one benchmark, or list them."""

from __future__ import annotations

import importlib
import sys

NAMES = (
    "files_to_iceberg",
    "kafka_to_iceberg",
    "commit_cost",
    "catalog_load",
    "partitioned_write",
    "presets",
    "chaos",
    "upsert",
    "upsert_strategy",
)


def main(arguments: list[str]) -> None:
    """Run what is asked for."""
    if arguments and arguments[0] in NAMES:
        importlib.import_module(f"benchmarks.{arguments[0]}").run(arguments[1:])
        return
    for name in NAMES:
        print(f"{name}: {importlib.import_module(f'benchmarks.{name}').SUMMARY}")
    if arguments and arguments[0] not in ("-h", "--help"):
        sys.exit(f"no benchmark {arguments[0]!r}")


if __name__ == "__main__":
    main(sys.argv[1:])
