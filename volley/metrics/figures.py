"""Values that metrics consist of: histograms, the progress of an epoch, the figures of a table.

A field that Prometheus gets has its type and its help as metadata, and nowhere else.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from volley.html_table import settings_html

__all__ = ["EpochProgress", "ExpectationFigures", "FinishedEpoch", "Histogram", "NodeFigures", "TableFigures"]


@dataclass(frozen=True)
class Histogram:
    """Observations counted in buckets, and their sum.

    Args:
        bounds: The upper bounds of the buckets, ascending, inclusive; one more bucket counts what is above the last.
        counts: The observations in each bucket, not cumulative; one more than there are bounds.
        total: The sum of all observations.
    """

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float = 0.0

    @classmethod
    def empty(cls, bounds: tuple[float, ...]) -> Histogram:
        """Return a histogram without observations."""
        return cls(bounds, (0,) * (len(bounds) + 1))

    @property
    def count(self) -> int:
        """The number of observations."""
        return sum(self.counts)

    def observe(self, value: float, times: int = 1) -> Histogram:
        """Return the histogram with `times` more observations of `value`."""
        index = bisect_left(self.bounds, value)
        counts = (*self.counts[:index], self.counts[index] + times, *self.counts[index + 1 :])
        return replace(self, counts=counts, total=self.total + value * times)

    def cumulated(self) -> list[tuple[str, float]]:
        """Return Prometheus' buckets: each bound as text, and the number of observations up to it."""
        seen, buckets = 0, []
        for bound, count in zip((*map(str, self.bounds), "+Inf"), self.counts, strict=True):
            seen += count
            buckets.append((bound, float(seen)))
        return buckets


@dataclass(frozen=True)
class FinishedEpoch:
    """An epoch that is visible in every sink of a job.

    Args:
        number: The epoch's number.
        rows: Rows written; a row that goes to several sinks counts once.
        rejected: Rows that went to a dead letter.
        replayed: Dead letters that were read again and marked, in a replay.
        files: Files written.
        bytes: Encoded bytes written.
        seconds: How long it took, in seconds.
        skipped: True if every sink had it already (after a crash).
        ended: When it ended, in UTC.
        phases: What the seconds were spent on, in seconds: ``"plan"`` (what to read, and which sinks lack it),
            ``"read"`` (the rows read, computed and written to files), ``"merge"`` (the levels of keyed steps),
            ``"commit"`` and ``"acknowledge"`` (sources told, lags asked for). Phases that it did not have are left out.

    Example:
        >>> FinishedEpoch(7, rows=500, seconds=0.5).rows
        500
    """

    number: int
    rows: int = 0
    rejected: int = 0
    files: int = 0
    bytes: int = 0
    seconds: float = 0.0
    skipped: bool = False
    replayed: int = 0
    ended: datetime | None = field(default=None, compare=False)
    phases: Mapping[str, float] = field(default_factory=dict, compare=False)

    _repr_html_ = settings_html


@dataclass(frozen=True)
class EpochProgress:
    """The progress of the running epoch: the sums over its finished tasks.

    Args:
        number: The epoch's number.
        tasks: Finished tasks.
        rows: Rows that they wrote; a row that goes to two sinks counts once.
        files: Files that they wrote.
        bytes: Encoded bytes that they wrote.
        seconds: Time since the start of the epoch, in seconds.

    Example:
        >>> EpochProgress(7, tasks=2, rows=500).rows
        500
    """

    number: int = field(metadata={"gauge": "Number of the running epoch; absent between epochs"})
    tasks: int = field(default=0, metadata={"gauge": "Finished tasks of the running epoch"})
    rows: int = field(default=0, metadata={"gauge": "Rows written by the finished tasks of the running epoch"})
    files: int = field(default=0, metadata={"gauge": "Files written by the finished tasks of the running epoch"})
    bytes: int = field(
        default=0, metadata={"gauge": "Encoded bytes written by the finished tasks of the running epoch"}
    )
    seconds: float = field(default=0.0, metadata={"gauge": "Time since the start of the running epoch"})

    _repr_html_ = settings_html


@dataclass(frozen=True)
class NodeFigures:
    """What has come to a node of a job's graph, a source, step or sink, in this run.

    Args:
        rows: Rows that it has passed on.
        bad: Rows that could not be read, computed or written there.
        rejected: Rows that it rejects, as a keyed step, as late, early or without a time.
        rows_per_second: Rows of the last epoch, by its seconds.
        state_bytes: Bytes of a keyed step's state after the last epoch.
    """

    rows: int = 0
    bad: int = 0
    rejected: int = 0
    rows_per_second: float = 0.0
    state_bytes: int = 0


@dataclass(frozen=True)
class ExpectationFigures:
    """What has become of an expectation in a run.

    Args:
        rows: The rows that it looked at.
        failed: Those that did not meet it.
        unknown: Those for which its predicate was null; they don't count as failed.

    Example:
        >>> ExpectationFigures(rows=5, failed=2).unknown
        0
    """

    rows: int = field(default=0, metadata={"counter": "Rows that an expectation has looked at"})
    failed: int = field(default=0, metadata={"counter": "Rows that do not meet an expectation"})
    unknown: int = field(
        default=0, metadata={"counter": "Rows of which an expectation can't tell, as its predicate is null"}
    )


@dataclass(frozen=True)
class TableFigures:
    """What a sink with many tables has done to one of them.

    Args:
        records_written: Rows committed.
        commits: Commits that landed.
        records_parked: Rows that wait until the table can take them.

    Example:
        >>> TableFigures(records_written=5, commits=2).records_parked
        0
    """

    records_written: int = field(
        default=0, metadata={"counter": "Rows written to one of the tables of a sink with many"}
    )
    commits: int = field(default=0, metadata={"counter": "Commits to one of the tables of a sink with many"})
    records_parked: int = field(
        default=0, metadata={"gauge": "Rows that wait until one of the tables of a sink with many can take them"}
    )

    _repr_html_ = settings_html
