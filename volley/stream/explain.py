"""Plans in words, for people."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence

from volley.contracts.source import SourceContext
from volley.errors import VolleyError
from volley.plan import graph, nodes
from volley.plan.pushdown import used_columns, used_rows

__all__ = ["as_html", "explained"]


def explained(roots: Sequence[nodes.Node]) -> str:
    """Return plans, by the last node of each, and what the sources leave out."""
    return "\n".join([*map(graph.describe, roots), *_of_sources(roots)])


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


def as_html(title: str, roots: Sequence[nodes.Node]) -> str:
    """Return plans for a notebook."""
    plans = "\n".join(map(graph.describe, roots))
    return f"<div><b>{title}</b><pre>{html.escape(plans)}</pre></div>"
