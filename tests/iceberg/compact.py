"""Compacts a table, in a process that a test kills."""

from __future__ import annotations

import sys

from volley.iceberg import IcebergStorage, IcebergTable, TableRef

if __name__ == "__main__":
    folder, *size = sys.argv[1:]
    table = IcebergTable(TableRef("db", "t", IcebergStorage.Local(folder)))
    table.compact(max_commits=3, group_size=int(size[0]), sort_by="id") if size else table.compact()
