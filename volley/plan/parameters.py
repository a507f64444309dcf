"""Checks of the constant arguments of functions: texts, numbers, formats of times, paths into JSON texts."""

from __future__ import annotations

import json
import re
from typing import Any

from volley.errors import ExpressionError
from volley.types.names import unknown_directives

__all__ = ["character", "directives", "number", "steps_of", "text"]
# A lone * would be a wildcard in other languages of paths.
_STEP = re.compile(r"""\.(?!\*(?:[.\[]|$))([^.\[\]"\s]+)|\[([0-9]+)\]|\[("(?:[^"\\]|\\.)*")\]""")


def text(name: str, value: Any, least: int = 0) -> str:
    """Return a constant text.

    Raises:
        ExpressionError: If it is none.
    """
    if not isinstance(value, str) or len(value) < least:
        raise ExpressionError(f"{name} is {value!r}", hint="a text, as a constant" + ("; not empty" if least else ""))
    return value


def directives(value: Any, known: str, least: int = 0) -> str:
    """Return a constant format of times.

    Args:
        known: The letters of the directives that it may have.
        least: The least number of its characters.

    Raises:
        ExpressionError: If it is no text, or has another directive.
    """
    format = text("format", value, least)
    if unknown := unknown_directives(format, known):
        hint = f"known: {' '.join(f'%{letter}' for letter in sorted(known))}"
        raise ExpressionError(f"{format!r} has {', '.join(unknown)}", hint=hint)
    return format


def character(value: Any) -> str:
    """Return a constant text of one character.

    Raises:
        ExpressionError: If it is none.
    """
    if len(text("character", value)) != 1:
        raise ExpressionError(f"character is {value!r}", hint="one character")
    return str(value)


def number(name: str, value: Any, least: int | None = None) -> int:
    """Return a constant whole number of at most 31 bits.

    Raises:
        ExpressionError: If it is none.
    """
    if type(value) is not int or (least is not None and value < least) or abs(value) >= 1 << 31:
        raise ExpressionError(f"{name} is {value!r}", hint="a whole number" + ("" if least is None else ", 0 or more"))
    return value


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
