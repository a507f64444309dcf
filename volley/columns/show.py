"""Prints rows for people."""

from __future__ import annotations

import html

import pyarrow as pa
from rich import box
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from volley.columns.readable import readable_rows
from volley.columns.window_plot import window_plot
from volley.types.arrow import is_number

__all__ = ["html_rows", "show"]


def show(rows: pa.Table) -> None:
    """Print rows as a table, numbers to the right, as wide as the terminal."""
    columns = [
        # Where the terminal is too narrow, texts and times are cut first.
        Column(f"{field.name}\n{field.type}", justify="right", no_wrap=True, overflow="ellipsis")
        if is_number(field.type)
        else Column(f"{field.name}\n{field.type}", overflow="ellipsis")
        for field in rows.schema
    ]
    table = Table(*columns, box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for row in readable_rows(rows):
        table.add_row(*(Text("null", style="dim") if value is None else Text(str(value)) for value in row.values()))
    Console(markup=False).print(table)


def html_rows(rows: pa.Table, most: int, and_more: bool = False) -> str:
    """Return the first rows as a table for notebooks, with the number of all, and a plot if they are of windows.

    Args:
        rows: The rows.
        most: The number of rows that are shown.
        and_more: True if there are more rows than these.
    """
    heads = "".join(f"<th>{html.escape(field.name)}<br>{html.escape(str(field.type))}</th>" for field in rows.schema)
    lines = [
        "<tr>" + "".join(f"<td>{html.escape(str(value))}</td>" for value in row.values()) + "</tr>"
        for row in readable_rows(rows.slice(0, most))
    ]
    number = f"more than {rows.num_rows:,} rows" if and_more else f"{rows.num_rows:,} rows"
    return f"<table><tr>{heads}</tr>{''.join(lines)}</table>{number}{window_plot(rows)}"
