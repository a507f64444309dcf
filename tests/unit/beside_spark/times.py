"""Calls on dates and times, and on texts that name them."""

from __future__ import annotations

from typing import get_args

from tests.unit.beside_spark.case import Call, cases
from volley import Expr, col, greatest, least, murmur3, xxhash64
from volley.plan.times import ClockUnit

__all__ = ["TIMES"]

d, e, z, a, n, k, c, seconds = map(col, "dezankcl")

_FORMATS = {
    "%Y-%m-%d": "yyyy-MM-dd",
    "%d %b %y %a %j": "dd MMM yy E DDD",
    "%B %A": "MMMM EEEE",
    "%I %p": "hh a",
    "%Y-%m-%d %H:%M:%S.%f": "yyyy-MM-dd HH:mm:ss.SSSSSS",
}


def _days(day: Expr, other: Expr, names: str, own: str) -> list[Call]:
    """Return the functions of dates and timestamps."""
    name, earlier = tuple(names)
    units = ["year", "quarter", "month", "week", "day"]
    return [
        ("dt.year", day.dt.year(), f"year({name})"),
        ("dt.quarter", day.dt.quarter(), f"quarter({name})"),
        ("dt.month", day.dt.month(), f"month({name})"),
        ("dt.day", day.dt.day(), f"day({name})"),
        ("dt.weekday", day.dt.weekday(), f"weekday({name}) + 1"),
        ("dt.day_of_year", day.dt.day_of_year(), f"dayofyear({name})"),
        ("dt.iso_week", day.dt.iso_week(), f"weekofyear({name})"),
        ("dt.add_months", day.dt.add_months(1), f"add_months({name}, 1)"),
        ("dt.add_months", day.dt.add_months(1), f"{name} + interval '1' month"),
        ("dt.add_months", day.dt.add_months(-1), f"{name} - interval '1' month"),
        ("dt.add", day.dt.add(days=-1), f"{name} - interval '1' day"),
        ("dt.since", day.dt.since(other, "day"), f"timestampdiff(day, {earlier}, {name})"),
        ("dt.since", day.dt.since(other, "day"), f"datediff({name}, {earlier})"),
        ("dt.truncate", day.dt.truncate("month"), f"date_trunc('month', {name})"),
        *(
            ("dt.truncate", day.dt.truncate(unit), f"cast(date_trunc('{unit}', {name}) as {own})")  # type: ignore[arg-type]
            for unit in (units if own == "date" else [*units, "hour", "minute", "second", "millisecond"])
        ),
        *(
            ("dt.format", day.dt.format(ours), f"date_format({name}, '{java}')")
            for ours, java in _FORMATS.items()
            if own != "date" or "%H" not in ours
        ),
        ("lt", day < other, f"{name} < {earlier}"),
        ("eq", day == other, f"{name} = {earlier}"),
        ("greatest", greatest(day, other), f"greatest({name}, {earlier})"),
        ("least", least(day, other), f"least({name}, {earlier})"),
        ("murmur3", murmur3(day), f"hash({name})"),
        ("xxhash64", xxhash64(day), f"xxhash64({name})"),
    ]


_CLOCK: list[Call] = [
    ("dt.hour", z.dt.hour(), "hour(z)"),
    ("dt.minute", z.dt.minute(), "minute(z)"),
    ("dt.second", z.dt.second(), "second(z)"),
    ("dt.microsecond", z.dt.microsecond(), "cast(date_format(z, 'SSSSSS') as int)"),
    ("dt.add", z.dt.add(hours=1), "z + interval '1' hour"),
    ("dt.add", z.dt.add(microseconds=-1), "z - interval '0.000001' second"),
    ("dt.since", z.cast("date").dt.since(a.cast("date"), "day"), "datediff(date(z), date(a))"),
    *(
        ("dt.since", z.dt.since(a, unit), f"timestampdiff({unit}, a, z)")
        for unit in get_args(ClockUnit)
        if unit != "day"
    ),
]

_INSTANTS: list[Call] = [
    ("dt.epoch_seconds", z.dt.epoch_seconds(), "unix_seconds(z)"),
    ("dt.epoch_seconds", z.dt.epoch_seconds(), "unix_timestamp(z)"),
    ("dt.in_zone", z.dt.in_zone("Europe/Berlin"), "cast(from_utc_timestamp(z, 'Europe/Berlin') as timestamp_ntz)"),
    ("dt.in_zone", z.dt.in_zone("Asia/Kolkata"), "convert_timezone('UTC', 'Asia/Kolkata', cast(z as timestamp_ntz))"),
]

_BERLIN: list[Call] = [
    ("dt.from_zone", n.dt.from_zone("Europe/Berlin"), "to_utc_timestamp(cast(n as timestamp), 'Europe/Berlin')"),
]

_TIMES: list[Call] = [
    ("dt.hour", k.dt.hour(), "hour(k)"),
    ("dt.minute", k.dt.minute(), "minute(k)"),
    ("dt.second", k.dt.second(), "second(k)"),
    ("lt", k < k, "k < k"),
]

_EPOCHS: list[Call] = [
    ("from_epoch", seconds.from_epoch("second"), "timestamp_seconds(l)"),
    ("from_epoch", seconds.from_epoch("millisecond"), "timestamp_millis(l)"),
    ("from_epoch", seconds.from_epoch("microsecond"), "timestamp_micros(l)"),
]

_DATES_OF_TEXTS: list[Call] = [
    ("str.to_date", c.str.to_date(ours), f"try_to_date(c, '{java}')")
    for ours, java in {
        "%Y-%m-%d": "yyyy-MM-dd",
        "%Y%m%d": "yyyyMMdd",
        "%Y/%m/%d": "yyyy/MM/dd",
        "%y-%m-%d": "yy-MM-dd",
        "%d %b %Y": "dd MMM yyyy",
        "%d %B %Y": "dd MMMM yyyy",
        "%Y-%j": "yyyy-DDD",
    }.items()
]

_MOMENTS_OF_TEXTS: list[Call] = [
    (
        "str.to_timestamp",
        c.str.to_timestamp(),
        "cast(try_to_timestamp(c, 'yyyy-MM-dd HH:mm:ss') as timestamp_ntz)",
    ),
    (
        "str.to_timestamp",
        c.str.to_timestamp("%Y-%m-%d %H:%M:%S%z"),
        "try_to_timestamp(c, 'yyyy-MM-dd HH:mm:ssXXX')",
    ),
]

TIMES = [
    *cases("dates", _days(d, e, "de", "date")),
    *cases("instants", [*_days(z, a, "za", "timestamp"), *_CLOCK, *_INSTANTS]),
    *cases("clocks", [*_days(z, a, "za", "timestamp_ntz"), *_CLOCK]),
    *cases("clocks in Berlin", _BERLIN),
    *cases("times", _TIMES),
    *cases("whole seconds", _EPOCHS),
    *cases("dates in texts", _DATES_OF_TEXTS),
    *cases("moments in texts", _MOMENTS_OF_TEXTS),
]
