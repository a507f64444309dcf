"""Tables in HTML, for notebooks."""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields
from typing import Any

__all__ = ["changed_settings", "html_table", "settings_html", "text_html", "titled"]


def html_table(figures: Mapping[str, Any]) -> str:
    """Return a table with a line for each figure that is known.

    Example:
        >>> html_table({"rows": 1200, "error": None})
        '<table><tr><th>rows</th><td>1,200</td></tr></table>'
    """
    known = {name: value for name, value in figures.items() if value is not None}
    lines = [f"<tr><th>{html.escape(name)}</th><td>{_cell(value)}</td></tr>" for name, value in known.items()]
    return f"<table>{''.join(lines)}</table>"


def settings_html(value: Any) -> str:
    """Return a dataclass without secrets as a table: the fields that differ from their defaults."""
    return titled(value, changed_settings(value))


def text_html(value: Any) -> str:
    """Return what `print` shows of a value, its lines kept.

    Example:
        >>> text_html("a < b")
        '<pre>a &lt; b</pre>'
    """
    return f"<pre>{html.escape(str(value))}</pre>"


def titled(value: Any, settings: Mapping[str, Any]) -> str:
    """Return settings of a value as a table below the name of its class."""
    # As they were given: not rounded, as figures are.
    exact = {name: each if hasattr(each, "_repr_html_") else str(each) for name, each in settings.items()}
    return f"<b>{type(value).__qualname__}</b>{html_table(exact)}"


def changed_settings(value: Any) -> dict[str, Any]:
    """Return the fields of a dataclass that differ from their defaults and are shown in its repr."""
    shown = {field.name: field for field in fields(value) if field.repr}
    return {name: content for name, field in shown.items() if (content := getattr(value, name)) != _default(field)}


def _default(field: Field[Any]) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()


def _cell(value: Any) -> str:
    if hasattr(value, "_repr_html_"):
        return str(value._repr_html_())
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, float):
        return f"{value:,.1f}"
    return f"{value:,}" if isinstance(value, int) else html.escape(str(value))
