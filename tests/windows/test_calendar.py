"""Windows of the calendar: days and longer, by the clocks of a zone."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

from tests.tiers import some
from tests.windows.local import windows
from volley import ConfigError, Environment, ExpressionError, MemorySource, calendar, count
from volley.plan.windows import CalendarUnit

SCHEMA = pa.schema({"at": pa.timestamp("us", "UTC")})
# Clocks were put back over midnight, left midnight out, left a whole day out, and have rules for years to come.
CHANGES = {
    "Europe/Berlin": date(2024, 10, 27),
    "America/St_Johns": date(2010, 11, 7),
    "America/Sao_Paulo": date(2017, 10, 15),
    "Pacific/Apia": date(2011, 12, 30),
    "America/New_York": date(2060, 3, 14),
    "Asia/Kolkata": date(1950, 1, 1),
}


def begins(day: date, zone: str) -> datetime:
    """The first minute in which clocks of a zone show a date, or a later one."""
    at = datetime(day.year, day.month, day.day, tzinfo=UTC) - timedelta(hours=27)
    while at.astimezone(ZoneInfo(zone)).date() < day:
        at += timedelta(minutes=1)
    return at


def first_day(unit: CalendarUnit, day: date, number: int) -> date:
    """The first day of a unit that is so many behind that of a day."""
    if unit in ("day", "week"):
        back, days = (0, 1) if unit == "day" else (day.weekday(), 7)
        return day - timedelta(days=back) + timedelta(days=days * number)
    months = {"month": 1, "quarter": 3, "year": 12}[unit]
    month = ((day.year * 12 + day.month - 1) // months + number) * months
    return date(month // 12, month % 12 + 1, 1)


@pytest.mark.parametrize("zone", some(CHANGES, by=lambda zone: zone == "Europe/Berlin"))
@pytest.mark.parametrize("unit", ["day", "week", "month", "quarter", "year"])
def test_windows_are_those_of_a_zones_clocks(unit: CalendarUnit, zone: str, tmp_path: Path) -> None:
    dice, noon = random.Random(7), datetime.combine(CHANGES[zone], datetime.min.time(), UTC)
    days = dict.fromkeys(first_day(unit, CHANGES[zone], number) for number in range(-3, 5))
    bounds = sorted({begins(day, zone) for day in days})
    near = [bound + timedelta(microseconds=by) for bound in bounds[1:-1] for by in (-1, 0, 1)]
    times = [*near, *(noon + timedelta(minutes=dice.randrange(-2_880, 2_880)) for _ in range(200))]
    dice.shuffle(times)
    rows = Environment().from_source(MemorySource(SCHEMA.empty_table())).key_by()
    groups = rows.window(calendar(unit, zone), on="at", lateness="9000d", max_ahead=None).aggregate(n=count())
    job = windows(groups, SCHEMA, tmp_path)
    parts = [times[:100], times[100:]]
    out = [
        job.epoch(number, [(0, [pa.record_batch([pa.array(part, SCHEMA.field(0).type)], schema=SCHEMA)])], number == 1)
        for number, part in enumerate(parts)
    ]
    expected = Counter((bounds[place - 1], bounds[place]) for place in (bisect_right(bounds, at) for at in times))
    found: dict[Any, int] = {
        (row["window_start"], row["window_end"]): row["n"] for table in out for row in table.to_pylist()
    }
    assert found == expected


def test_a_zone_needs_times_with_a_zone() -> None:
    rows = Environment().from_source(MemorySource([], "at timestamp_ntz"))
    local = rows.key_by().window(calendar("day", "Europe/Berlin"), on="at").aggregate(n=count())
    with pytest.raises(ExpressionError, match="without a zone") as caught:
        _ = local.schema
    assert 'from_zone("Europe/Berlin")' in str(caught.value.hint)


@pytest.mark.parametrize("wrong", [("fortnight", None), ("day", "Europe/Atlantis"), ("day", "")])
def test_wrong_units_and_zones_are_refused(wrong: tuple[Any, Any]) -> None:
    with pytest.raises(ConfigError, match=f"unit 'fortnight'|zone '{wrong[1]}'"):
        calendar(*wrong)
