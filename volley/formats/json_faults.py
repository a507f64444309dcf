"""Tells why an object does not fit its columns, as Arrow's reader would, at a hundredth of the cost of asking it.

What is not sure is no fault here: Arrow reads the rest, and has the last word.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from volley.columns.decimals import has_decimals
from volley.errors import SourceError
from volley.formats.input_file import no_match
from volley.formats.json_checks import check_exponent
from volley.formats.json_objects import NAMED_NUMBERS, Fields, Number, encoded, known_only, names_of
from volley.types.arrow import type_name

__all__ = ["ObjectCheck", "is_odd"]

Check = Callable[[Any], str | None]
"""Returns the fault of a value, or None."""

_Named = tuple[str, Check]

_NAMES = {Number: "number", str: "string", bool: "boolean", list: "array", tuple: "object"}
_DATE = r"([0-9]{4})-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"
_CLOCK = r"(?:[01][0-9]|2[0-3])(?::[0-5][0-9](?::[0-5][0-9](?:\.[0-9]{1,9})?)?)?"
_ZONE = r"(?:Z|[+-][0-9]{2}(?::?[0-9]{2})?)"
_DAY = re.compile(_DATE)
_MOMENT = re.compile(rf"{_DATE}(?:[ T]{_CLOCK}{_ZONE}?)?")
_TIME = re.compile(rf"{_CLOCK}")
# Arrow's messages on times with a zone, or with more digits than it reads, have more words.
_OTHER_TIME = re.compile(r".*(?:[Z+-]|[.][0-9]{7}).*", re.S)
_PLAIN_NUMBER = re.compile(r"-?([0-9]+)(?:\.([0-9]+))?")
_MAYBE_DECIMAL = re.compile(r"[+-]?[0-9.]+(?:[eE][+-]?[0-9]*)?")
_MOST_DIGITS = 38
# Exponents of three digits, and what may be half a pair of surrogates: only then are numbers and texts looked at.
_ODD = re.compile(rb"[eE]\+?[0-9]{3}|\\u[dD][89a-fA-F]")
_EXPONENT = re.compile(r"-?[0-9]+(?:\.([0-9]+))?[eE]\+?([0-9]+)")
_LARGEST_EXPONENT = 308
_HALVES = re.compile("[\ud800-\udfff]")
# Half of the last bit above the largest float: from there on it is infinite. Nearer ones are left to Arrow.
_FLOAT_LIMIT = float(np.finfo(np.float32).max) * (1 + 2**-25) * (1 + 1e-12)
_LONGEST_NAME = 100


def is_odd(text: bytes) -> bool:
    """Return True if a text has what may be a number or half a character that Arrow refuses wherever it is."""
    return _ODD.search(text) is not None


class ObjectCheck:
    """Tells the first fault of objects, in the order in which Arrow and what follows it would.

    Args:
        schema: The columns to read.
        on_unknown: What to do with fields that are in none of these: ``"warn"``, ``"keep"``, ``"fail"`` or ``"drop"``.
        required: The names of which an object that has fields needs one; empty = none.
    """

    def __init__(self, schema: pa.Schema, on_unknown: str, required: Collection[str]) -> None:
        self._decimals = [field for field in schema if has_decimals(field.type)]
        self._members = _members(list(schema), "", "", on_unknown == "fail")
        self._known, self._refuses = names_of(schema), on_unknown == "fail"
        # Fields that are kept must be readable, too.
        self._names = None if on_unknown in ("keep", "fail") else self._known
        self._required = required
        tests = (_conversion, _moment, _infinity, _time_of_day, _later_conversion)
        self._stages = [checks for test in tests if (checks := _checks(schema, test))]

    def fault(self, fields: Fields, is_odd: bool) -> str | None:
        """Return why an object does not fit; None if it seems to.

        Args:
            fields: The object.
            is_odd: True if its text `is_odd`.
        """
        odd = self._odd(self._read(fields)) if is_odd else None
        return self._large_exponent(fields) or odd or self._members(fields) or self._value(fields)

    def readable(self, objects: list[Fields], text: bytes) -> bytes:
        """Return the text of good objects that `is_odd` without fields that have no column: Arrow may refuse one."""
        read = [self._read(fields) for fields in objects]
        return text if read == objects else "\n".join(map(encoded, read)).encode()

    def _read(self, fields: Fields) -> Fields:
        return fields if self._names is None else known_only(fields, self._names)

    def _large_exponent(self, fields: Fields) -> str | None:
        try:
            for field in self._decimals:
                check_exponent(fields, field)
        except SourceError as error:
            return error.message
        return None

    def _odd(self, fields: Fields) -> str | None:
        """Return the fault of the first number or text that is refused wherever it is, or what is wrong before it."""
        for index, (name, value) in enumerate(fields):
            if fault := _oddity(name):
                return self._members(fields[:index]) or fault
            if fault := _oddity(value):
                is_unknown = self._refuses and name not in self._known
                is_first = isinstance(value, str) and not is_unknown and name not in dict(fields[:index])
                return self._members(fields[: index + (not is_first)]) or fault
        return None

    def _value(self, fields: Fields) -> str | None:
        values = dict(fields)
        if self._required and values and values.keys().isdisjoint(self._required):
            return no_match(values.keys(), [*self._required])
        return next((fault for checks in self._stages if (fault := _first(checks, values))), None)


def _checks(fields: Iterable[pa.Field], test: Callable[[pa.Field], Check | None]) -> list[_Named]:
    """Return the checks of those columns that need one."""
    return [(field.name, check) for field in fields if (check := test(field))]


def _first(checks: Sequence[_Named], values: dict[str, Any]) -> str | None:
    for name, check in checks:
        value = values.get(name)
        if value is not None and (fault := check(value)):
            return fault
    return None


def _members(fields: Sequence[pa.Field], path: str, dotted: str, refuses: bool) -> Check:
    """Return the check of an object's names, and of what its values are."""
    checks = {
        field.name: _shape(field.type, f"{path}/{field.name}", f"{dotted}{field.name}.", refuses) for field in fields
    }

    def check(pairs: Fields) -> str | None:
        seen: set[str] = set()
        for name, value in pairs:
            inner = checks.get(name)
            if inner is None:
                if refuses:
                    return f"field {(dotted + name)[:_LONGEST_NAME]!r} is not in the schema"
                continue
            if name in seen:
                return f"JSON parse error: Column({path}/{name}) was specified twice"
            seen.add(name)
            if value is not None and (fault := inner(value)):
                return fault
        return None

    return check


def _shape(data_type: pa.DataType, path: str, dotted: str, refuses: bool) -> Check:
    """Return the check whether a value is what a column needs: a number, a text, an array, an object."""
    expected, name = _expected(data_type)
    changed = f"JSON parse error: Column({path}) changed from {name} to "
    inner: Check | None = None
    named = NAMED_NUMBERS if pa.types.is_floating(data_type) else ()
    if pa.types.is_list(data_type):
        inner = _each(_shape(data_type.value_type, f"{path}/[]", dotted, refuses))
    elif pa.types.is_struct(data_type):
        inner = _members(list(data_type), path, dotted, refuses)

    def check(value: Any) -> str | None:
        if type(value) not in expected and not (named and value in named):
            return changed + _NAMES[type(value)]
        return inner(value) if inner else None

    return check


def _each(check: Check) -> Check:
    """Return the check of an array's items."""

    def first(values: list[Any]) -> str | None:
        return next((fault for value in values if value is not None and (fault := check(value))), None)

    return first


def _expected(data_type: pa.DataType) -> tuple[tuple[type, ...], str]:
    t = pa.types
    if t.is_list(data_type):
        return (list,), "array"
    if t.is_struct(data_type):
        return (tuple,), "object"
    if t.is_decimal(data_type):
        return (Number, str), "number_or_string"
    if t.is_integer(data_type) or t.is_floating(data_type):
        return (Number,), "number"
    return ((bool,), "boolean") if t.is_boolean(data_type) else ((str,), "string")


def _oddity(value: Any) -> str | None:
    """Return the fault of a number or text that no column holds; its parser refuses it."""
    if isinstance(value, Number):
        exponent = _EXPONENT.fullmatch(value)
        is_large = exponent and int(exponent[2]) > _LARGEST_EXPONENT + len(exponent[1] or "")
        return "JSON parse error: Number too big to be stored in double." if is_large else None
    if isinstance(value, str):
        return "JSON parse error: The surrogate pair in string is invalid." if _HALVES.search(value) else None
    inner = value if isinstance(value, list | tuple) else ()
    return next((fault for item in inner if (fault := _oddity(item))), None)


def _leaves(data_type: pa.DataType, test: Callable[[pa.DataType], Check | None]) -> Check | None:
    """Return the check of a column's values, and of the values within them; None if all fit."""
    if pa.types.is_list(data_type):
        item = _leaves(data_type.value_type, test)
        return _each(item) if item else None
    if pa.types.is_struct(data_type):
        inner = [(field.name, check) for field in data_type if (check := _leaves(field.type, test))]
        return (lambda pairs: _first(inner, dict(pairs))) if inner else None
    return test(data_type)


def _conversion(field: pa.Field) -> Check | None:
    """Return the check of the whole numbers and decimals that Arrow converts while it reads."""

    def check_of(data_type: pa.DataType) -> Check | None:
        if pa.types.is_decimal(data_type):
            return _decimal(data_type)
        if not pa.types.is_integer(data_type):
            return None
        limit, failed = 2 ** (data_type.bit_width - 1), _failed(data_type)
        return lambda text: None if _is_whole(text, limit) else failed + text

    return _leaves(field.type, check_of)


def _moment(field: pa.Field) -> Check | None:
    """Return the check of timestamps: those that Arrow does not read are tried once more, so their errors come last."""

    def check_of(data_type: pa.DataType) -> Check | None:
        if not pa.types.is_timestamp(data_type):
            return None
        failed = _failed(data_type)
        return lambda text: None if _is_moment(text) else _without_row(failed + text)

    return _leaves(field.type, check_of)


def _failed(data_type: pa.DataType) -> str:
    return f"Failed to convert JSON to {data_type}, couldn't parse:"


def _without_row(message: str) -> str:
    """Return a message as it is told: its first line, without the number of a row at the end."""
    return re.sub(r" in row \d+$", "", message.partition("\n")[0])


def _is_whole(text: str, limit: int) -> bool:
    try:
        return -limit <= int(text) < limit
    except ValueError:
        return False


def _is_moment(text: str) -> bool:
    match = _MOMENT.fullmatch(text)
    return match is not None and _has_day(match)


def _has_day(match: re.Match[str]) -> bool:
    year, month, day = map(int, match.group(1, 2, 3))
    # The calendar repeats after 400 years; Python's has no year 0.
    return day <= 28 or day <= monthrange(year or 400, month)[1]


def _decimal(data_type: pa.DataType) -> Check:
    precision, scale = data_type.precision, data_type.scale
    failed = f"Failed to convert JSON to {pa.decimal256(precision, scale)}: "

    def check(text: str) -> str | None:
        if _MAYBE_DECIMAL.fullmatch(text) is None:
            wrong = f"The string '{text}' is not a valid" if text else "Empty string cannot be converted to"
            return _without_row(f"{wrong} decimal256" + (" number" if text else ""))
        match = _PLAIN_NUMBER.fullmatch(text)
        if match is None or len(text) > _MOST_DIGITS:
            return None
        fraction = match[2] or ""
        digits = len((match[1] + fraction).lstrip("0"))
        if digits > precision:
            return f"{failed}{text} requires precision {digits}"
        return f"{failed}{text} requires scale {len(fraction)}" if fraction[scale:].strip("0") else None

    return check


def _infinity(field: pa.Field) -> Check | None:
    """Return the check of numbers that are too large for a double or float."""
    message = f"column {field.name!r}: a number is too large for its type"

    def check_of(data_type: pa.DataType) -> Check | None:
        if not pa.types.is_floating(data_type):
            return None
        limit = float("inf") if pa.types.is_float64(data_type) else _FLOAT_LIMIT
        return lambda text: message if abs(float(text)) >= limit and text not in NAMED_NUMBERS else None

    return _leaves(field.type, check_of)


def _time_of_day(field: pa.Field) -> Check | None:
    if not pa.types.is_time(field.type):
        return None

    def check(text: str) -> str | None:
        if _TIME.fullmatch(text) or _OTHER_TIME.fullmatch(text):
            return None
        return f"Failed to parse string: '1970-01-01T{text}' as a scalar of type timestamp[us]".partition("\n")[0]

    return check


def _later_conversion(field: pa.Field) -> Check | None:
    """Return the check of values that become dates or decimals of their precision after Arrow has read them."""
    data_type = field.type
    if pa.types.is_date(data_type):
        return _date(data_type, f"column {field.name!r} of type string does not fit {type_name(data_type)}: ")
    if not pa.types.is_decimal(data_type):
        return None
    read_as = pa.decimal256(data_type.precision, data_type.scale)
    fits = f"column {field.name!r} of type {read_as} does not fit {type_name(data_type)}: "
    most = data_type.precision - data_type.scale

    def check(text: str) -> str | None:
        match = _PLAIN_NUMBER.fullmatch(text)
        if match is None or len(text) > _MOST_DIGITS or len(match[1].lstrip("0")) <= most:
            return None
        return f"{fits}Decimal value does not fit in precision {data_type.precision}"

    return check


def _date(data_type: pa.DataType, unfit: str) -> Check:
    def check(text: str) -> str | None:
        match = _DAY.fullmatch(text)
        if match is not None and _has_day(match):
            return None
        return f"{unfit}Failed to parse string: '{text}' as a scalar of type {data_type}"

    return check
