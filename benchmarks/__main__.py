"""``python -m benchmarks [NAME] [options]``: run one benchmark, or list them; ``report`` makes the page of results."""

from __future__ import annotations

import importlib
import sys

_SIZES = {"10k": 10_000, "100k": 100_000, "1m": 1_000_000, "10m": 10_000_000}

BENCHMARKS: dict[str, tuple[str, ...]] = {
    "files_to_iceberg": ("files_to_iceberg",),
    "general_path": ("files_to_iceberg", "--title=general_path", "--peers", "general", "spark_reads", "runtime"),
    "kafka_to_iceberg": ("kafka_to_iceberg",),
    **{f"write_{size}": ("write", f"--title=write_{size}", f"--rows={rows}") for size, rows in _SIZES.items()},
    **{f"read_{size}": ("read", f"--title=read_{size}", f"--rows={rows}") for size, rows in _SIZES.items()},
    "epoch_latency": ("epoch_latency",),
    "empty_epoch": ("empty_epoch",),
    "start_up": ("start_up",),
    "memory": ("memory",),
    "expressions": ("expressions",),
    "compressions": ("compressions",),
    "rolling": ("rolling",),
    "partitioned_write": ("partitioned_write",),
    "partition_pruning": ("partition_pruning",),
    "snapshot_creation": ("snapshot_creation",),
    "commit_cost": ("commit_cost",),
    "catalog_load": ("catalog_load",),
    "upsert": ("upsert",),
    "upsert_strategy": ("upsert_strategy",),
    "presets": ("presets",),
    "report": ("results",),
}
"""Each name's module, and the options that it stands for."""


def main(arguments: list[str]) -> None:
    """Run what is asked for."""
    if arguments and arguments[0] in BENCHMARKS:
        module, *options = BENCHMARKS[arguments[0]]
        importlib.import_module(f"benchmarks.{module}").run([*options, *arguments[1:]])
        return
    for name, (module, *_) in BENCHMARKS.items():
        print(f"{name}: {importlib.import_module(f'benchmarks.{module}').SUMMARY}")
    if arguments and arguments[0] not in ("-h", "--help"):
        sys.exit(f"no benchmark {arguments[0]!r}")


if __name__ == "__main__":
    main(sys.argv[1:])
