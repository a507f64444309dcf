"""Which refresh of a view is taken to be cheaper, by the rows that it reads and by what earlier ones took."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from itertools import cycle
from types import SimpleNamespace
from typing import Any

import pytest

from volley.iceberg.views.costs import Cost, Kind, Measured, Measures, Work

ALL = 1_000_000


def measured(rows: float, start: float = 1.0) -> Measured:
    """Refreshes whose rows, and whose start, took so many times as long as estimated."""
    return Measured(1, 1, rows, start)


@dataclass
class Refreshes:
    """A view that is refreshed as the estimates say, on a computer on which a row takes half a microsecond.

    That of a change takes half of it.

    Args:
        start: Seconds that every refresh takes for its start.
    """

    all_rows: int = ALL
    start: float = 0.03
    measures: Measures = field(default_factory=Measures)
    taken: str = ""
    seconds: float = 0

    def __post_init__(self) -> None:
        self._took(Cost(0, self.all_rows, 10), "full", self.all_rows)

    def _took(self, cost: Cost, kind: Kind, rows: int) -> None:
        seconds = self._seconds(cost.changed_rows, rows - cost.changed_rows)
        self.measures = cost.after(kind, seconds, rows)
        self.seconds += seconds

    def _seconds(self, changed: int, others: int = 0) -> float:
        return self.start + 0.25e-6 * changed + 0.5e-6 * others

    def refresh(self, changed: int, again: int) -> str:
        """Refresh after changes of which so many rows are read, and then others; return the kind that was taken."""
        cost = Cost(changed, self.all_rows, 10, self.measures)
        if cost.favours_full:
            self._took(replace(cost, changed_rows=0), "full", self.all_rows)
        elif changed + again > cost.most_rows:
            given_up = cost.given_up(self._seconds(changed), changed + again)
            self.seconds += self._seconds(changed)
            self._took(replace(cost, changed_rows=0, measures=given_up), "full", self.all_rows)
            self.taken += "given up "
        else:
            self._took(cost, "incremental", changed + again)
        self.taken += "f" if self.measures.last == "full" else "i"
        return self.taken[-1]


@pytest.mark.parametrize(
    ("incremental", "full", "last", "is_full"),
    [
        (10, 20, "incremental", False),
        (20, 10, "incremental", True),
        (10, 20, "full", False),
        (20, 10, "full", True),
        # Neither is cheaper by far: the last kind stays.
        (10, 9, "incremental", False),
        (9, 10, "full", True),
    ],
)
def test_the_cheaper_kind(incremental: float, full: float, last: Kind, is_full: bool) -> None:
    """Both read all rows."""
    kinds: dict[Kind, Measured] = {"incremental": measured(incremental), "full": measured(full)}
    known = Cost(ALL, ALL, 1_000, Measures(kinds, last))
    assert known.favours_full == is_full
    # Rows take 0.07 us; a view's row 0.05 us to look through, 0.3 us to write.
    assert known.seconds("incremental") == pytest.approx(0.035 + incremental * 0.07005)
    assert known.seconds("full") == pytest.approx(0.03 + full * 0.0703)


def test_without_measurements_the_estimates_decide() -> None:
    assert Cost(1_000, 1_000, 1_000).favours_full
    assert not Cost(1_000, 20_000_000, 2_000_000).favours_full
    # A full refresh whose rows were slow tells how long rows take, but not how long the other kind takes to start.
    slow = Measures({"full": measured(30)}, "full")
    assert Cost(ALL, ALL, 0, slow).seconds("incremental") == pytest.approx(0.035 + 15 * 0.07)
    assert Cost(0, ALL, 0, slow).seconds("incremental") == pytest.approx(0.035)


def test_a_refresh_is_judged_by_the_rows_that_it_would_read() -> None:
    """A refresh by changes that read many rows was slow: the next one is by changes nevertheless, if these are few."""
    view = Refreshes()
    assert view.refresh(200_000, 660_000) == "i"
    dear = Cost(200_000, ALL, 10, view.measures)
    assert (dear.rows("incremental"), dear.rows("full")) == (860_000, ALL)
    assert str(dear) == "about 200,000 rows to read for the changes of 1,000,000, and 660,000 for joins and groups"
    choices = {rows: replace(dear, changed_rows=rows).favours_full for rows in (0, 50_000, 150_000, 400_000, ALL)}
    assert choices == {0: False, 50_000: False, 150_000: False, 400_000: True, ALL: True}


def test_the_choice_follows_the_mean_of_the_rows_that_were_read_again() -> None:
    """One refresh in four reads all rows again: by changes is cheaper on the whole, after such a one, too."""
    view = Refreshes()
    for again in (0, 0, 0, ALL) * 6:
        view.refresh(100_000, again)
    assert view.taken == "iiigiven up f" * 6


def test_rows_that_are_always_read_again_rule_changes_out_but_for_a_try_now_and_then() -> None:
    view = Refreshes()
    for _ in range(60):
        view.refresh(900_000, 850_000)
    assert view.taken.startswith("if")
    assert "ii" not in view.taken
    assert 3 <= view.taken.count("i") <= 15
    # The more often it was dear, the more seldom it is tried; when the changes lead to few rows, it is found out.
    assert view.taken[30:].count("i") <= view.taken[:30].count("i")
    for _ in range(30):
        view.refresh(20_000, 1_000)
    assert view.taken.endswith("i" * 10)


@pytest.mark.parametrize("changes", [(20_000, 300), (300, 20_000)])
def test_how_few_rows_have_changed_does_not_matter_to_what_few_changes_lead_to(changes: tuple[int, ...]) -> None:
    """A new file of some rows is less than a page of one with deleted rows, but may lead to as many others."""
    view = Refreshes()
    for changed, _ in zip(cycle(changes), range(20), strict=False):
        view.refresh(changed, 100_000)
    assert view.taken == "i" * 20


@pytest.mark.parametrize("changed", [1_000, 100_000, 300_000, 440_000, 900_000])
def test_refreshes_that_are_given_up_cost_less_than_a_fifth_of_full_ones(changed: int) -> None:
    """They are tried now and then, the less often the more the changes take."""
    view = Refreshes()
    full, view.seconds = view.seconds, 0
    for _ in range(40):
        view.refresh(changed, 5 * ALL)
    assert "given up f" in view.taken
    assert view.seconds < 1.2 * 40 * full


def test_the_start_of_a_refresh_is_measured_apart_from_its_rows() -> None:
    """On a slow computer a refresh of few rows is as slow: that tells nothing of rows."""
    view = Refreshes(start=0.2)
    for _ in range(10):
        view.refresh(1_000, 0)
    later = Cost(1_000, ALL, 10, view.measures)
    assert later.seconds("incremental") == pytest.approx(0.2, rel=0.05)
    assert replace(later, changed_rows=ALL).seconds("incremental") == pytest.approx(0.7, rel=0.3)
    # Where the start is all, the kind that starts faster is taken, though it starts slower than is estimated.
    small = Cost(10, 10, 0, Measures({"incremental": measured(1, 4), "full": measured(1, 6)}, "full"))
    assert not small.favours_full


def test_one_slow_refresh_does_not_rule_its_kind_out() -> None:
    """Nor does it make the other kind the cheaper one, as the computer may have been slow; what follows counts."""
    view = Refreshes()
    view.refresh(100_000, 0)
    view.measures = Cost(100_000, ALL, 10, view.measures).after("incremental", 50, 100_000)
    for _ in range(40):
        view.refresh(100_000, 0)
    assert view.taken == "i" * 41
    assert Cost(100_000, ALL, 10, view.measures).seconds("incremental") == pytest.approx(0.055, rel=0.2)


@pytest.mark.parametrize("seconds", [1e-6, 0.001, 0.05, 1, 1_000])
@pytest.mark.parametrize("work", [Work(0.03, 0), Work(0.03, 1e-6), Work(0.03, 0.03), Work(0.03, 100)])
def test_the_measures_fit_what_was_measured(seconds: float, work: Work) -> None:
    fitted = replace(measured(1), seconds=seconds).fitted(work)
    assert fitted.time(work) == pytest.approx(seconds, rel=1e-6)
    assert Measures.of(table(Measures({"full": fitted}, "full").to_json())).kinds == {"full": fitted}


def table(costs: str) -> Any:
    """As much of a table as is asked for."""
    return SimpleNamespace(properties={"volley.view.costs": costs})


def test_measures_of_an_older_version_are_read() -> None:
    """They do not know what a start takes, nor how many rows were read again."""
    text = '{"kinds": {"full": {"seconds": 1.5, "rows": 9, "factor": 2.0}}, "last": "full"}'
    known = Measures.of(table(text))
    assert known == Measures({"full": Measured(1.5, 9, 2.0, 1.0)}, "full", None)
    kinds = {"full": {"seconds": 1.5, "rows": 9, "factor": 2.0, "start": 1.0}}
    assert json.loads(known.to_json()) == {"kinds": kinds, "last": "full", "again": None, "tries": 0, "since": 0}


@pytest.mark.parametrize("damaged", ["1e300", "1e-300", "NaN", "0", "-1"])
@pytest.mark.parametrize("name", ["seconds", "factor", "start"])
def test_measures_that_no_refresh_writes_are_none(name: str, damaged: str) -> None:
    text = '{"kinds": {"full": {"seconds": 1.0, "rows": 9, "factor": 1.0, "start": 1.0}}, "last": "full"}'
    assert Measures.of(table(text)).kinds
    assert Measures.of(table(text.replace(f'"{name}": 1.0', f'"{name}": {damaged}'))) == Measures()
