"""The rows that calls are compared on: nulls, the ends of types, and what engines are known to read differently."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa

__all__ = ["INFINITY", "NAN", "ROWS"]

NAN, INFINITY = math.nan, math.inf

_TEXTS = [
    *("", " ", "a", "ABC", " padded ", "\ttab\n", "a,b,,c,", "ß", "İI", "𐐀x", "a\nb", "foo  bar", "x.y|z$1\\2", None),
    *("e\u0301a", "ΑΣ", "ǆ", "ﬁn", "\u00a0x\u00a0", "xxaxx", "👩‍👩‍👧", "a\u0000b", "b\r\n", "100%_"),
]
_OTHERS = [
    *("", "b", None, "abc", "0", "\n", ",", "ss", "i", "\uffff", "A", "z", "1", "q"),
    *("é", "ας", "ǅ", "fi", "\u00a0", "x", "👩", "a", "B", "%"),
]
_DATES = [
    *(date(1970, 1, 1), date(1969, 12, 31), date(2024, 2, 29), date(2023, 12, 31), date(2021, 1, 3), date(2026, 1, 31)),
    *(date(1, 2, 2), date(9999, 11, 30), date(1582, 10, 15), date(1582, 10, 4), date(1900, 2, 28), None),
]
_OTHER_DATES = [
    *(date(1970, 1, 2), date(1970, 1, 1), date(2024, 1, 31), None, date(2021, 1, 4), date(2026, 2, 28)),
    *(date(1, 2, 3), date(1, 2, 2), date(1582, 10, 4), date(1582, 10, 15), date(1900, 3, 1), date(2000, 1, 1)),
]
_MOMENTS = [
    *(datetime(1970, 1, 1), datetime(1969, 12, 31, 23, 59, 58, 500_000), datetime(2024, 2, 29, 23, 59, 59, 999_999)),
    *(datetime(2026, 3, 29, 1, 30), datetime(2026, 10, 25, 0, 30), datetime(2021, 1, 3, 23), datetime(1582, 10, 10)),
    *(datetime(9999, 11, 29, 23, 59, 59, 999_999), datetime(2026, 1, 31, 10), datetime(1, 2, 2), datetime(1900, 1, 1)),
    *(datetime(1969, 12, 31, 23, 59, 59, 999_999), None),
]
_EARLIER = [
    *(datetime(1969, 12, 31, 12), datetime(1970, 1, 1), datetime(2024, 3, 1), datetime(2026, 3, 28, 1, 30)),
    *(datetime(2026, 10, 24, 1, 30), datetime(2021, 1, 3, 23), datetime(1582, 10, 15), datetime(1, 2, 2), None),
    *(datetime(9999, 11, 29), datetime(1899, 12, 31, 23, 59, 59, 999_999), datetime(1970, 1, 1), datetime(2000, 1, 1)),
]
_IN_BERLIN = [
    *(
        datetime(2026, 3, 29, 1, 59, 59),
        datetime(2026, 3, 29, 2),
        datetime(2026, 3, 29, 2, 30),
        datetime(2026, 3, 29, 3),
    ),
    *(datetime(2026, 10, 25, 2, 30), datetime(2026, 10, 25, 3), datetime(2026, 7, 1), datetime(1893, 3, 31, 23, 50)),
    *(datetime(1980, 4, 6, 2, 30), datetime(2050, 7, 1), datetime(1, 1, 2, 12), datetime(9999, 12, 30), None),
]


def _decimals(precision: int, scale: int, *texts: str | None) -> pa.Array:
    return pa.array([text and Decimal(text) for text in texts], pa.decimal128(precision, scale))


def _texts(*texts: str | None) -> pa.Table:
    return pa.table({"c": pa.array(texts, pa.string())})


def _instants(moments: Sequence[Any]) -> pa.Array:
    return pa.array(moments, pa.timestamp("us")).cast(pa.timestamp("us", "UTC"))


_TWO = pa.map_(pa.string(), pa.int32())

ROWS: Mapping[str, pa.Table] = {
    "texts": pa.table({"s": _TEXTS, "t": _OTHERS}),
    "ints": pa.table(
        {
            "i": pa.array([0, 7, -7, 7, -7, 2**31 - 1, -(2**31), 46341, None, 100, 1], pa.int32()),
            "j": pa.array([0, 3, 3, -3, -3, 1, -1, 46341, 5, None, 31], pa.int32()),
        }
    ),
    "longs": pa.table(
        {
            "i": pa.array([0, 7, -7, 7, 2**53 + 1, 2**63 - 1, -(2**63), 3037000500, None, 10**18, -(2**31) - 1]),
            "j": pa.array([0, 3, 3, -3, 1, 1, -1, 3037000500, 5, None, 63]),
        }
    ),
    "doubles": pa.table(
        {
            "x": [
                *(0.0, -0.0, 0.5, 2.5, -2.5, 1.005, 0.285, 1e7, 1e-4, 1e16, 1e23, INFINITY, -INFINITY, NAN, None),
                *(-0.4, 5e-324, 1e300, 2.0**53, 123456789.125, -1.0),
            ],
            "y": [
                *(-0.0, 0.0, 0.5, NAN, 3.0, 100.0, 2.0, 0.5, 0.5, 0.1, 1e-23, INFINITY, 1.0, NAN, 1.0),
                *(None, 2.0, 1e300, 1.0, -2.0, 0.5),
            ],
        }
    ),
    "floats": pa.table(
        {
            "x": pa.array(
                [0.0, -0.0, 1.1, 1e7, 16777216.0, 0.1, 1e-4, 3.4028235e38, INFINITY, -INFINITY, NAN, 1e-45, None, -2.5],
                pa.float32(),
            )
        }
    ),
    "decimals": pa.table(
        {
            "m": _decimals(10, 2, "0.00", "1.50", "-1.50", "2.50", "0.05", "99999999.99", "-99999999.99", None, "7.25"),
            "o": _decimals(10, 4, "1", "0", "3", "0.3333", "2", "999999.9999", "999999.9999", "1", "-2.5"),
        }
    ),
    "long decimals": pa.table(
        {
            "m": _decimals(
                38, 10, "1", "-0.0000000001", "9" * 28 + "." + "9" * 10, "1234567890.123456789", "-2.5", None
            ),
            "o": _decimals(38, 10, "3", "3", "1", "2", "1", "0"),
        }
    ),
    "decimals below one": pa.table({"m": _decimals(38, 38, "0.5", "-0.5", "0." + "4" * 38, "-0.05", "0", None)}),
    "floats of many digits": pa.table(
        {"x": pa.array([1234567936.0, 1.005, 0.285, 2.675, 0.05, -8.345, 16777218.0, 99999.99, None], pa.float32())}
    ),
    "mixed numbers": pa.table(
        {
            "i": pa.array([0, 1, 2**31 - 1, -5, None, 16777217], pa.int32()),
            "l": pa.array([2**53 + 1, 2**53, 0, 2**63 - 1, None, 16777217]),
            "f": pa.array([2.0**24, 0.1, 1.0, NAN, 1.5, 16777216.0], pa.float32()),
            "x": [2.0**53, 2.0**53, 0.0, 2.0**63, 1.5, NAN],
            "m": _decimals(10, 2, "1.00", "0.10", "0.00", "99999999.99", None, "-1.50"),
        }
    ),
    "dates": pa.table({"d": _DATES, "e": _OTHER_DATES}),
    "instants": pa.table({"z": _instants(_MOMENTS), "a": _instants(_EARLIER)}),
    "clocks": pa.table({"z": pa.array(_MOMENTS, pa.timestamp("us")), "a": pa.array(_EARLIER, pa.timestamp("us"))}),
    "clocks in Berlin": pa.table({"n": pa.array(_IN_BERLIN, pa.timestamp("us"))}),
    "times": pa.table({"k": [time(0), time(23, 59, 59, 999_999), time(10, 20, 30), time(1, 2, 3, 4), None]}),
    "whole seconds": pa.table({"l": [0, 1, -1, 1767225600, 10**11, -62135596800, 1999, -1999, None]}),
    "numbers in texts": _texts(
        *("12", " 12 ", "+5", "1e3", "1.9", "1_000", "1.5d", "Infinity", "NaN", ".5", "5.", "", "12.345", "007"),
        *("9223372036854775808", "1e400", None, "-0", "0x1F", "-inf", " ", "\t7\n", "1,000", "- 5", "\u00a05", "1e-3"),
    ),
    "truths in texts": _texts("true", "TRUE", " t ", "f", "Y", "no", "1", "0", "on", "", "2", "T\n", None),
    "dates in texts": _texts(
        *("2026-01-05", "2026-1-5", "2026-01", "2026", " 2026-01-05 ", "2026-01-05T10:00:00", "2026-02-30"),
        *("2026-01-05 foo", "2026/01/05", "", None, "0001-01-01", "1582-10-10", "+2026-01-05", "2026-01-05Z"),
        *("26-01-05", "20260105", "70-01-05", "05 Jan 2026", "05 jan 2026", "05 January 2026", "2026-366", "2024-366"),
    ),
    "moments in texts": _texts(
        *("2026-01-05 10:00:00", "2026-01-05T10:00:00.5", "2026-01-05 10:00:00Z", "2026-01-05 10:00:00+05:30"),
        *("2026-01-05 10:00:00 +05:30", "2026-01-05 10:00:00 Europe/Berlin", "2026-01-05", "2026-1-5 1:2:3"),
        *("2026-01-05 10:00:60", "2026-02-30 00:00:00", "2026-01-05 10:00", "", None, " 2026-01-05 10:00:00 "),
        "26-01-05 10:00:00",
        *("2026-01-05 10:00:00.1234567", "2026-01-05 24:00:00", "1582-10-10 00:00:00", "0001-01-01 00:00:00"),
        "26-01-05 10:00:00",
    ),
    "times in texts": _texts(
        *("10:20:30", "10:20", "10", "10:20:30.5", "10:20:30.1234567", "24:00:00", "1:2:3", " 10:20:30 ", "10:20:30Z"),
        *("10:20 PM", "T10:20:30", "", None, "10:60:00", "10:20:60", "102030", "2026-01-01 10:20:30"),
    ),
    "lists": pa.table(
        {
            "v": [[1, 2, 3], [], None, [None], [1, None, 2], [5]],
            "w": [["a", "b"], [], None, [None], ["a", None, "b"], [""]],
            "u": pa.array([[0.0], [-0.0], [NAN], [None], [1.0, NAN], None], pa.list_(pa.float64())),
        }
    ),
    "maps": pa.table(
        {"p": pa.array([[("a", 1), ("b", 2)], [], None, [("a", None)], [("b", 1)], [("A", 1)], [("", 5)]], _TWO)}
    ),
    "structs": pa.table({"r": [{"a": 1, "b": "x"}, {"a": None, "b": "y"}, None, {"a": 2, "b": None}]}),
    "truths": pa.table(
        {
            "b": [True, False, None, True, False, None, True, False, None],
            "c": [True, True, True, False, False, False, None, None, None],
        }
    ),
    "bytes": pa.table({"y": pa.array([b"", b"a", b"\x00", b"abc", None, "é".encode()], pa.binary())}),
    "documents": pa.table(
        {
            "f": [
                *('{"a":1}', '{"a":1.10}', '{"a":1e5}', '{"a":"x"}', '{"a":null}', '{"a":{"b": [1, 2,3], "c":  null}}'),
                *('{"a":1,"a":2}', '{"a":1} trailing', "{'a':1}", '{"a":[1, "x"]}', "x", "", "[1,2]", None, "null"),
                *('{"a":true}', '{"a":""}', '{"A":1}', '{"a":1', '{"a":"\\u00e9\\n"}', '{"a":-0.0}', '{"a":NaN}', "5"),
                *('{"a":[{"b":1},{"b":2}]}', '{"a b":1}', '{"a":12345678901234567890123}', ' {"a" : 5 } '),
            ]
        }
    ),
}
"""Rows of each kind, by name."""
