"""Reports of commits and scans, as REST catalogs take them: their numbers, no values of rows."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from pyiceberg.expressions import BooleanExpression
from pyiceberg.table.snapshots import Snapshot

__all__ = ["REPORTS", "REPORTS_ENABLED", "commit_report", "scan_report"]

REPORTS = "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}/metrics"
"""The request that takes reports."""
REPORTS_ENABLED = "rest-metrics-reporting-enabled"
"""The property of a catalog by which Iceberg's clients are told whether to send reports."""

_ENGINE = {"engine-name": "volley", "engine-version": version("volley-stream")}
_COUNTS = (
    *("added-data-files", "total-data-files", "added-delete-files", "removed-delete-files", "total-delete-files"),
    *("added-equality-delete-files", "removed-equality-delete-files", "added-dvs", "removed-dvs"),
    *("added-records", "total-records", "added-equality-deletes", "removed-equality-deletes"),
    "total-equality-deletes",
)
# What summaries of snapshots and reports call by two names.
_RENAMED = {
    "deleted-data-files": "removed-data-files",
    "added-position-delete-files": "added-positional-delete-files",
    "removed-position-delete-files": "removed-positional-delete-files",
    "deleted-records": "removed-records",
    "added-position-deletes": "added-positional-deletes",
    "removed-position-deletes": "removed-positional-deletes",
    "total-position-deletes": "total-positional-deletes",
}
_SIZES = {
    "added-files-size": "added-files-size-bytes",
    "removed-files-size": "removed-files-size-bytes",
    "total-files-size": "total-files-size-bytes",
}


def commit_report(name: str, snapshot: Snapshot, seconds: float) -> dict[str, Any]:
    """Return the report of a commit.

    Args:
        seconds: How long the catalog took.
    """
    summary = snapshot.summary
    numbers = summary.additional_properties if summary is not None else {}
    counts = {**{known: known for known in _COUNTS}, **_RENAMED}
    metrics = {
        "total-duration": _timer(seconds),
        **{to: _counter(numbers[known]) for known, to in counts.items() if known in numbers},
        **{to: _counter(numbers[known], "bytes") for known, to in _SIZES.items() if known in numbers},
    }
    return {
        "report-type": "commit-report",
        "table-name": name,
        "snapshot-id": snapshot.snapshot_id,
        "sequence-number": snapshot.sequence_number or 0,
        "operation": "append" if summary is None else summary.operation.value,
        "metrics": metrics,
        "metadata": _ENGINE,
    }


def scan_report(
    name: str,
    snapshot_id: int,
    row_filter: BooleanExpression,
    schema_id: int,
    fields: Mapping[int, str],
    counts: Mapping[str, int],
    sizes: Mapping[str, int],
    seconds: float,
) -> dict[str, Any]:
    """Return the report of a scan.

    Args:
        row_filter: Its values are left out.
        fields: The names of the columns that are read, by field id.
        counts: Numbers of files.
        sizes: Numbers of bytes.
        seconds: How long the planning took.
    """
    metrics = {
        "total-planning-duration": _timer(seconds),
        **{counted: _counter(number) for counted, number in counts.items()},
        **{counted: _counter(number, "bytes") for counted, number in sizes.items()},
    }
    return {
        "report-type": "scan-report",
        "table-name": name,
        "snapshot-id": snapshot_id,
        "filter": _without_values(row_filter.model_dump(mode="json", by_alias=True)),
        "schema-id": schema_id,
        "projected-field-ids": [*fields],
        "projected-field-names": [*fields.values()],
        "metrics": metrics,
        "metadata": _ENGINE,
    }


def _counter(number: str | int, unit: str = "count") -> dict[str, Any]:
    return {"unit": unit, "value": int(number)}


def _timer(seconds: float) -> dict[str, Any]:
    return {"count": 1, "time-unit": "nanoseconds", "total-duration": round(seconds * 1e9)}


def _without_values(expression: Any) -> Any:
    """Return a filter as JSON with marks in place of the values, which may be secrets of rows."""
    if not isinstance(expression, Mapping):
        return expression
    hidden: dict[str, Any] = {"value": "(value)", "values": ["(value)"]}
    return {key: hidden[key] if key in hidden else _without_values(part) for key, part in expression.items()}
