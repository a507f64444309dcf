"""Maintenance: how a job keeps the table that it writes in shape."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from volley.checks import Duration, between, count, duration, flag, keep, optional, size
from volley.errors import ConfigError
from volley.html_table import settings_html

__all__ = ["Maintenance"]


@dataclass(frozen=True, kw_only=True)
class Maintenance:
    """How a job keeps the table that it writes in shape; see `IcebergSinkConfig.with_maintenance`.

    The defaults suit a table that is written once a second. Sizes become bytes, time spans timedeltas.

    Args:
        compact_below: Data files below this size are compacted: bytes, or a text such as ``"32MB"``. A file waits for
            others of its partition with together as many rows, so that each row is rewritten a few times only. None =
            no compaction.
        deletes_above: Data files with at least this share of deleted rows are rewritten.
        deletes: True merges the delete files of each data file into one.
        expire_after: Snapshots of this age expire, with their files. None = none expire.
        retain_last: The number of snapshots that each branch keeps even if they are older.
        retain_most: The number of snapshots above which older ones of a branch expire, once they are an hour old; None
            = no limit. Let queries and pauses of readers be shorter than that, or set a larger number.
        manifests: True regroups the manifests by partition.
        every: Maintenance is due this long after the last one, if the job has committed since.
        commits: Maintenance is due after this many commits, too.
        delete_files: Maintenance is due after this many new delete files, too: they slow scans more than data files.
        budget: The largest share of the time that it takes, on average over ``every``; above 0 and at most 1.

    Raises:
        ConfigError: If one is wrong.

    Example:
        >>> from volley.iceberg import Maintenance
        >>> Maintenance(compact_below="64MB", every="5m").compact_below
        67108864
    """

    compact_below: int | str | None = "32MB"
    deletes_above: float = 0.2
    deletes: bool = True
    expire_after: Duration | None = timedelta(days=7)
    retain_last: int = 100
    retain_most: int | None = 1000
    manifests: bool = True
    every: Duration = timedelta(minutes=10)
    commits: int = 100
    delete_files: int = 32
    budget: float = 0.2

    def __post_init__(self) -> None:
        keep(self, compact_below=optional(size), deletes_above=between(0, 1), deletes=flag, manifests=flag)
        keep(self, expire_after=optional(duration), retain_last=count, retain_most=optional(count))
        keep(self, every=duration, commits=count, delete_files=count, budget=between(0, 1))
        if self.retain_most is not None and self.retain_most < self.retain_last:
            raise ConfigError(
                f"retain_most {self.retain_most} is below retain_last {self.retain_last}", hint="swap the two"
            )

    _repr_html_ = settings_html
