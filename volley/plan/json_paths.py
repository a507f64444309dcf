"""Paths into JSON texts: ``$.customer.tags[0]["first name"]``."""

from __future__ import annotations

import json
import re

from volley.errors import ExpressionError

__all__ = ["steps_of"]

# A lone * would be a wildcard in other languages of paths.
_STEP = re.compile(r"""\.(?!\*(?:[.\[]|$))([^.\[\]"\s]+)|\[([0-9]+)\]|\[("(?:[^"\\]|\\.)*")\]""")


def steps_of(path: str) -> tuple[str | int, ...]:
    """Return the steps of a path: names of objects' values, and places in arrays.

    Raises:
        ExpressionError: If it is no path.

    Example:
        >>> steps_of('$.a[0]["b c"]')
        ('a', 0, 'b c')
    """
    steps: list[str | int] = []
    position = 1
    while position < len(path) and (step := _STEP.match(path, position)):
        name, place, quoted = step.groups()
        steps.append(name or (int(place) if place else str(json.loads(quoted))))
        position = step.end()
    if not path.startswith("$") or position < len(path):
        hint = 'such as "$.a.b[0]", without wildcards; "$" is the whole'
        raise ExpressionError(f"{path!r} is no path into a JSON text", hint=hint)
    return tuple(steps)
