"""Estimates whether a view is cheaper to bring up to date by changes or to compute anew."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, ValidationError
from pyiceberg.table import Table

from volley.iceberg.views.operators import ViewOperator
from volley.iceberg.views.scan import PAGE_ROWS, Scan

__all__ = ["COSTS", "Cost", "Kind", "Measured", "Measures", "Work", "cost_of", "full_cost"]

COSTS = "volley.view.costs"
"""What refreshes took, as JSON: a table property, and in the summary of each of the view's snapshots."""

Kind = Literal["incremental", "full"]
"""The two ways of a refresh that does something."""

# No refresh writes numbers beyond these: a property that has them is damaged.
_Positive = Annotated[float, Field(gt=1e-12, lt=1e12)]
_Ratio = Annotated[float, Field(ge=0, lt=1e12)]
_Count = Annotated[int, Field(ge=0)]

# CPU-seconds, measured by `python -m benchmarks view_refresh tpch_views` with mode=incremental and mode=full: to start
# a refresh, and for an incremental one to look for the changes of each changed source.
_START: Mapping[Kind, float] = {"incremental": 0.02, "full": 0.03}
_SOURCE = 0.015
# Per row of a source that is read; per row of the view that is looked through, or is written. How many times as long
# they take depends on the query and the computer: refreshes tell.
_READ, _LOOKED_THROUGH, _WRITTEN = 0.07e-6, 0.05e-6, 0.3e-6

# The other kind of refresh has to take less than this part of the last one's kind: estimates differ from run to run.
_MARGIN = 0.85
# An incremental refresh is given up when it has read so many times the rows of the sources: what is left of it would
# take longer than the other kind. How much is left is not known; it counts as if it had read so many times as much, and
# taken so many times as long as the other kind.
_GIVEN_UP, _GIVEN_UP_TIMES = 1.5, 2
# A measured time counts for half: one slow refresh does not rule its kind out. By each refresh of the other kind an old
# one comes so much nearer to that kind's, if it was slower, so that its kind is tried again.
_WEIGHT, _FADING = 0.5, 0.08
# Rows that are read for changes alone take about so much of the time of those that a full refresh computes with.
_UNTRIED = 0.5
# How many rows the changes lead to differs more from refresh to refresh: each counts as one of a few.
_AGAIN_WEIGHT, _TRIES = 0.25, 8


@dataclass(frozen=True)
class Work:
    """What a refresh does, as CPU-seconds on the computer that the constants are of.

    Args:
        start: To start it.
        rows: For its rows.
    """

    start: float
    rows: float


@dataclass(frozen=True)
class Measured:
    """What refreshes of one kind took.

    Args:
        seconds: The time of the last one, or of the processor if that is less.
        rows: How many rows of the sources it read.
        factor: How many times as long as estimated rows take.
        start: How many times as long as estimated it takes to start.
    """

    seconds: _Positive
    rows: int
    factor: _Positive = 1.0
    start: _Positive = 1.0

    def time(self, work: Work) -> float:
        """Return the seconds that some work takes."""
        return self.start * work.start + self.factor * work.rows

    def fitted(self, work: Work) -> Measured:
        """Return the measures by which some work takes the measured seconds: what takes longer is changed more."""
        fitted = self
        for _ in range(8):  # Newton's method; the logarithm of a sum of exponentials is convex
            start = fitted.start * work.start / fitted.time(work)
            off = math.log(self.seconds / fitted.time(work)) / (start**2 + (1 - start) ** 2)
            fitted = fitted.scaled(math.exp(off * start), math.exp(off * (1 - start)))
        return fitted

    def between(self, other: Measured, part: float) -> Measured:
        """Return the measures that are a part of the way to others."""
        return self.scaled((other.start / self.start) ** part, (other.factor / self.factor) ** part)

    def faded(self, other: Measured) -> Measured:
        """Return the measures nearer to those of the other kind, where it is faster."""
        near = self.between(other, _FADING)
        return replace(self, start=min(self.start, near.start), factor=min(self.factor, near.factor))

    def scaled(self, start: float, factor: float) -> Measured:
        """Return the measures of a start and of rows that take so many times as long."""
        return replace(self, start=self.start * start, factor=self.factor * factor)


@dataclass(frozen=True)
class Measures:
    """What the refreshes of a view took.

    Args:
        kinds: By kind; those of which there was a refresh.
        last: The kind of the last refresh; None = none was measured.
        again: How many rows refreshes by changes read for joins and groups, for each one that they read for the
            changes, by their pages; None = not known.
        tries: Of how many refreshes by changes this is the mean, as far as they count.
        since: The number of full refreshes since the last one by changes.
    """

    kinds: Mapping[Kind, Measured] = field(default_factory=dict)
    last: Kind | None = None
    again: _Ratio | None = None
    tries: _Count = 0
    since: _Count = 0

    @classmethod
    def of(cls, table: Table | None) -> Measures:
        """Return what a view's table says; nothing if it is new, or its property is damaged."""
        text = table.properties.get(COSTS) if table else None
        try:
            return cls() if text is None else _MEASURES.validate_json(text)
        except ValidationError:
            # The next refresh writes the property anew.
            return cls()

    def to_json(self) -> str:
        """Return the measures as JSON."""
        return json.dumps(asdict(self))

    def of_kind(self, kind: Kind) -> Measured:
        """Return what refreshes of a kind took; if there was none, what is likely by the other one."""
        if kind in self.kinds or not self.kinds:
            return self.kinds.get(kind, Measured(1, 0))
        (other,) = self.kinds.values()
        return replace(other, factor=_UNTRIED * other.factor)

    def after(self, kind: Kind, seconds: float, rows: int, work: Work) -> Measures:
        """Return the measures after one more refresh; what was measured of the other kind fades.

        Args:
            kind: Its kind.
            seconds: The time that it took.
            rows: How many rows of the sources it read.
            work: What it did.
        """
        old = replace(self.of_kind(kind), seconds=seconds, rows=rows)
        new = old.fitted(work)
        faded = {other: measured.faded(new) for other, measured in self.kinds.items()}
        known = old.between(new, _WEIGHT) if kind in self.kinds else new
        return replace(self, kinds={**faded, kind: known}, last=kind, since=self.since + 1 if kind == "full" else 0)

    @property
    def likely_again(self) -> float:
        """As `again`, less for each full refresh since: the mean of few refreshes is doubted sooner."""
        return (self.again or 0) * (1 - 1 / (self.tries + 1)) ** self.since

    def with_again(self, again: float) -> Measures:
        """Return the measures after a refresh by changes that read so many rows again."""
        tries, known = min(self.tries + 1, _TRIES), self.likely_again
        if again > known:
            known = self.again or 0  # The doubt was wrong.
        weight = max(1 / tries, _AGAIN_WEIGHT)
        return replace(self, again=(1 - weight) * known + weight * again, tries=tries)


_MEASURES = TypeAdapter(Measures)


@dataclass(frozen=True)
class Cost:
    """What a refresh costs, about.

    A refresh by changes reads the rows of the changes, which are known, and others for joins and groups: how many is
    known of earlier ones. The first one is estimated without them, so that it is tried unless its start is dearer than
    all of the other kind.

    Args:
        changed_rows: Rows to read for the changes of the sources.
        all_rows: All rows of the sources.
        view_rows: Rows of the view.
        measures: What earlier refreshes took.
        sources: The number of sources that have changed.
    """

    changed_rows: int
    all_rows: int
    view_rows: int
    measures: Measures = field(default_factory=Measures)
    sources: int = 1

    @property
    def again_rows(self) -> int:
        """Rows that a refresh by changes reads for joins and groups, about."""
        return int(self.measures.likely_again * self._changed_pages)

    @property
    def _changed_pages(self) -> int:
        """The rows of the pages that have changes; of a small file with new rows, those of a whole page."""
        return self.changed_rows + PAGE_ROWS * self.sources

    @property
    def most_rows(self) -> int:
        """Rows after which an incremental refresh has cost more than computing the view anew."""
        return int(_GIVEN_UP * self.all_rows)

    def rows(self, kind: Kind) -> int:
        """Return about how many rows of the sources a refresh reads."""
        return self.all_rows if kind == "full" else self.changed_rows + self.again_rows

    def seconds(self, kind: Kind) -> float:
        """Return the time of a refresh, by what earlier ones took."""
        return self.measures.of_kind(kind).time(self._work(kind, self.rows(kind)))

    def _work(self, kind: Kind, rows: int) -> Work:
        if kind == "full":
            return Work(_START[kind], _READ * rows + _WRITTEN * self.view_rows)
        return Work(_START[kind] + _SOURCE * self.sources, _READ * rows + _LOOKED_THROUGH * self.view_rows)

    def __str__(self) -> str:
        again = f", and {self.again_rows:,} for joins and groups" if self.again_rows else ""
        return f"about {self.changed_rows:,} rows to read for the changes of {self.all_rows:,}{again}"

    @property
    def favours_full(self) -> bool:
        """True if computing the view anew is cheaper; if neither is by far, the last refresh's kind stays."""
        full, incremental = self.seconds("full"), self.seconds("incremental")
        if self.measures.last == "incremental":
            return full < _MARGIN * incremental
        return (_MARGIN if "incremental" in self.measures.kinds else 1) * full < incremental

    def after(self, kind: Kind, seconds: float, rows: int) -> Measures:
        """Return the measures after a refresh.

        Args:
            kind: Its kind.
            seconds: The time that it took.
            rows: How many rows of the sources it read.
        """
        known = self.measures if kind == "full" else self.measures.with_again(self._again(rows))
        return known.after(kind, seconds, rows, self._work(kind, rows))

    def given_up(self, seconds: float, rows: int) -> Measures:
        """Return the measures after an incremental refresh that read too many rows.

        Args:
            seconds: The time that it took until then.
            rows: How many rows of the sources it had read.
        """
        least = _GIVEN_UP_TIMES * self.seconds("full")
        again = max(self.measures.again or 0, _GIVEN_UP_TIMES * self._again(rows))
        return replace(self.after("incremental", max(seconds, least), rows), again=again)

    def _again(self, rows: int) -> float:
        """Return how many of the rows that a refresh read were not for the changes, for each one of these."""
        return max(0, rows - self.changed_rows) / max(1, self._changed_pages)

    @property
    def comparison(self) -> str:
        """Both estimates, as text."""
        return f"about {self.seconds('full'):.2g} s, by changes {self.seconds('incremental'):.2g} s"


def cost_of(operator: ViewOperator, view_rows: int, measures: Measures) -> Cost:
    """Return what a refresh of a query costs.

    Args:
        operator: The query.
        view_rows: The rows of its view.
        measures: What earlier refreshes took.
    """
    changed = [scan.changed_rows for scan in _scans(operator)]
    return Cost(sum(changed), _rows_of(operator), view_rows, measures, sum(map(bool, changed)))


def full_cost(operator: ViewOperator, view_rows: int, measures: Measures) -> Cost:
    """Return the cost of computing a view anew alone, which needs no changes; the arguments are those of `cost_of`."""
    return Cost(0, _rows_of(operator), view_rows, measures)


def _rows_of(operator: ViewOperator) -> int:
    return sum(scan.all_rows for scan in _scans(operator))


def _scans(operator: ViewOperator) -> list[Scan]:
    return [part for part in operator.walk() if isinstance(part, Scan)]
