"""Which refresh of a view is taken to be cheaper, by what earlier ones took."""

from __future__ import annotations

from dataclasses import replace

import pytest

from volley.iceberg.views.costs import Cost, Kind, Measured, Measures


def cost(incremental: float, full: float, last: Kind | None = None) -> Cost:
    """The cost of a refresh whose two kinds take some seconds."""
    plain = Cost(changed_rows=1_000, again_rows=0, all_rows=1_000_000, view_rows=1_000)
    times: dict[Kind, float] = {"incremental": incremental, "full": full}
    kinds = {kind: Measured(seconds, 1, seconds / plain.estimate(kind)) for kind, seconds in times.items()}
    return Cost(1_000, 0, 1_000_000, 1_000, Measures(kinds, last))


@pytest.mark.parametrize(
    ("incremental", "full", "last", "is_full"),
    [
        (1.0, 2.0, "incremental", False),
        (2.0, 1.0, "incremental", True),
        (1.0, 2.0, "full", False),
        (2.0, 1.0, "full", True),
        # Neither is cheaper by far: the last kind stays.
        (1.0, 0.9, "incremental", False),
        (0.9, 1.0, "full", True),
    ],
)
def test_the_cheaper_kind(incremental: float, full: float, last: Kind, is_full: bool) -> None:
    known = cost(incremental, full, last)
    assert known.favours_full == is_full
    assert (known.seconds("incremental"), known.seconds("full")) == pytest.approx((incremental, full))


def test_without_measurements_the_estimates_decide() -> None:
    assert Cost(1_000, 0, 1_000, 1_000).favours_full
    assert not Cost(1_000, 0, 20_000_000, 2_000_000).favours_full
    # A slow full refresh tells how long rows take, but not how long the other kind takes to start.
    measures, plain = Measures().after("full", 3.0, 1, estimate=1.0), Cost(1_000_000, 0, 1_000_000, 1_000)
    start = Cost(0, 0, 1_000_000, 0).estimate("incremental")
    known = Cost(1_000_000, 0, 1_000_000, 1_000, measures)
    assert known.seconds("incremental") == pytest.approx(start + 3 * (plain.estimate("incremental") - start))


def test_a_first_refresh_by_changes_is_tried_if_reading_the_changes_is_cheaper() -> None:
    measures = Measures().after("full", 0.1, 600_000, estimate=0.1)
    unknown = Cost(440_000, 440_000, 1_000_000, 10, measures)
    assert unknown.seconds("incremental") < unknown.seconds("full") * 1.2
    assert not unknown.favours_full
    # The changes led to many rows: it counts as dearer, and is not tried again at once.
    known = replace(unknown, measures=unknown.given_up(0.05, 1_500_001).after("full", 0.1, 1_000_000, estimate=0.1))
    assert known.favours_full
    assert known.seconds("incremental") > 1.5 * known.seconds("full")


def test_one_slow_refresh_does_not_rule_its_kind_out() -> None:
    """It is tried again after some of the other kind, and what it takes then counts."""
    measures = Measures().after("full", 0.5, 1, estimate=0.5).after("incremental", 0.1, 1, estimate=0.1)
    measures = measures.after("incremental", 10.0, 1, estimate=0.1)
    refreshes = 0
    while Cost(1_000, 0, 2_000_000, 100_000, measures).favours_full:
        estimate = Cost(1_000, 0, 2_000_000, 100_000).estimate("full")
        measures = measures.after("full", estimate, 1, estimate)
        refreshes += 1
    assert 1 <= refreshes <= 40
    for _ in range(5):
        measures = measures.after("incremental", 0.1, 1, estimate=0.1)
    assert measures.factor("incremental") == pytest.approx(1.0, rel=0.2)
