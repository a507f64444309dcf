"""Parses texts as points in time by a format of C's strptime."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["has_offset", "moments"]

_PARTS = {"T": "%H:%M:%S", "F": "%Y-%m-%d", "R": "%H:%M", "D": "%m/%d/%y"}
# %Y has four digits, as in Spark and Python: strptime takes "26" for the year 26.
_DIGITS = {"Y": "[0-9]{4}", "S": "[0-5]?[0-9]", "j": "[0-9]{1,3}", "z": "(?:Z|[+-].+)"}
_WORDS = "aAbBhp"
_MINUTE = 60 * 10**6
_YEAR_1000 = -30610224000 * 10**6


def moments(texts: Any, format: str) -> Any:
    """Return an array or scalar of texts as timestamps; null where the format does not fit, or there is no such time.

    Arrow reads 30 February as 1 or 2 March. Only days near an end of a month can come from a day that does not exist,
    at most two days off by an offset of %z and a leap second: their texts are parsed again, in January of their year.

    Args:
        texts: The texts.
        format: The format. With ``%z`` the timestamps are in UTC, else they have no zone.
    """
    values = _of_known_times(texts, _parsed(texts, format), format)
    day = pc.day(values)
    near_an_end = pc.fill_null(pc.or_(pc.less_equal(day, 5), pc.greater_equal(day, 28)), False)
    if not pc.any(near_an_end).as_py():
        return values
    suspects = pc.if_else(near_an_end, texts, pa.scalar(None, texts.type))
    # strptime keeps the last of two values of a part: the texts get no offset, no leap second, and January.
    neutral, last = ("|%S %z", "|0 +0000") if has_offset(format) else ("|%S", "|0")
    written = _parsed(_with_end(suspects, last), format + neutral)
    in_january = _parsed(_with_end(suspects, last + " 1"), format + neutral + " %m")
    # Day 366 of a common year becomes one of another year.
    exists = pc.and_(pc.equal(pc.day(written), pc.day(in_january)), pc.equal(pc.year(written), pc.year(in_january)))
    return pc.if_else(pc.fill_null(exists, True), values, pa.scalar(None, values.type))


def _of_known_times(texts: Any, values: Any, format: str) -> Any:
    """Return null for a year of less than four digits, and for second 60 within an hour: strptime counts on from it."""
    since_1970 = values.cast(pa.int64())
    begins_minute = pc.is_in(_remainder(since_1970, _MINUTE), value_set=pa.array([0, 10**6, 10**6 - _MINUTE]))
    # Second 60 at the end of an hour is a leap second.
    shifts = pc.and_(begins_minute, pc.not_equal(_remainder(since_1970, 60 * _MINUTE), 0))
    suspect = pc.fill_null(pc.or_(pc.less(since_1970, _YEAR_1000), shifts), False)
    if not pc.any(suspect).as_py():
        return values
    fits = pc.match_substring_regex(pc.if_else(suspect, texts, pa.scalar(None, texts.type)), pattern=_pattern(format))
    return pc.if_else(pc.fill_null(fits, True), values, pa.scalar(None, values.type))


def _remainder(number: Any, divisor: int) -> Any:
    """Return what is left of a number, with its sign."""
    return pc.subtract(number, pc.multiply(pc.divide(number, divisor), divisor))


def _pattern(format: str) -> str:
    """Return the pattern of texts in a format that are no more than it says."""
    expanded = re.sub("%([TFRD])", lambda part: _PARTS[part[1]], format)
    parts = (_part(part) for part in re.findall(r"%.|\s+|.", expanded, re.DOTALL))
    return f"(?s)^{''.join(parts)}$"


def _part(part: str) -> str:
    if part.isspace():
        return r"\s*"
    if len(part) == 1 or part == "%%":
        return re.escape(part[-1])
    return r"\s*" + ("[^0-9]+" if part[1] in _WORDS else _DIGITS.get(part[1], "[0-9]{1,2}"))


def has_offset(format: str) -> bool:
    """Return True if texts of a format have an offset from UTC (``%z``)."""
    return "%z" in format.replace("%%", "")


def _parsed(texts: Any, format: str) -> Any:
    return pc.strptime(texts, format=format, unit="us", error_is_null=True)


def _with_end(texts: Any, end: str) -> Any:
    return pc.binary_join_element_wise(texts, pa.scalar(end, texts.type), "")
