"""Mistakes of a document: where each stands, and all of them in words."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from textwrap import shorten

from volley.errors import ConfigError, near

__all__ = ["Mistake", "Path", "Place", "dotted", "error_of", "is_secret", "nearest"]

# Narrower than what volley.secrets masks: here `key_fields` and `keys` are names of columns.
SECRET_NAME = r"passw|passphrase|secret|token|credential|access_key|account_key|service_account_key"

_LONGEST_HINT = 400
Path = tuple[Hashable, ...]
"""The keys and list positions that lead to a value of a document."""


@dataclass(frozen=True, order=True)
class Place:
    """A place in a file.

    Args:
        line: The line, from 1.
        column: The column, from 1.
        text: The line's text.
    """

    line: int
    column: int
    text: str = ""


@dataclass(frozen=True)
class Mistake:
    """What is wrong with a value or a key of a document.

    Args:
        message: What is wrong.
        path: Where it stands in the document.
        hint: What to do about it.
        place: Where it stands in the file; None if the document is no file.
    """

    message: str
    path: Path = ()
    hint: str | None = None
    place: Place | None = None

    def describe(self, file: str) -> str:
        """Return the mistake in words, with the line and a caret below the place.

        Example:
            >>> place = Place(3, 5, "    pth: in")
            >>> mistake = Mistake("unknown key 'pth'", ("sources", "a", "pth"), "did you mean 'path'?", place)
            >>> print(mistake.describe("a.yaml"))
            a.yaml:3:5: unknown key 'pth' (sources.a.pth)
                pth: in
                ^
              hint: did you mean 'path'?
        """
        where = f"{file}:{self.place.line}:{self.place.column}: " if self.place else ""
        lines = [f"{where}{self.message}" + (f" ({dotted(self.path)})" if self.path else "")]
        if self.place:
            lines += [self.place.text, " " * (self.place.column - 1) + "^"]
        return "\n".join(
            [*lines, *([f"  hint: {shorten(self.hint, _LONGEST_HINT, placeholder=' …')}"] if self.hint else [])]
        )


def dotted(path: Path) -> str:
    """Return a path as text.

    Example:
        >>> dotted(("pipelines", "a", "steps", 0, "filter"))
        'pipelines.a.steps[0].filter'
    """
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path).removeprefix(".")


def error_of(file: str, mistakes: Sequence[Mistake]) -> ConfigError:
    """Return the error that tells all mistakes, in the order of their places.

    Args:
        file: The name of the document.
        mistakes: The mistakes; at least one.
    """
    ordered = sorted(mistakes, key=lambda mistake: mistake.place or Place(0, 0))
    count = "1 mistake" if len(ordered) == 1 else f"{len(ordered)} mistakes"
    return ConfigError("\n\n".join([f"{file} has {count}", *(mistake.describe(file) for mistake in ordered)]))


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint with the known names that are closest; all of them if none is close.

    Example:
        >>> nearest("tble", ["table", "branch"]), nearest("x", ["table", "branch"])
        ("did you mean 'table'?", "known: 'branch', 'table'")
    """
    return near(name, known).partition(" known: ")[0]


def is_secret(name: object) -> bool:
    """Return True if a setting of this name holds a secret.

    Example:
        >>> is_secret("access_key_id"), is_secret("key_fields")
        (True, False)
    """
    return re.search(SECRET_NAME, str(name), re.IGNORECASE) is not None
