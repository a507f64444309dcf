"""Parses texts as points in time by a format of C's strptime."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["has_offset", "moments"]


def moments(texts: Any, format: str) -> Any:
    """Return an array or scalar of texts as timestamps; null where the format does not fit, or there is no such day.

    Arrow reads 30 February as 1 or 2 March. Only days near an end of a month can come from a day that does not exist,
    at most two days off by an offset of %z and a leap second: their texts are parsed again, in January of their year.

    Args:
        texts: The texts.
        format: The format. With ``%z`` the timestamps are in UTC, else they have no zone.
    """
    values = _parsed(texts, format)
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


def has_offset(format: str) -> bool:
    """Return True if texts of a format have an offset from UTC (``%z``)."""
    return "%z" in format.replace("%%", "")


def _parsed(texts: Any, format: str) -> Any:
    return pc.strptime(texts, format=format, unit="us", error_is_null=True)


def _with_end(texts: Any, end: str) -> Any:
    return pc.binary_join_element_wise(texts, pa.scalar(end, texts.type), "")
