"""Tables and small plots in HTML, for notebooks: without scripts, and in the notebook's own colours."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, fields
from typing import Any

__all__ = ["changed_settings", "html_plot", "html_table", "settings_html", "text_html", "titled"]

# They can be told from each other, and from white and black.
_COLOURS = ("#4c86c6", "#d9782d", "#3f9c67", "#c25a8e", "#8a74d6", "#8b8b3a")
_WIDTH, _HEIGHT, _TOP, _BOTTOM = 560, 130, 24, 18


def html_table(figures: Mapping[str, Any]) -> str:
    """Return a table with a line for each figure that is known.

    Example:
        >>> html_table({"rows": 1200, "error": None})
        '<table><tr><th>rows</th><td>1,200</td></tr></table>'
    """
    known = {name: value for name, value in figures.items() if value is not None}
    lines = [f"<tr><th>{html.escape(name)}</th><td>{_cell(value)}</td></tr>" for name, value in known.items()]
    return f"<table>{''.join(lines)}</table>"


def html_plot(title: str, lines: Mapping[str, Sequence[tuple[float, float]]], ends: tuple[str, str]) -> str:
    """Return a plot of lines, as a picture that stands in the page itself.

    Args:
        title: What is plotted.
        lines: Points by the name of their line: x and y, in the order of x.
        ends: The texts of the smallest x and the largest.

    Example:
        >>> html_plot("rows", {"": [(0, 1.0), (1, 3.0)]}, ("9:00", "9:01")).count("<polyline")
        1
    """
    points = [point for line in lines.values() for point in line]
    left, right = min(x for x, _ in points), max(x for x, _ in points)
    low, high = min(0.0, *(y for _, y in points)), max(0.0, *(y for _, y in points))
    across, up = _WIDTH / ((right - left) or 1), (_HEIGHT - _TOP - _BOTTOM) / ((high - low) or 1)

    def drawn(line: Sequence[tuple[float, float]], colour: str) -> str:
        places = [f"{(x - left) * across:.1f},{_HEIGHT - _BOTTOM - (y - low) * up:.1f}" for x, y in line]
        return f'<polyline points="{" ".join(places)}" stroke="{colour}"/>'

    names = [*zip(lines, _COLOURS, strict=False)]
    legend = "".join(f' <tspan fill="{colour}">{html.escape(name)}</tspan>' for name, colour in names)
    label = html.escape(f"{title}, {low:,.6g} to {high:,.6g}")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{label}" width="{_WIDTH}" height="{_HEIGHT}" '
        f'viewBox="0 0 {_WIDTH} {_HEIGHT}" style="max-width:100%;font:11px sans-serif">'
        f'<g fill="currentColor"><text y="11">{label}{legend}</text>'
        f'<text y="{_HEIGHT - 4}">{html.escape(ends[0])}</text>'
        f'<text x="{_WIDTH}" y="{_HEIGHT - 4}" text-anchor="end">{html.escape(ends[1])}</text></g>'
        f'<g fill="none" stroke-width="1.5" stroke-linecap="round">'
        f"{''.join(drawn(lines[name], colour) for name, colour in names)}</g></svg>"
    )


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
