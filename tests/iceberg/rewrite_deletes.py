"""Rewrites the delete files of a table, in a process that a test kills."""

from __future__ import annotations

import sys

from volley.iceberg import IcebergStorage, IcebergTable, TableRef

if __name__ == "__main__":
    table = IcebergTable(TableRef("db", "t", IcebergStorage.Local(sys.argv[1])))
    table.rewrite_position_deletes(convert_equality=True)
