"""Runs side by side: medians, their spread, ratios to Iceberg's Spark runtime and to the limit, and bounds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from benchmarks.run import Case, Result

__all__ = ["GENERAL", "LIMIT", "NATIVE", "RUNTIME", "SPARK_READS", "Bound", "Row", "aims", "case_of", "in_rows"]

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

    The methods that return bounds return none for a row without the figure, nor for other peers than `of`.

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

    def at_least(self, figure: str, bound: float, unit: str, of: str | None = None) -> list[Bound]:
        """Require the median to reach a bound."""
        return self._bounds(self.what, self.median(figure), unit, of, least=bound)

    def below(self, figure: str, bound: float, unit: str, of: str | None = None) -> list[Bound]:
        """Require the median not to exceed a bound."""
        return self._bounds(self.what, self.median(figure), unit, of, most=bound)

    def beside(self, peer: str, figure: str, what: str, of: str | None = None, **bound: float) -> list[Bound]:
        """Bound the ratio of the median to that of a peer in the same case, by ``least=`` or ``most=``."""
        ratio = self.times(figure, lambda row: row is not self and (row.peer, row.case) == (peer, self.case))
        unit = "× the runtime's" if peer.startswith(RUNTIME) else f"× that of {peer}"
        return self._bounds(f"{self.what}: {what}", ratio, unit, of, **bound)

    def beside_case(self, case: Case, figure: str, what: str, unit: str, **bound: float) -> list[Bound]:
        """Bound the ratio of the median to that of another case, by ``least=`` or ``most=``."""
        ratio = self.times(figure, lambda row: row is not self and row.case == case)
        return self._bounds(f"{self.what}: {what}", ratio, unit, None, **bound)

    def _bounds(
        self, what: str, value: Any, unit: str, of: str | None, least: float = 0, most: float = math.inf
    ) -> list[Bound]:
        if value is None or of not in (None, self.peer):
            return []
        return [Bound(what, value, least or most, unit, least <= value <= most)]


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


_LEAST = {case_of(1_000_000): 2.0, case_of(4_000_000): 2.5}
_LEAST_OF_LIMIT = 0.75


def aims(row: Row) -> Iterator[Bound]:
    """The bounds for Volley relative to the runtime and to the limit."""
    least = _LEAST.get(str(row.case)) if row.peer == NATIVE else 1.0
    if row.peer not in (NATIVE, GENERAL, SPARK_READS) or least is None:
        return
    yield from row.beside(RUNTIME, "rows_per_second", "rows/s", least=least)
    figure, unit = "rows_per_cpu_second", "rows per CPU-second"
    yield from row.beside(RUNTIME, figure, unit, least=least)
    if row.peer == NATIVE:
        yield from row.beside_case(LIMIT, figure, unit, "× the limit's", least=_LEAST_OF_LIMIT)
