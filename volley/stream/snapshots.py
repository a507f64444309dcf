"""The beginning of a stream that compares full extracts: the arguments of `Environment.changes_from_snapshots`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

from volley import checks
from volley.connectors.snapshots.source import OnEmpty, SnapshotSource
from volley.contracts.source import Source
from volley.errors import ConfigError
from volley.plan.keyed_nodes import CompareExtracts
from volley.plan.nodes import Read
from volley.plan.places import Place
from volley.plan.windows import Timing

__all__ = ["compared"]


def compared(
    source: Source,
    keys: str | Sequence[str],
    version: str | int | date | None,
    ignore: str | Sequence[str],
    on_empty: OnEmpty,
    max_deleted: float | None,
    buckets: int,
    place: Place | None,
) -> CompareExtracts:
    """Return the step that compares the extracts of a source.

    Args:
        place: The line of the program that has it.
    """
    columns, ignored = _names("keys", keys), _names("ignore", ignore)
    if not columns or len({*columns, *ignored}) < len(columns) + len(ignored) or version in (*columns, *ignored):
        raise ConfigError(
            f"keys are {columns!r}, ignore is {ignored!r}, version is {version!r}",
            hint='name each column once, and one or more keys: keys=["id"]',
        )
    bound = checks.optional(_bound)("max_deleted", max_deleted)
    read = Read(SnapshotSource(source, version, on_empty, bound), place=place)
    timing = Timing(buckets=checks.count("buckets", buckets))
    return CompareExtracts(read, source.identity, columns, ignored, bound, timing=timing, place=place)


def _names(name: str, value: str | Sequence[str]) -> tuple[str, ...]:
    return checks.names(name, (value,) if isinstance(value, str) else value)


def _bound(name: str, value: object) -> float:
    """Return a whole number of rows, or a share of them."""
    is_share = isinstance(value, float) and 0 <= value <= 1
    bound: float = checks.between(-1, 1)(name, value) if is_share else checks.count_or_zero(name, value)
    return bound
