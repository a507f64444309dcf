"""Runs of the same work side by side: medians, their spread, and the ratio to Iceberg's Spark runtime."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.measure import Result
from benchmarks.peers.runtime_job import NAME as RUNTIME
from benchmarks.report import Report

__all__ = ["COLUMNS", "Row", "compared", "show"]

COLUMNS = (
    *("what", "rows/s", "min–max", "rows per CPU-s", "worker MB", "JVM MB", "driver MB"),
    *("× runtime, rows/s", "× runtime, per CPU-s"),
)


@dataclass(frozen=True)
class Row:
    """All runs of one peer in one case.

    Args:
        runs: At least one.
        runtime: The runtime's in the same case; none if there are none.
    """

    runs: list[Result]
    runtime: list[Result]

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
    def ratios(self) -> tuple[float, float] | None:
        """To the runtime, in rows/s and in rows per CPU-second."""
        if not self.runtime or self.runs[0].name == RUNTIME:
            return None
        peer = Row(self.runtime, [])
        return self.speed / peer.speed, self.economy / peer.economy

    @property
    def memory(self) -> list[str]:
        """The peaks of workers, JVM and driver."""
        peaks = (max(getattr(run, f"{of}_mb") for run in self.runs) for of in ("worker", "jvm", "driver"))
        return [f"{peak:,.0f}" if peak else "–" for peak in peaks]

    @property
    def cells(self) -> list[str]:
        ratios = ("–", "–") if self.ratios is None else (f"{each:.2f}" for each in self.ratios)
        spread = f"{min(self.speeds):,.0f}–{max(self.speeds):,.0f}"
        return [self.what, f"{self.speed:,.0f}", spread, f"{self.economy:,.0f}", *self.memory, *ratios]


def compared(results: Sequence[Result]) -> list[Row]:
    """The results by peer, case and size, in the order in which they first ran."""
    keys = dict.fromkeys((run.name, run.case, run.rows) for run in results)
    return [
        Row(
            [run for run in results if (run.name, run.case, run.rows) == (name, case, rows)],
            [run for run in results if (run.name, run.case, run.rows) == (RUNTIME, case, rows)],
        )
        for name, case, rows in keys
    ]


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
