"""Parses texts as points in time by a format of C's strptime."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["has_offset", "moments"]

# Directives of C's strptime that Python's lacks, in those that it has.
_SHORT = {"%T": "%H:%M:%S", "%R": "%H:%M", "%D": "%m/%d/%y", "%F": "%Y-%m-%d", "%e": "%d", "%h": "%b"}


def moments(texts: Any, format: str) -> Any:
    """Return an array or scalar of texts as timestamps; null where the format does not fit, or there is no such day.

    Arrow reads 30 February as 1 or 2 March. Only days 1 to 3 of a month can come from a day that does not exist: their
    texts are parsed once more by Python, each distinct one once.

    Args:
        texts: The texts.
        format: The format. With ``%z`` the timestamps are in UTC, else they have no zone.
    """
    values = pc.strptime(texts, format=format, unit="us", error_is_null=True)
    if isinstance(values, pa.Scalar):
        return values if not values.is_valid or _is_a_day(texts.as_py(), format) else pa.scalar(None, values.type)
    early = pc.fill_null(pc.less_equal(pc.day(values), 3), False)
    if not pc.any(early).as_py():
        return values
    wrong = [text for text in pc.unique(texts.filter(early)).to_pylist() if not _is_a_day(text, format)]
    return pc.if_else(pc.is_in(texts, pa.array(wrong, texts.type)), pa.scalar(None, values.type), values)


def has_offset(format: str) -> bool:
    """Return True if texts of a format have an offset from UTC (``%z``)."""
    return "%z" in format.replace("%%", "")


def _is_a_day(text: str, format: str) -> bool:
    for short, long in _SHORT.items():
        format = format.replace(short, long)
    try:
        datetime.strptime(text.strip(), format)
    except ValueError as error:
        return not ("day" in str(error) and "range" in str(error))
    return True
