"""What a notebook shows of a table: its figures, columns, first rows and last snapshots."""

from __future__ import annotations

from collections.abc import Callable
from html import escape

import pyarrow as pa
from pyiceberg.table import Table

from volley.columns.show import html_rows
from volley.errors import VolleyError
from volley.html_table import html_table
from volley.iceberg.maintain.refs import listed
from volley.iceberg.table import TableRef

__all__ = ["rows_html", "table_html"]

_MOST_ROWS = 10_000
_SNAPSHOTS = 5


def table_html(ref: TableRef) -> str:
    """Return figures of a table's branch, its columns with the first rows, and its last snapshots."""
    try:
        table = ref.load()
    except VolleyError as error:
        return _why(error)
    snapshots = html_table({"last snapshots": listed(table.metadata)[-_SNAPSHOTS:]})
    return f"{_figures(table, ref)}{rows_html(ref.to_arrow, 5)}{snapshots}"


def rows_html(read: Callable[[int], pa.Table], most: int = 10) -> str:
    """Return the first rows that `read` returns, and a plot if they are of windows; why, if they can't be read."""
    try:
        rows = read(_MOST_ROWS + 1)
    except VolleyError as error:
        return _why(error)
    return html_rows(rows.slice(0, _MOST_ROWS), most, and_more=rows.num_rows > _MOST_ROWS)


def _figures(table: Table, ref: TableRef) -> str:
    head = table.metadata.snapshot_by_name(ref.branch)
    summary = head.summary if head else None
    totals = {name: summary and summary.get(f"total-{name}") for name in ("records", "data-files", "delete-files")}
    figures = {name.replace("-", " "): int(text) for name, text in totals.items() if text and text.isdecimal()}
    spec = ", ".join(f"{field.name} ({field.transform})" for field in table.spec().fields)
    more = {"snapshots": len(table.metadata.snapshots), "partitions": spec or None, "location": table.location()}
    return html_table({**figures, **more, "format version": str(table.format_version)})


def _why(error: VolleyError) -> str:
    return f"<pre>{escape(str(error))}</pre>"
