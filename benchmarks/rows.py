"""Runs side by side: medians, their spread, ratios to Iceberg's Spark runtime and to the limit, and bounds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from benchmarks.run import Case, Result

__all__ = [
    *("AIMS", "GENERAL", "LIMIT", "NATIVE", "RUNTIME", "SPARK_READS", "Bound", "Limit", "Row"),
    *("case_of", "in_rows", "within"),
]

NATIVE, GENERAL = "Volley, Arrow-native", "Volley, general path"
SPARK_READS = "Volley, general path, read by Spark"
RUNTIME = "Iceberg's Spark runtime"

LIMIT = "the limit"
"""The case of peers that only read and write the rows, which nobody can leave out."""


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
    """All runs of one peer in one case.

    Args:
        peer: Its name in tables.
        case: With what it can be compared.
        runs: The figures of each run.
        others: All rows, this one among them.
        head: What the cases are; "" if they say it themselves.
    """

    peer: str
    case: Case
    runs: list[dict[str, Any]]
    others: list[Row] = field(repr=False, compare=False)
    head: str = ""

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

    def times(self, figure: str, other: Callable[[Row], bool]) -> float | None:
        """This row's median divided by another row's; None without such a row."""
        found = [row.median(figure) for row in self.others if other(row)]
        return self.median(figure) / found[0] if found and found[0] else None

    def times_runtime(self, figure: str) -> float | None:
        """This row's median divided by that of Iceberg's Spark runtime in the same case."""
        return self.times(figure, lambda row: (row.peer, row.case) == (RUNTIME, self.case))

    def times_limit(self, figure: str) -> float | None:
        """This row's median divided by the limit's."""
        return self.times(figure, lambda row: row.case == LIMIT)


@dataclass(frozen=True)
class Limit:
    """The least or the most that the median of a figure may be, or its ratio to another row's.

    Args:
        figure: Its name.
        unit: What it is, as the page says it.
        least: The least it may be.
        most: The most it may be.
        of: The peer that keeps it; None = each.
        case: The case in which it is kept; None = each.
        beside: The peer to whose median in the same case the ratio is.
        beside_case: The case to whose median the ratio is.
        times: What a ratio is, as the page says it; "" = times that of the other peer.
    """

    figure: str
    unit: str
    least: float = 0
    most: float = math.inf
    of: str | None = None
    case: Case | None = None
    beside: str | None = None
    beside_case: Case | None = None
    times: str = ""

    def bounds(self, row: Row) -> list[Bound]:
        """The bound of a row; none for a row that is not meant, or that lacks the figure or the other row."""
        if self.of not in (None, row.peer) or self.case not in (None, row.case):
            return []
        what, value, unit = row.what, row.median(self.figure), self.unit
        if self.beside is not None or self.beside_case is not None:
            what, value, unit = f"{what}: {unit}", row.times(self.figure, partial(self._is_other, row)), self._ratio
        if value is None:
            return []
        return [Bound(what, value, self.least or self.most, unit, self.least <= value <= self.most)]

    def _is_other(self, row: Row, other: Row) -> bool:
        case = row.case if self.beside_case is None else self.beside_case
        return other is not row and other.case == case and self.beside in (None, other.peer)

    @property
    def _ratio(self) -> str:
        runtimes = (self.beside or "").startswith(RUNTIME)
        return self.times or ("× the runtime's" if runtimes else f"× that of {self.beside}")


def within(*limits: Limit) -> Callable[[Row], list[Bound]]:
    """What a benchmark takes as its bounds: those of all limits."""
    return lambda row: [bound for limit in limits for bound in limit.bounds(row)]


def in_rows(results: Iterable[Result], head: str = "") -> list[Row]:
    """The results by peer and case, in the order in which they first ran; `head` says what the cases are."""
    rows: dict[tuple[str, Case], Row] = {}
    others: list[Row] = []
    for result in results:
        key = result.peer, result.case
        if key not in rows:
            rows[key] = Row(*key, [], others, head)
            others.append(rows[key])
        rows[key].runs.append(result.figures)
    return others


def case_of(rows_per_epoch: int) -> str:
    """The name of the case in which epochs have so many rows."""
    millions = f"{rows_per_epoch / 1e6:g} M" if rows_per_epoch >= 1_000_000 else f"{rows_per_epoch:,}"
    return f"{millions} rows an epoch"


_RATE, _PER_CPU = ("rows_per_second", "rows/s"), ("rows_per_cpu_second", "rows per CPU-second")
_LEAST = {case_of(1_000_000): 2.0, case_of(4_000_000): 2.5}
_LEAST_OF_LIMIT = 0.75


def _of_runtime(peer: str, least: float, case: Case | None = None) -> list[Limit]:
    return [Limit(*speed, least, of=peer, case=case, beside=RUNTIME) for speed in (_RATE, _PER_CPU)]


AIMS = within(
    *(limit for case, least in _LEAST.items() for limit in _of_runtime(NATIVE, least, case)),
    *(limit for peer in (GENERAL, SPARK_READS) for limit in _of_runtime(peer, 1.0)),
    *(
        Limit(*_PER_CPU, _LEAST_OF_LIMIT, of=NATIVE, case=case, beside_case=LIMIT, times="× the limit's")
        for case in _LEAST
    ),
)
"""The bounds for Volley relative to the runtime and to the limit."""
