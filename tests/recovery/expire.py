"""Expires all snapshots but the last of each branch, in a process that a test kills."""

from __future__ import annotations

import sys

from volley.iceberg import IcebergStorage, SnapshotManager, TableRef

if __name__ == "__main__":
    SnapshotManager(TableRef("db", "events", IcebergStorage.Local(sys.argv[1]))).expire_snapshots("0s")
