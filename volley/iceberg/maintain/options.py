"""What actions of maintenance rewrite, how they arrange the rows, and their limits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from volley.checks import Duration, count, flag, keep, names, optional, seconds
from volley.errors import ConfigError

__all__ = ["CompactionOptions", "DeleteOptions"]

# A writer closes a file at 95 % of its target: a larger share would rewrite such a file again and again. It keeps
# files below 110 %.
_SHARES = {"small_below": (0, 0.9), "deletes_above": (0, 1.0), "large_above": (1.2, 1_000.0)}
_MOST_COLUMNS = 16


@dataclass(frozen=True)
class CompactionOptions:
    """What a compaction rewrites, how it arranges the rows, and its limits; see `IcebergTable.compact`.

    Args:
        target_size: The size of the new files in bytes; None = the table's.
        small_below: Files below this share of it are rewritten together.
        small_bytes: The size in bytes from which on a file is not small, whatever the target; None = by share alone.
        least_files: The fewest small files of a partition that are rewritten, each with others that have together as
            many rows at least: the file that a row is in at least doubles, so that the row is rewritten at most
            log2(rows of a full file / rows of its first file) times, however often this runs. None = all small files.
        large_above: Files above this multiple of it are split.
        deletes_above: Files with at least this share of deleted rows are rewritten.
        old_specs: True rewrites files of older partition specs.
        old_schemas: True rewrites files of older schemas.
        rewrite_all: True rewrites all files.
        sort_by: True = the table's order; or columns, each with ``asc`` or ``desc``.
        z_order: Columns.
        group_size: The most bytes of files that are rewritten and replaced together; None = ten times the target.
        max_commits: The most snapshots.
        max_bytes: The most bytes of files to rewrite.
        max_time: The time after which no further group is rewritten.

    Raises:
        ConfigError: If one is wrong, or two contradict each other.
    """

    target_size: int | None = None
    small_below: float = 0.75
    small_bytes: int | None = None
    least_files: int | None = None
    large_above: float = 1.8
    deletes_above: float = 0.2
    old_specs: bool = False
    old_schemas: bool = False
    rewrite_all: bool = False
    sort_by: bool | str | Sequence[str] = False
    z_order: Sequence[str] = ()
    group_size: int | None = None
    max_commits: int = 1
    max_bytes: int | None = None
    max_time: Duration | None = None

    def __post_init__(self) -> None:
        keep(self, target_size=optional(count), group_size=optional(count), max_bytes=optional(count))
        keep(self, small_bytes=optional(count), least_files=optional(count))
        keep(self, small_below=_share, large_above=_share, deletes_above=_share, max_commits=count)
        keep(self, old_specs=flag, old_schemas=flag, rewrite_all=flag, max_time=optional(seconds))
        keep(self, sort_by=_sort_columns, z_order=_z_columns)
        if self.sort_by and self.z_order:
            raise ConfigError("both sort_by and z_order are given", hint="rows have one order: leave one of them out")


@dataclass(frozen=True)
class DeleteOptions:
    """What a rewrite of delete files does, and its limits; see `IcebergTable.rewrite_position_deletes`.

    Args:
        convert_equality: True replaces equality deletes by position deletes.
        max_bytes: The most bytes to read: of delete files, and of data files that equality deletes are looked up in.
        max_time: The time after which no further data file is taken.

    Raises:
        ConfigError: If one is wrong.
    """

    convert_equality: bool = False
    max_bytes: int | None = None
    max_time: Duration | None = None

    def __post_init__(self) -> None:
        keep(self, convert_equality=flag, max_bytes=optional(count), max_time=optional(seconds))


def _share(name: str, value: Any) -> float:
    low, high = _SHARES[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not low < value <= high:
        raise ConfigError(f"{name} {value!r} is not valid", hint=f"a number above {low}, at most {high:g}")
    return value


def _sort_columns(name: str, value: Any) -> bool | tuple[str, ...]:
    return value if isinstance(value, bool) else names(name, value)


def _z_columns(name: str, value: Any) -> tuple[str, ...]:
    columns = names(name, value)
    if columns and not 2 <= len(set(columns)) == len(columns) <= _MOST_COLUMNS:
        raise ConfigError(
            f"{name} has the columns {', '.join(columns)}",
            hint=f"two to {_MOST_COLUMNS} different columns; rows are sorted by one with sort_by",
        )
    return columns
