"""Probes: what `volley check` does to see whether a source or sink can be used."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["PROBE_SECONDS", "Probe"]

PROBE_SECONDS = 10.0
"""The longest timeout of a request that a probe makes."""


@dataclass(frozen=True)
class Probe:
    """One look at a source or sink.

    Args:
        name: What is looked at, such as ``"catalog"``.
        run: Looks at it, and returns what was found in a few words; raises a VolleyError if it can't be used. It
            leaves nothing behind.

    Example:
        >>> Probe("rows", lambda: "3 files").run()
        '3 files'
    """

    name: str
    run: Callable[[], str]
