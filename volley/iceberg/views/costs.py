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

__all__ = ["COSTS", "Cost", "Kind", "Measured", "Measures", "Work", "cost_of", "full_cost", "scans_of"]

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
# An incremental refresh is given up before what it reads for joins and groups would take more than this part of the
# other kind's time: what follows is not known yet.
_GIVEN_UP = 0.9
# A measured time counts for a quarter, the first ones of refreshes by changes for more: one slow refresh does not rule
# its kind out. A part counts for the other kind, too: it is likely to be the computer that was slower. By each refresh
# of the other kind an old one comes so much nearer to what is likely by that, if it was slower, so that its kind is
# tried again.
_WEIGHT, _BOTH, _FADING = 0.25, 0.15, 0.08
# Rows that are read for changes alone take about so much of the time of those that are computed with: all of a full
# refresh, and those that an incremental one reads for joins and groups.
_CHANGES_ALONE = 0.5
# How many rows the changes lead to differs more from refresh to refresh: each counts as one of a few. By each full
# refresh since, their mean is doubted as if it were of so many more.
_AGAIN_WEIGHT, _TRIES, _DOUBT = 0.25, 8, 4


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

    def along(self, old: Measured, new: Measured, part: float) -> Measured:
        """Return the measures after a part of the way between two others."""
        return self.scaled((new.start / old.start) ** part, (new.factor / old.factor) ** part)

    def of_other(self, kind: Kind) -> Measured:
        """Return what is likely of a kind by these measures of the other one."""
        return self.scaled(1, _CHANGES_ALONE if kind == "incremental" else 1 / _CHANGES_ALONE)

    def faded(self, likely: Measured) -> Measured:
        """Return the measures nearer to those that are likely by the other kind, where these are faster."""
        near = self.along(self, likely, _FADING)
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
        return other.of_other(kind)

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
        others = {
            other: measured.along(old, new, _BOTH).faded(new.of_other(other)) for other, measured in self.kinds.items()
        }
        known = old.along(old, new, self._weight(kind))
        return replace(self, kinds={**others, kind: known}, last=kind, since=self.since + 1 if kind == "full" else 0)

    def _weight(self, kind: Kind) -> float:
        """Return what a measured time counts."""
        if not self.kinds:
            return 1
        return max(_WEIGHT, 1 / (self.tries + 1)) if kind == "incremental" else _WEIGHT

    @property
    def likely_again(self) -> float:
        """As `again`, less for each full refresh since: the mean of few refreshes is doubted sooner."""
        return (self.again or 0) * (1 - 1 / (self.tries + _DOUBT)) ** self.since

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
        """Rows that an incremental refresh may read: more take longer than computing the view anew."""
        return self.changed_rows + int(_GIVEN_UP * self._work("full", self.all_rows).rows / _READ)

    def rows(self, kind: Kind) -> int:
        """Return about how many rows of the sources a refresh reads."""
        return self.all_rows if kind == "full" else self.changed_rows + self.again_rows

    def seconds(self, kind: Kind) -> float:
        """Return the time of a refresh, by what earlier ones took."""
        return self.measures.of_kind(kind).time(self._work(kind, self.rows(kind)))

    def _work(self, kind: Kind, rows: int) -> Work:
        if kind == "full":
            return Work(_START[kind], _READ * rows + _WRITTEN * self.view_rows)
        again = max(0, rows - self.changed_rows)
        read = _READ * (rows - again + again / _CHANGES_ALONE)
        return Work(_START[kind] + _SOURCE * self.sources, read + _LOOKED_THROUGH * self.view_rows)

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
        """Return the measures after an incremental refresh that was given up.

        Args:
            seconds: The time that it took until then; the rest counts as long as the other kind takes.
            rows: How many rows of the sources it would have read, at least.
        """
        return self.after("incremental", seconds + self.seconds("full"), rows)

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
    changed = [scan.changed_rows for scan in scans_of(operator)]
    return Cost(sum(changed), _rows_of(operator), view_rows, measures, sum(map(bool, changed)))


def full_cost(operator: ViewOperator, view_rows: int, measures: Measures) -> Cost:
    """Return the cost of computing a view anew alone, which needs no changes; the arguments are those of `cost_of`."""
    return Cost(0, _rows_of(operator), view_rows, measures)


def _rows_of(operator: ViewOperator) -> int:
    return sum(scan.all_rows for scan in scans_of(operator))


def scans_of(operator: ViewOperator) -> list[Scan]:
    """Return the sources of a query, in plan order."""
    return [part for part in operator.walk() if isinstance(part, Scan)]
