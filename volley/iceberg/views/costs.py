"""Estimates whether a view is cheaper to bring up to date by changes or to compute anew."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, ValidationError
from pyiceberg.table import Table

from volley.iceberg.views.group import Group, rereading
from volley.iceberg.views.operators import ViewOperator
from volley.iceberg.views.scan import Scan

__all__ = ["COSTS", "Cost", "Kind", "Measured", "Measures", "cost_of", "full_cost"]

COSTS = "volley.view.costs"
"""What refreshes took, as JSON: a table property, and in the summary of each of the view's snapshots."""

Kind = Literal["incremental", "full"]
"""The two ways of a refresh that does something."""

_Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]

# CPU-microseconds, measured by `python -m benchmarks view_refresh tpch_views` with mode=incremental and mode=full. An
# incremental refresh looks for the changes of each source.
_FIXED: Mapping[Kind, float] = {"incremental": 20_000.0, "full": 30_000.0}
_SOURCE = 15_000.0
# Per row of a source that is read for changes, or to compute rows from; per row of the view that is looked through, or
# is written. How many rows are read again for joins and groups inside of a query depends on how the sources are
# clustered: about as many as for the changes, until a refresh by changes tells.
_CHANGED, _READ = 0.03, 0.07
_LOOKED_THROUGH, _WRITTEN = 0.05, 0.3

# The other kind of refresh has to take less than this part of the last one's kind: estimates differ from run to run.
_MARGIN = 0.85
# An incremental refresh is given up when it has read so many times the rows of the sources: what is left of it would
# take longer than the other kind. How long is not known; it counts as so many times the time of the other kind.
_GIVEN_UP, _GIVEN_UP_TIME = 1.5, 4
# A measurement counts for half: one slow refresh does not rule its kind out.
_WEIGHT = 0.5
# By each refresh of the other kind an old measurement comes nearer to the estimate, so that its kind is tried again:
# one that was a fifth dearer after three refreshes, one that was given up after ten, as that costs twice as much.
_FADING = 0.08


@dataclass(frozen=True)
class Measured:
    """What refreshes of one kind took.

    Args:
        seconds: The time of the last one, or of the processor if that is less.
        rows: How many rows of the sources it read.
        factor: How many times as long as the estimate refreshes take.
    """

    seconds: _Positive
    rows: int
    factor: _Positive


@dataclass(frozen=True)
class Measures:
    """What the refreshes of a view took.

    Args:
        kinds: By kind; those of which there was a refresh.
        last: The kind of the last refresh; None = none was measured.
    """

    kinds: Mapping[Kind, Measured] = field(default_factory=dict)
    last: Kind | None = None

    @classmethod
    def of(cls, table: Table | None) -> Measures:
        """Return what a view's table says; nothing if it is new, or its property is damaged or of an older version."""
        text = table.properties.get(COSTS) if table else None
        try:
            return cls() if text is None else _MEASURES.validate_json(text)
        except ValidationError:
            # The next refresh writes the property anew.
            return cls()

    def to_json(self) -> str:
        """Return the measures as JSON."""
        return json.dumps(asdict(self))

    def factor(self, kind: Kind) -> float:
        """Return how many times as long as the estimate a kind of refresh takes; that of the other one if unknown."""
        known = self.kinds.get(kind) or next(iter(self.kinds.values()), None)
        return known.factor if known else 1.0

    def after(self, kind: Kind, seconds: float, rows: int, estimate: float) -> Measures:
        """Return the measures after one more refresh.

        Args:
            kind: Its kind.
            seconds: The time that it took.
            rows: How many rows of the sources it read.
            estimate: Its time in seconds as `Cost` estimates it.
        """
        factor, old = seconds / estimate, self.kinds.get(kind)
        if old is not None:
            factor = _between(old.factor, factor, _WEIGHT)
        faded = {
            other: replace(measured, factor=min(measured.factor, _between(measured.factor, 1.0, _FADING)))
            for other, measured in self.kinds.items()
        }
        return Measures({**faded, kind: Measured(seconds, rows, factor)}, kind)


_MEASURES = TypeAdapter(Measures)


def _between(one: float, other: float, part: float) -> float:
    """Return the factor that is a part of the way from one to another."""
    return float(one ** (1 - part) * other**part)


@dataclass(frozen=True)
class Cost:
    """What a refresh costs, about.

    Args:
        changed_rows: Rows to read for the changes of the sources.
        again_rows: Rows to read by the keys of these changes, about.
        all_rows: All rows of the sources.
        view_rows: Rows of the view.
        measures: What earlier refreshes took.
        sources: The number of sources.
    """

    changed_rows: int
    again_rows: int
    all_rows: int
    view_rows: int
    measures: Measures = field(default_factory=Measures)
    sources: int = 1

    @property
    def incremental(self) -> float:
        """The CPU time of an incremental refresh in microseconds, on the computer that the constants are of."""
        read = _CHANGED * self.changed_rows + _READ * self.again_rows
        return self._fixed("incremental") + read + _LOOKED_THROUGH * self.view_rows

    @property
    def full(self) -> float:
        """The CPU time of a full refresh in microseconds, on the computer that the constants are of."""
        return self._fixed("full") + _READ * self.all_rows + _WRITTEN * self.view_rows

    def _fixed(self, kind: Kind) -> float:
        return _FIXED[kind] + (_SOURCE * self.sources if kind == "incremental" else 0)

    def __str__(self) -> str:
        return f"about {self.changed_rows:,} rows to read for the changes of {self.all_rows:,}"

    def estimate(self, kind: Kind) -> float:
        """Return the time of a refresh in seconds without regard to earlier ones."""
        return (self.full if kind == "full" else self.incremental) / 1e6

    def seconds(self, kind: Kind) -> float:
        """Return the time of a refresh in seconds, by what earlier ones took.

        A slow refresh of the other kind tells how long the rows of this one take, but not how long it takes to start.
        """
        fixed = 0.0 if kind in self.measures.kinds else self._fixed(kind) / 1e6
        return fixed + (self.estimate(kind) - fixed) * self.measures.factor(kind)

    @property
    def favours_full(self) -> bool:
        """True if computing the view anew is cheaper; if neither is by far, the last refresh's kind stays.

        How many rows the changes lead to is not known before a first refresh by changes: that one is tried if reading
        the changes is cheaper.
        """
        if self.measures.last == "full" and "incremental" not in self.measures.kinds:
            return self.seconds("full") < replace(self, again_rows=0).seconds("incremental")
        full, incremental = self.seconds("full"), self.seconds("incremental")
        if self.measures.last == "incremental":
            return full < _MARGIN * incremental
        return _MARGIN * full < incremental if self.measures.last == "full" else full < incremental

    @property
    def most_rows(self) -> int:
        """Rows after which an incremental refresh has cost more than computing the view anew."""
        return int(_GIVEN_UP * self.all_rows)

    def given_up(self, seconds: float, rows: int) -> Measures:
        """Return the measures after an incremental refresh that read too many rows.

        Args:
            seconds: The time that it took until then.
            rows: How many rows of the sources it had read.
        """
        least = _GIVEN_UP_TIME * self.seconds("full")
        return self.measures.after("incremental", max(seconds, least), rows, self.estimate("incremental"))

    @property
    def comparison(self) -> str:
        """Both estimates, as text."""
        return f"about {self.seconds('full'):.2g} s, by changes {self.seconds('incremental'):.2g} s"


def full_cost(operator: ViewOperator, view_rows: int) -> Cost:
    """Return the cost of computing a view anew alone, which needs no changes.

    Args:
        operator: The query.
        view_rows: The rows of its view.
    """
    return Cost(0, 0, _rows_of(operator), view_rows)


def cost_of(operator: ViewOperator, view_rows: int, measures: Measures) -> Cost:
    """Return what a refresh of a query costs.

    Args:
        operator: The query.
        view_rows: The rows of its view.
        measures: What earlier refreshes took.
    """
    scans = _scans(operator)
    changed = sum(scan.changed_rows for scan in scans)
    again = changed if _rereads(operator) else 0
    return Cost(changed, again, _rows_of(operator), view_rows, measures, len(scans))


def _rereads(operator: ViewOperator) -> bool:
    """Return True if rows have to be read again for changed ones."""
    loses_rows = any(scan.loses_rows for scan in _scans(operator))
    return bool(rereading(operator)) or (isinstance(operator, Group) and operator.is_fragile and loses_rows)


def _rows_of(operator: ViewOperator) -> int:
    return sum(scan.all_rows for scan in _scans(operator))


def _scans(operator: ViewOperator) -> list[Scan]:
    return [part for part in operator.walk() if isinstance(part, Scan)]
