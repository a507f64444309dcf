"""Texts of values and values of texts, in one form: Arrow and Spark write them differently.

Floats are written as Python and DuckDB do, with the fewest digits that give the same number back (``1.0``, ``1e-05``,
``nan``); decimals with all digits of their scale; times in ISO 8601, without zeros at the end of the fraction, instants
in UTC with a ``Z``. A float becomes the decimal that its text is, rounded half up; a binary value the text of which it
is the UTF-8.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from volley.columns.calendar import parsed
from volley.types.arrow import Datum

__all__ = [
    *("decimal_of", "decimal_of_float", "decimal_text", "float_text", "is_in_nanoseconds", "is_text_of", "is_utf8"),
    *("moment_text", "number_in", "of_array", "time_of", "trim", "uuid_of", "uuid_text"),
]


_WIDEST = 38
# The texts of smaller floats may have more digits behind the point than that.
_SMALLEST = 1e-21

# Spark trims these before it parses a value: the space and ASCII's control characters.
_BLANKS = "".join(map(chr, [*range(33), 127]))

_YEAR_DAY = (
    r"[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    r"|02-(?:0[1-9]|1[0-9]|2[0-8]))"
)
_LEAP_DAY = r"(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29"
_DAY = f"(?:{_YEAR_DAY}|{_LEAP_DAY})"
_HOUR, _SIXTY = "(?:[01][0-9]|2[0-3])", "[0-5][0-9]"
_SECONDS = rf"(?::{_SIXTY}(?:\.[0-9]{{1,9}})?)?"
_WALL_CLOCK = f"{_DAY}(?:[ T]{_HOUR}(?::{_SIXTY}{_SECONDS})?)?"
_ZONED = f"{_DAY}[ T]{_HOUR}(?::{_SIXTY}{_SECONDS})?(?:Z|[+-]{_HOUR}:?{_SIXTY})"
# Of the years 1677 and 2262, 64 bits of nanoseconds hold a part.
_NEAR_YEAR = "^(?:167[89]|16[89][0-9]|1[7-9][0-9][0-9]|2[01][0-9][0-9]|22[0-5][0-9]|226[01])"
_FLOAT = r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|(?i:inf|infinity|nan))"

_PATTERNS = {
    pa.date32(): _DAY,
    pa.timestamp("us"): _WALL_CLOCK,
    pa.timestamp("us", "UTC"): f"{_WALL_CLOCK}|{_ZONED}",
    pa.time64("us"): f"{_HOUR}:{_SIXTY}{_SECONDS}",
    pa.float32(): _FLOAT,
    pa.float64(): _FLOAT,
    pa.uuid(): "[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}",
}


def trim(value: Datum) -> Datum:
    """Return texts without blanks around them."""
    return pc.utf8_trim(value, characters=_BLANKS)


def is_text_of(value: Datum, target: pa.DataType) -> Datum:
    """Return true for each text that a value of this type can be read from: a date, time, float or UUID."""
    if not (pa.types.is_timestamp(target) and target.unit == "ns"):
        return pc.match_substring_regex(trim(value), pattern=f"^(?:{_PATTERNS[target]})$")
    text, fits = trim(value), is_text_of(value, pa.timestamp("us", target.tz))
    is_near = pc.match_substring_regex(text, pattern=_NEAR_YEAR)
    suspects = pc.if_else(pc.and_(fits, pc.invert(is_near)), text, pa.scalar(None, text.type))
    return pc.and_(fits, pc.or_(is_near, _are_in_nanoseconds(suspects)))


def is_in_nanoseconds(text: str) -> bool:
    """Return True if 64 bits of nanoseconds hold the time of a text that is one, with an offset or without."""
    if re.match(_NEAR_YEAR, text):
        return True
    # The time's own offset counts, whatever the column's type.
    known = (pa.timestamp("ns"), pa.timestamp("ns", "UTC"))
    return re.match("1677|2262", text) is not None and any(_casts(text, data_type) for data_type in known)


def _casts(text: str, data_type: pa.DataType) -> bool:
    try:
        pc.cast(pa.scalar(text), data_type)
    except pa.ArrowInvalid:
        return False
    return True


def of_array(compute: Callable[[pa.Array], pa.Array]) -> Callable[[Datum], Datum]:
    """Return a function of arrays that takes scalars, too."""

    def apply(value: Datum) -> Datum:
        return compute(pa.array([value], value.type))[0] if isinstance(value, pa.Scalar) else compute(value)

    return apply


@of_array
def _are_in_nanoseconds(texts: pa.Array) -> pa.Array:
    return pa.array([text and is_in_nanoseconds(text) for text in texts.to_pylist()], pa.bool_())


@of_array
def float_text(value: pa.Array) -> pa.Array:
    """Return floats as texts."""
    text = value.cast(pa.string())
    whole = pc.match_substring_regex(text, pattern="^-?[0-9]+$")
    text = pc.if_else(whole, pc.binary_join_element_wise(text, ".0", ""), text)
    # Arrow writes a power of ten for other magnitudes than Python.
    size = pc.abs(value)
    differs = pc.or_(pc.greater_equal(size, 1e10), pc.and_(pc.less(size, 1e-4), pc.greater(size, 0.0)))
    differs = pc.fill_null(pc.and_(differs, pc.is_finite(value)), False)
    if not pc.any(differs, min_count=0).as_py():
        return text
    rewritten = pa.array([repr(float(number)) for number in text.filter(differs).to_pylist()], pa.string())
    return pc.replace_with_mask(text, differs, rewritten)


@of_array
def decimal_text(value: pa.Array) -> pa.Array:
    """Return decimals as texts with all digits of their scale."""
    precision, scale = value.type.precision, value.type.scale
    # The same bytes without the point: Arrow writes small decimals with a power of ten, but never whole numbers.
    whole = pa.Array.from_buffers(pa.decimal128(precision, 0), len(value), value.buffers(), offset=value.offset)
    text = whole.cast(pa.string())
    if not scale:
        return text
    padded = pc.utf8_lpad(pc.replace_substring(text, "-", ""), width=scale + 1, padding="0")
    pointed = pc.replace_substring_regex(padded, pattern=f"([0-9]{{{scale}}})$", replacement=r".\1")
    return pc.if_else(pc.starts_with(text, "-"), pc.binary_join_element_wise("-", pointed, ""), pointed)


def decimal_of_float(value: Datum, scale: int) -> Datum:
    """Return floats as decimals of 76 digits, rounded half up to a scale; null for NaN and 1e38 or more."""
    if isinstance(value, pa.Scalar):
        return decimal_of_float(pa.array([value], value.type), scale)[0]
    # As Spark: the shortest text of a 32-bit float may be another whole number, 1234568000 for 1234567936.
    value = pc.cast(value, pa.float64())
    size = pc.abs(value)
    known = pc.if_else(pc.less(size, 10.0**_WIDEST), value, pa.scalar(None, value.type))
    is_tiny = pc.and_(pc.less(size, _SMALLEST), pc.greater(size, 0.0))
    wide = pc.cast(pc.cast(pc.if_else(is_tiny, pa.scalar(0.0, value.type), known), pa.string()), _decimal256(_WIDEST))
    rounded = pc.cast(pc.round(wide, scale, round_mode="half_towards_infinity"), _decimal256(scale))
    if not pc.any(is_tiny, min_count=0).as_py():
        return rounded
    unit = Decimal(1).scaleb(-scale)
    tiny = [
        Decimal(text).quantize(unit, ROUND_HALF_UP) for text in pc.cast(value.filter(is_tiny), pa.string()).to_pylist()
    ]
    return pc.replace_with_mask(rounded, pc.fill_null(is_tiny, False), pa.array(tiny, rounded.type))


def _decimal256(scale: int) -> pa.DataType:
    return pa.decimal256(76, scale)


@of_array
def is_utf8(value: pa.Array) -> pa.Array:
    """Return true for each binary value that is a text in UTF-8."""
    try:
        pc.cast(value, pa.string())
    except pa.ArrowInvalid:
        return pa.array([data is None or _decodes(data) for data in value.to_pylist()], pa.bool_())
    return pa.repeat(pa.scalar(True), len(value))


def _decodes(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def moment_text(value: Datum) -> Datum:
    """Return timestamps and times of day as texts."""
    text = pc.cast(value, pa.string())
    short = pc.replace_substring_regex(text, pattern=r"(\.[0-9]*[1-9])0+(Z?)$", replacement=r"\1\2")
    return pc.replace_substring_regex(short, pattern=r"\.0+(Z?)$", replacement=r"\1")


@of_array
def time_of(value: pa.Array) -> pa.Array:
    """Return times of day from texts."""
    text = trim(value)
    # Arrow would take an hour alone.
    others = text.filter(pc.invert(is_text_of(text, pa.time64("us"))))
    if len(others):
        raise pa.ArrowInvalid(f"{others[0].as_py()!r} is no time of day, such as '10:30'")
    moments = parsed(pc.binary_join_element_wise("1970-01-01", text, " "), pa.timestamp("us"))
    return pc.cast(moments, pa.time64("us"))


@of_array
def uuid_of(value: pa.Array) -> pa.Array:
    """Return UUIDs from texts."""
    text = trim(value)
    if not pc.all(is_text_of(text, pa.uuid()), min_count=0).as_py():
        raise pa.ArrowInvalid("a text is not a UUID")
    digits = pc.replace_substring(pc.fill_null(text, "0" * 32), pattern="-", replacement="")
    data = pa.py_buffer(bytes.fromhex("".join(digits.to_pylist())))
    stored = pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), len(text), [None, data])
    known = pc.if_else(pc.is_valid(text), stored, pa.scalar(None, pa.binary(16)))
    return pa.ExtensionArray.from_storage(pa.uuid(), known)


def number_in(value: Datum, pattern: str) -> Datum:
    """Return the texts that are a number of this pattern, without blanks and a plus sign; null for others."""
    text = trim(value)
    fits = pc.match_substring_regex(text, pattern=f"^[+-]?(?:{pattern})$")
    number = pc.replace_substring_regex(text, pattern=r"^\+", replacement="")
    return pc.if_else(fits, number, pa.scalar(None, pa.string()))


def decimal_of(value: Datum, target: pa.Decimal128Type) -> Datum:
    """Return decimals from texts; null for what is no number, or needs more digits before or behind the point."""
    scale, before = target.scale, target.precision - target.scale
    # Zeros before and behind the digits need no place.
    whole = rf"0*(?:[0-9]{{1,{before}}}|0)" if before else "0+"
    behind = rf"\.(?:[0-9]{{1,{scale}}}0*|0+)" if scale else r"\.0+"
    pattern = rf"{whole}(?:\.|{behind})?|{behind}"
    number = pc.replace_substring_regex(number_in(value, pattern), pattern=r"^(-?)\.", replacement=r"\10.")
    short = pc.replace_substring_regex(number, pattern=rf"(\.[0-9]{{{scale}}})0*$", replacement=r"\1")
    return pc.cast(pc.replace_substring_regex(short, pattern=r"\.$", replacement=""), target)


@of_array
def uuid_text(column: pa.Array) -> pa.Array:
    """Return UUIDs in their usual text form."""
    stored, count = column.storage, len(column)
    data = stored.buffers()[1]
    digits = b"" if data is None else data.slice(stored.offset * 16, count * 16).to_pybytes().hex().encode()
    places = np.arange(count + 1, dtype=np.int32) * 32
    text = pa.StringArray.from_buffers(count, pa.py_buffer(places), pa.py_buffer(digits))
    dashed = pc.replace_substring_regex(text, pattern="^(.{8})(.{4})(.{4})(.{4})", replacement=r"\1-\2-\3-\4-")
    return pc.if_else(stored.is_valid(), dashed, pa.scalar(None, pa.string()))
