"""Plans and their execution path in words, for people."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence

from volley.errors import VolleyError
from volley.plan import graph, nodes
from volley.plan.pushdown import used_columns, used_rows
from volley.source import SourceContext

__all__ = ["as_html", "explained"]


def explained(roots: Sequence[nodes.Node], arrow_native: bool) -> str:
    """Return plans, the execution path with the reason for it, and what the sources leave out.

    Args:
        roots: The last node of each plan.
        arrow_native: False if the environment asks for the general path.
    """
    path = f"path: {graph.choose_path(roots, arrow_native)}"
    return "\n".join([path, *map(graph.describe, roots), *_of_sources(roots)])


def _of_sources(roots: Sequence[nodes.Node]) -> Iterator[str]:
    """Yield what each source would read, if it tells more than its repr."""
    for read in (node for node in graph.walk(roots) if isinstance(node, nodes.Read)):
        context = SourceContext("", predicate=used_rows(roots, read), columns=used_columns(roots, read))
        try:
            line = read.source.explain(context)
        except VolleyError as error:
            line = f"not known yet: {error.message}"
        if line is not None:
            yield f"{read.source!r}: {line}"


def as_html(title: str, roots: Sequence[nodes.Node], arrow_native: bool) -> str:
    """Return plans and the execution path for a notebook; arguments as of `explained`."""
    path = graph.choose_path(roots, arrow_native)
    plans = "\n".join(map(graph.describe, roots))
    return f"<div><b>{title}</b> · {html.escape(str(path))}<pre>{html.escape(plans)}</pre></div>"
