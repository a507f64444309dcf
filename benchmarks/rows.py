"""Runs side by side: medians, their spread, ratios to Iceberg's Spark runtime and to the limit, and bounds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from benchmarks.run import Case, Result

NATIVE, SPARK_READS = "Volley", "Volley, read by Spark"
RUNTIME = "Iceberg's Spark runtime"
LIMIT = "the limit"  # the case of peers that only read and write the rows, which nobody can leave out


@dataclass(frozen=True)
class Bound:
    """A figure of the unit that has a bound, the least or the most it may be; `ok` = it is within."""

    figure: str
    value: float
    bound: float
    unit: str
    ok: bool

    def __str__(self) -> str:
        return f"{'ok' if self.ok else 'not'}: {self.figure} {self.value:,.2f} {self.unit} (bound: {self.bound:,g})"


@dataclass(frozen=True)
class Row:
    """The figures of all runs of one peer in one case."""

    peer: str  # its name in tables
    case: Case  # with what it can be compared
    runs: list[dict[str, Any]]
    others: list[Row] = field(repr=False, compare=False)  # all rows, this one among them
    head: str = ""  # what the cases are; "" if they say it themselves

    @property
    def what(self) -> str:
        case = self.case if isinstance(self.case, str) else f"{self.case:,}"
        return ", ".join(part for part in (self.peer, f"{self.head} {case}".strip()) if part)

    def values(self, figure: str) -> list[Any]:
        """The figure in each run that has it."""
        return [run[figure] for run in self.runs if run.get(figure) is not None]

    def median(self, figure: str) -> Any:
        """The median of the runs, None if none has the figure."""
        values = self.values(figure)
        if not values:
            return None
        # Words have no mean.
        return (statistics.median_low if isinstance(values[0], str) else statistics.median)(values)

    def times(self, figure: str, peer: str | None = None, case: Case | None = None) -> float | None:
        """This row's median divided by another's, of any peer and in this case by default; None without such a row."""
        case = self.case if case is None else case
        found = [row.median(figure) for row in self.others if row.case == case and peer in (None, row.peer)]
        return self.median(figure) / found[0] if found and found[0] else None


@dataclass(frozen=True)
class Limit:
    """The least or the most that the median of a figure may be, or its ratio to another row's."""

    figure: str
    unit: str  # what it is, as the page says it
    least: float = 0
    most: float = math.inf
    of: str | None = None  # the peer that keeps it; None = each
    case: Case | None = None  # the case in which it is kept; None = each
    beside: str | None = None  # the peer to whose median in the same case the ratio is
    beside_case: Case | None = None  # the case to whose median the ratio is
    times: str = ""  # what a ratio is, as the page says it; "" = times that of the other peer

    def bounds(self, row: Row) -> list[Bound]:
        """The bound of a row; none for a row that is not meant, or that lacks the figure or the other row."""
        meant = self.of in (None, row.peer) and self.case in (None, row.case)
        if not meant or row.peer == self.beside or row.case == self.beside_case:
            return []
        what, value, unit = row.what, row.median(self.figure), self.unit
        if self.beside is not None or self.beside_case is not None:
            runtimes = (self.beside or "").startswith(RUNTIME)
            ratio = self.times or ("× the runtime's" if runtimes else f"× that of {self.beside}")
            what, value, unit = f"{what}: {unit}", row.times(self.figure, self.beside, self.beside_case), ratio
        if value is None:
            return []
        return [Bound(what, value, self.least or self.most, unit, self.least <= value <= self.most)]


def in_rows(results: Iterable[Result], head: str = "") -> list[Row]:
    """The results by peer and case, in the order in which they first ran; `head` says what the cases are."""
    runs: dict[tuple[str, Case], list[dict[str, Any]]] = {}
    for result in results:
        runs.setdefault((result.peer, result.case), []).append(result.figures)
    rows: list[Row] = []
    rows.extend(Row(peer, case, figures, rows, head) for (peer, case), figures in runs.items())
    return rows


def case_of(rows_per_epoch: int) -> str:
    """The name of the case in which epochs have so many rows."""
    millions = f"{rows_per_epoch / 1e6:g} M" if rows_per_epoch >= 1_000_000 else f"{rows_per_epoch:,}"
    return f"{millions} rows an epoch"


_PER_CPU = ("rows_per_cpu_second", "rows per CPU-second")
_SPEEDS = (("rows_per_second", "rows/s"), _PER_CPU)
_LEAST = {case_of(1_000_000): 2.0, case_of(4_000_000): 2.5}
AIMS = [
    *(Limit(*speed, of=NATIVE, case=case, beside=RUNTIME, least=_LEAST[case]) for case in _LEAST for speed in _SPEEDS),
    *(Limit(*speed, of=SPARK_READS, beside=RUNTIME, least=1) for speed in _SPEEDS),
    *(Limit(*_PER_CPU, 0.75, of=NATIVE, case=case, beside_case=LIMIT, times="× the limit's") for case in _LEAST),
]
"""The bounds for Volley relative to the runtime and to the limit."""
