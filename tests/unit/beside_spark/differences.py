"""The accepted differences: what the page of functions says, and what was found for each call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

__all__ = ["DIFFERENCES", "RAISES", "Difference", "differences", "raises"]

DIFFERENCES = Path(__file__).with_name("differences.txt")
"""Blocks between empty lines: a sentence for users, then a line for each call: its name, an arrow, what differs."""

RAISES = Path(__file__).with_name("raises.txt")
"""A line for each call that raises in Spark: its name, an arrow, the numbers of the rows that do."""

_INDENT = "    "


class Difference(NamedTuple):
    """How a function differs from Spark's.

    Args:
        text: What users should know.
        calls: What was found, by the name of the call.
    """

    text: str
    calls: Mapping[str, str]

    @property
    def names(self) -> set[str]:
        """The functions that differ so."""
        return {key.partition(" · ")[0] for key in self.calls}


@cache
def differences() -> Sequence[Difference]:
    """Return the accepted differences, in the order of the file."""
    blocks = DIFFERENCES.read_text().strip().split("\n\n")
    return [Difference(" ".join(_lines(block, False)), _table(_lines(block, True))) for block in blocks]


@cache
def raises() -> Mapping[str, tuple[int, ...]]:
    """Return the numbers of the rows that raise in Spark, by the name of the call."""
    table = _table(RAISES.read_text().splitlines())
    return {key: tuple(map(int, rows.split())) for key, rows in table.items()}


def _lines(block: str, is_indented: bool) -> list[str]:
    return [line.strip() for line in block.splitlines() if line.startswith(_INDENT) is is_indented]


def _table(lines: Sequence[str]) -> dict[str, str]:
    return dict(line.split(" → ", 1) for line in lines)
