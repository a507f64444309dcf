"""Mistakes of a document: where each stands, and all of them in words."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from textwrap import shorten

from volley.errors import ConfigError, near
from volley.secrets import FOREIGN, is_secret_name, is_shown

__all__ = ["MOST_MISTAKES", "FilePlace", "Mistake", "Path", "Secrecy", "dotted", "error_of", "is_secret", "nearest"]

# Narrower than what volley.secrets masks: here `key_fields` and `keys` are names of columns.
SECRET_NAME = (
    r"passw|passphrase|secret|token|credential|access_key|account_key|private_key|bearer|connection_string"
    r"|\bsas\b|^auth$"
)
_LONGEST_HINT = 400
MOST_MISTAKES = 100
"""The most mistakes of a document that are told: nobody reads more, and to look for them takes longer and longer."""
Path = tuple[Hashable, ...]
"""The keys and list positions that lead to a value of a document."""


@dataclass(frozen=True, order=True)
class FilePlace:
    """A place in a file.

    Args:
        line: The line, from 1.
        column: The column, from 1.
        text: The line's text, secrets masked.
        shift: How much further left the place stands in this text than in the file.
    """

    line: int
    column: int
    text: str = ""
    shift: int = 0


@dataclass(frozen=True)
class Mistake:
    """What is wrong with a value or a key of a document.

    Args:
        place: Where it stands in the file; None if the document is no file.
    """

    message: str
    path: Path = ()
    hint: str | None = None
    place: FilePlace | None = None

    def describe(self, file: str) -> str:
        """Return the mistake in words, with the line and a caret below the place.

        Example:
            >>> place = FilePlace(3, 5, "    pth: in")
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
            lines += [self.place.text, " " * (self.place.column - 1 - self.place.shift) + "^"]
        return "\n".join([*lines, *([f"  hint: {self.short_hint}"] if self.hint else [])])

    @property
    def short_hint(self) -> str | None:
        """The hint, cut off where it is very long."""
        return self.hint and shorten(self.hint, _LONGEST_HINT, placeholder=" …")


def dotted(path: Path) -> str:
    """Return a path as text.

    Example:
        >>> dotted(("pipelines", "a", "steps", 0, "filter"))
        'pipelines.a.steps[0].filter'
    """
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path).removeprefix(".")


def error_of(file: str, mistakes: Sequence[Mistake]) -> ConfigError:
    """Return the error that tells all mistakes, in the order of their places; its hint is that of the last one.

    Args:
        mistakes: The mistakes; at least one.
    """
    ordered = sorted(mistakes, key=lambda mistake: mistake.place or FilePlace(0, 0))
    count = "1 mistake" if len(ordered) == 1 else f"{len(ordered)} mistakes"
    count += " or more" if len(ordered) >= MOST_MISTAKES else ""
    shown = [*ordered[:-1], replace(ordered[-1], hint=None)]
    return ConfigError(
        "\n\n".join([f"{file} has {count}", *(mistake.describe(file) for mistake in shown)]), ordered[-1].short_hint
    )


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint with the known names that are closest; all of them if none is close.

    Example:
        >>> nearest("tble", ["table", "branch"]), nearest("x", ["table", "branch"])
        ("did you mean 'table'?", "known: 'branch', 'table'")
    """
    return near(name, known).partition(" known: ")[0]


@dataclass(frozen=True)
class Secrecy:
    """Whether a value is a secret, by the keys that lead to it; without arguments, that of the whole document.

    Args:
        is_secret: True if the value is a secret, or a list of secrets.
        is_foreign: True inside a mapping that is for a library, of which only what is known to be harmless is shown.
        is_named: True if one of the keys is the name of a secret: all that is below is secret, too.
    """

    is_secret: bool = False
    is_foreign: bool = False
    is_named: bool = False

    def below(self, key: Hashable) -> Secrecy:
        """Return that of the value under a key, or at a position of a list."""
        if not isinstance(key, str):
            return self
        if self.is_foreign or key in FOREIGN:
            is_named = self.is_named or is_secret_name(key)
            return Secrecy(is_named or not is_shown(key, ""), True, is_named)
        return Secrecy(re.search(SECRET_NAME, key, re.IGNORECASE) is not None)


def is_secret(path: Path) -> bool:
    """Return True if a setting, or an item of it, is a secret by its name.

    Example:
        >>> is_secret(("auth", "secret", 0)), is_secret(("secrets", "path")), is_secret(("key",))
        (True, False, False)
        >>> is_secret(("storage_options", "key")), is_secret(("properties", "headers", "x-team"))
        (True, True)
        >>> is_secret(("properties", "sasl.jaas.config")), is_secret(("storage_options", "client_kwargs", "region"))
        (True, False)
    """
    return reduce(Secrecy.below, path, Secrecy()).is_secret
