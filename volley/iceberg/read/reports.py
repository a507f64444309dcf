"""Plans scans that the table's catalog gets reports of, if it asks for them."""

from __future__ import annotations

import time
from collections.abc import Iterable
from functools import partial

from pyiceberg.expressions import BooleanExpression
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import NestedField

from volley.iceberg.pyiceberg_private.guarded import GuardedCatalog
from volley.iceberg.pyiceberg_private.reports import scan_report
from volley.iceberg.read.asked import plan_scan
from volley.iceberg.read.planning import Plan
from volley.iceberg.table import TableRef

__all__ = ["reported_plan"]


def reported_plan(
    ref: TableRef,
    table: Table,
    snapshot: Snapshot,
    row_filter: BooleanExpression,
    schema: Schema,
    added_only: bool,
    fields: Iterable[NestedField],
) -> Plan:
    """Return the plan of a scan, as `plan_scan` does, and report it.

    Args:
        fields: The columns that are read.
    """
    read = tuple(fields)
    began = time.perf_counter()
    planned = plan_scan(ref, table, snapshot, row_filter, schema, added_only, read)
    seconds = time.perf_counter() - began
    catalog = table.catalog
    if isinstance(catalog, GuardedCatalog) and catalog.takes_reports:
        names = {field.field_id: field.name for field in read}
        told = snapshot.snapshot_id, row_filter, schema.schema_id, names, *_numbers(planned), seconds
        make = partial(scan_report, ".".join(table.name()), *told)
        catalog.report(table.name(), make, (snapshot.snapshot_id, row_filter, added_only, frozenset(names)))
    return planned


def _numbers(planned: Plan) -> tuple[dict[str, int], dict[str, int]]:
    """Return the numbers of files, and of bytes."""
    deletes = {delete.path: delete for file in planned.files for delete in file.deletes}
    counts = {
        "result-data-files": len(planned.files),
        "result-delete-files": len(deletes),
        "skipped-data-files": planned.skipped_by_partition + planned.skipped_by_statistics,
    }
    sizes = {
        "total-file-size-in-bytes": sum(file.file.size for file in planned.files),
        "total-delete-file-size-in-bytes": sum(delete.size for delete in deletes.values()),
    }
    return counts, sizes
