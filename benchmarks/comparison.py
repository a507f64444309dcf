"""Runs of the same work side by side: medians, their spread, and ratios to Iceberg's Spark runtime and the limit."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.measure import Result
from benchmarks.peers.runtime_job import NAME as RUNTIME
from benchmarks.report import Figure, Report

__all__ = [
    "COLUMNS",
    "GENERAL",
    "LIMIT",
    "NATIVE",
    "SPARK_READS",
    "InEpochs",
    "Row",
    "aims",
    "case_of",
    "compared",
    "show",
]

LIMIT = "the limit"
"""The case of those who do nothing but what can't be left out."""

NATIVE, GENERAL = "Volley, Arrow-native", "Volley, general path"
SPARK_READS = "Volley, general path, read by Spark"

COLUMNS = (
    *("what", "rows/s", "min–max", "rows per CPU-s", "worker MB", "JVM MB", "driver MB"),
    *("× runtime, rows/s", "× runtime, per CPU-s", "× limit, per CPU-s"),
)


@dataclass(frozen=True)
class Row:
    """All runs of one peer in one case.

    Args:
        runs: At least one.
        runtime: The runtime's in the same case; none if there are none.
        limit: The limit's.
    """

    runs: list[Result]
    runtime: list[Result]
    limit: list[Result]

    @property
    def what(self) -> str:
        first = self.runs[0]
        return f"{first.name}, {first.case}" if first.case else first.name

    @property
    def speeds(self) -> list[float]:
        return [run.rows_per_second for run in self.runs]

    @property
    def speed(self) -> float:
        return statistics.median(self.speeds)

    @property
    def economy(self) -> float:
        return statistics.median(run.rows_per_cpu_second for run in self.runs)

    @property
    def ratios(self) -> tuple[float | None, float | None, float | None]:
        """To the runtime, in rows/s and in rows per CPU-second; to the limit, in the latter."""
        runtime, limit = Row(self.runtime, [], []), Row(self.limit, [], [])
        return (
            self.speed / runtime.speed if self.runtime else None,
            self.economy / runtime.economy if self.runtime else None,
            self.economy / limit.economy if self.limit else None,
        )

    @property
    def memory(self) -> list[str]:
        """The peaks of workers, JVM and driver."""
        peaks = (max(getattr(run, f"{of}_mb") for run in self.runs) for of in ("worker", "jvm", "driver"))
        return [f"{peak:,.0f}" if peak else "–" for peak in peaks]

    @property
    def cells(self) -> list[str]:
        ratios = ("–" if ratio is None else f"{ratio:.2f}" for ratio in self.ratios)
        spread = f"{min(self.speeds):,.0f}–{max(self.speeds):,.0f}"
        return [self.what, f"{self.speed:,.0f}", spread, f"{self.economy:,.0f}", *self.memory, *ratios]


def case_of(rows_per_epoch: int) -> str:
    """What runs of one size of epochs are called."""
    millions = f"{rows_per_epoch / 1e6:g} M" if rows_per_epoch >= 1_000_000 else f"{rows_per_epoch:,}"
    return f"{millions} rows an epoch"


def compared(results: Sequence[Result]) -> list[Row]:
    """The results by peer, case and size, in the order in which they first ran."""

    def runs(name: str | None, case: str, rows: int) -> list[Result]:
        return [run for run in results if name in (run.name, None) and (run.case, run.rows) == (case, rows)]

    keys = dict.fromkeys((run.name, run.case, run.rows) for run in results)
    return [Row(runs(*key), runs(RUNTIME, *key[1:]), runs(None, LIMIT, key[2])) for key in keys]


class InEpochs:
    """What sizes of runs in epochs have in common."""

    rows_per_epoch: int
    before: int

    @property
    def case(self) -> str:
        return case_of(self.rows_per_epoch)

    @property
    def epochs_before(self) -> int:
        return self.before // self.rows_per_epoch


_LEAST = {case_of(1_000_000): 2.0, case_of(4_000_000): 2.5}
_LEAST_OF_LIMIT = 0.75


def aims(rows: Sequence[Row]) -> Iterator[Figure]:
    """What Volley has to reach beside the runtime and the limit."""
    for row in rows:
        first = row.runs[0]
        by_speed, by_cpu, by_limit = row.ratios
        least = _LEAST.get(first.case) if first.name == NATIVE else 1.0
        if first.name not in (NATIVE, GENERAL, SPARK_READS) or least is None or by_speed is None or by_cpu is None:
            continue
        yield Figure.at_least(f"{row.what}: rows/s", by_speed, least, "× the runtime's")
        yield Figure.at_least(f"{row.what}: rows per CPU-second", by_cpu, least, "× the runtime's")
        if by_limit is not None and first.name == NATIVE:
            yield Figure.at_least(f"{row.what}: rows per CPU-second", by_limit, _LEAST_OF_LIMIT, "× the limit's")


def show(title: str, results: Sequence[Result], skipped: str | None = None) -> Report:
    """A report with a row for each peer; it is for the caller to print.

    Args:
        title: The benchmark's name.
        results: All runs.
        skipped: Why the runtime did not run; None = it did, or was not asked for.
    """
    report = Report(title, *COLUMNS)
    for row in compared(results):
        report.row(*row.cells)
    if skipped:
        report.row(RUNTIME, f"skipped: {skipped.splitlines()[0]}")
    for result in results:
        report.note(result)
    return report
