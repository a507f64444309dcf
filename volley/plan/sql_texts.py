"""Functions of texts whose arguments mean something else in Spark's SQL than in the methods of expressions."""

from __future__ import annotations

import re
from typing import Any

from volley.errors import ExpressionError
from volley.plan.expressions import Expr, lit

__all__ = ["regexp_replace", "split", "substring", "trim_end", "trim_start"]

_SPECIAL = re.escape("\\.+*?()|[]{}^$")
_PLAIN = re.compile(rf"(?:[^{_SPECIAL}]|\\[^0-9A-Za-z]|\[[^\\^\]]\])+", re.DOTALL)
_ABSENT = object()
_QUOTED = re.compile(r"\\(.)|\[(.)\]", re.DOTALL)
_REPLACEMENT = re.compile(
    r"\$(?P<group>[0-9])(?![0-9])|\\(?P<kept>[0-9\\])|\\(?P<quoted>[^0-9\\])|(?P<text>[^$\\])", re.S
)


def substring(text: Expr, start: Any, length: Any = None) -> Expr:
    """Return a part of a text; as in SQL, positions count from 1, and negative ones from the end."""
    if type(start) is not int or start == 0:
        raise ExpressionError(f"substring starts at {start!r}", hint="a whole number: 1 is the first character")
    return text.str.slice(start - 1 if start > 0 else start, length)


def regexp_replace(text: Expr, pattern: Any, other: Any) -> Expr:
    r"""Return a text with another one in the place of each match; ``$1`` in it is the first group, ``\$`` a ``$``."""
    if not isinstance(other, str):
        return text.str.replace_pattern(pattern, other)
    if unread := _REPLACEMENT.sub("", other):
        raise ExpressionError(
            f"regexp_replace puts {other!r} in, of which {unread!r} can't be read",
            hint=r"$1 to $9 are the groups, $0 is the match; write \$ for a dollar sign, \\ for a backslash",
        )
    return text.str.replace_pattern(pattern, _REPLACEMENT.sub(_in_re2, other))


def _in_re2(part: re.Match[str]) -> str:
    kept = part["group"] or part["kept"]
    return f"\\{kept}" if kept else part["quoted"] or part["text"]


def split(text: Expr, separator: Any) -> Expr:
    """Return the parts of a text between separators; one with characters of patterns is refused: Spark reads one."""
    if not isinstance(separator, str) or not separator:
        return text.str.split(separator)
    if not _PLAIN.fullmatch(separator):
        raise ExpressionError(
            f"split takes a text, not the pattern {separator!r}",
            hint="put a character that patterns have into brackets, as '[.]' or '[|]', to split at the character",
        )
    return text.str.split(_QUOTED.sub(lambda quoted: quoted[1] or quoted[2], separator))


def trim_start(characters: Any, text: Any = _ABSENT) -> Expr:
    """Return a text without blanks at its start, or without characters that stand before it: ``ltrim('x', text)``."""
    chosen, trimmed = _trimmed("ltrim", "leading", characters, text)
    return trimmed.str.strip_start(chosen)


def trim_end(characters: Any, text: Any = _ABSENT) -> Expr:
    """Return a text without blanks at its end, or without characters that stand before it: ``rtrim('x', text)``."""
    chosen, trimmed = _trimmed("rtrim", "trailing", characters, text)
    return trimmed.str.strip_end(chosen)


def _trimmed(name: str, side: str, characters: Any, text: Any) -> tuple[str, Expr]:
    """Return the characters and the text; of a single argument, which is the text, blanks."""
    if text is _ABSENT:
        characters, text = " ", characters
    if not isinstance(characters, str):
        raise ExpressionError(
            f"{name} takes the characters, a constant text, before the text, as in Spark",
            hint=f"write trim({side} 'x' from name)",
        )
    return characters, text if isinstance(text, Expr) else lit(text)
