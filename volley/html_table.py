"""Tables in HTML, for notebooks."""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import Any

__all__ = ["html_table"]


def html_table(figures: Mapping[str, Any]) -> str:
    """Return a table with a line for each figure that is known.

    Example:
        >>> html_table({"rows": 1200, "error": None})
        '<table><tr><th>rows</th><td>1,200</td></tr></table>'
    """
    known = {name: value for name, value in figures.items() if value is not None}
    lines = [f"<tr><th>{html.escape(name)}</th><td>{_cell(value)}</td></tr>" for name, value in known.items()]
    return f"<table>{''.join(lines)}</table>"


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, float):
        return f"{value:,.1f}"
    return f"{value:,}" if isinstance(value, int) else html.escape(str(value))
