"""Tells why an object does not fit its columns, as Arrow's reader would, at a hundredth of the cost of asking it.

What is not sure is no fault here: Arrow reads the rest, and has the last word.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from volley.columns.decimals import has_decimals
from volley.columns.letters import ColumnFault
from volley.columns.texts import is_in_nanoseconds
from volley.errors import SourceError
from volley.formats.epochs import epoch_text
from volley.formats.input_file import no_match
from volley.formats.json_checks import check_exponent
from volley.formats.json_objects import NAMED_NUMBERS, Fields, Number, encoded, known_only, names_of
from volley.formats.json_shapes import repeated_key
from volley.formats.options import KEEPING
from volley.types.arrow import type_name

__all__ = ["ObjectCheck", "is_odd", "oddity_in", "shape_of"]

Check = Callable[[Any], str | None]
"""Returns the fault of a value, or None."""


class _Place(NamedTuple):
    """A column, or a field or item within: the name of the field, what it is in, how many lists its items are in."""

    name: str
    parent: _Place | None
    items: int = 0

    @property
    def path(self) -> str:
        """Its place as Arrow tells it."""
        return f"{self.parent.path if self.parent else ''}/{self.name}{'/[]' * self.items}"

    @property
    def dotted(self) -> str:
        return f"{self.parent.dotted}.{self.name}" if self.parent else self.name

    @property
    def column(self) -> str:
        return self.parent.column if self.parent else self.name


class _Rules(NamedTuple):
    """What holds for all values.

    Args:
        refuses: True: an object must have no unknown fields.
        epoch: The unit of numbers that are timestamps; None = there are none.
    """

    refuses: bool
    epoch: str | None


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
_UUID = re.compile("[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
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


def shape_of(data_type: pa.DataType) -> str | None:
    """Return a regular expression of what dates or times of a type look like; None for other types."""
    t = pa.types
    for is_one, shape in ((t.is_timestamp, _MOMENT), (t.is_date, _DAY), (t.is_time, _TIME)):
        if is_one(data_type):
            return f"^(?:{shape.pattern})$"
    return None


class ObjectCheck:
    """Tells the first fault of objects, in the order in which Arrow and what follows it would.

    Args:
        on_unknown: What to do with fields that are in none of these, as of `Columns`.
        required: The names of which an object that has fields needs one; empty = none.
        epoch: The unit of numbers that are timestamps; None = there are none.
    """

    def __init__(self, schema: pa.Schema, on_unknown: str, required: Collection[str], epoch: str | None = None) -> None:
        self._decimals = [field for field in schema if has_decimals(field.type)]
        self._members = _members(list(schema), None, _Rules(on_unknown == "fail", epoch))
        self._known, self._refuses = names_of(schema), on_unknown == "fail"
        # Fields that are kept must be readable, too.
        self._names = None if on_unknown in (*KEEPING, "fail") else self._known
        self._required = required

    def fault(self, fields: Fields, is_odd: bool) -> str | None:
        """Return why an object does not fit; None if it seems to.

        Args:
            is_odd: True if its text `is_odd`.
        """
        odd = self._odd(self._read(fields)) if is_odd else None
        return self._large_exponent(fields) or odd or self._members(fields) or self._no_match(fields)

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
            if fault := oddity_in(name):
                return self._members(fields[:index]) or fault
            if fault := oddity_in(value):
                is_unknown = self._refuses and name not in self._known
                is_first = isinstance(value, str) and not is_unknown and name not in dict(fields[:index])
                return self._members(fields[: index + (not is_first)]) or fault
        return None

    def _no_match(self, fields: Fields) -> str | None:
        names = dict(fields).keys()
        is_other = self._required and names and names.isdisjoint(self._required)
        return no_match(names, [*self._required]) if is_other else None


def _members(fields: Sequence[pa.Field], parent: _Place | None, rules: _Rules) -> Check:
    """Return the check of an object's names and values."""
    places = {field.name: _Place(field.name, parent) for field in fields}
    checks = {field.name: _value(field.type, places[field.name], rules) for field in fields}

    def check(pairs: Fields) -> str | None:
        seen: set[str] = set()
        for name, value in pairs:
            inner = checks.get(name)
            if inner is None:
                if rules.refuses:
                    return f"field {_Place(name, parent).dotted[:_LONGEST_NAME]!r} is not in the schema"
                continue
            if name in seen:
                return f"JSON parse error: Column({places[name].path}) was specified twice"
            seen.add(name)
            if value is not None and (fault := inner(value)):
                return fault if parent else ColumnFault.of(fault, name)
        return None

    return check


def _value(data_type: pa.DataType, place: _Place, rules: _Rules) -> Check:
    """Return the check whether a value is what a column needs: a text, a number, an array or an object of them."""
    expected, name = _expected(data_type)
    changed = f"JSON parse error: Column({place.path}) changed from {name} to "
    named = NAMED_NUMBERS if pa.types.is_floating(data_type) else ()
    inner: Check | None
    if rules.epoch is not None and pa.types.is_timestamp(data_type):
        return _moment_or_number(data_type, changed, rules.epoch)
    if pa.types.is_list(data_type):
        inner = _each(_value(data_type.value_type, place._replace(items=place.items + 1), rules))
    elif pa.types.is_struct(data_type):
        inner = _members(list(data_type), place, rules)
    elif pa.types.is_map(data_type):
        inner = _entries(_value(data_type.item_type, place, rules))
    else:
        inner = _scalar(data_type, place)

    def check(value: Any) -> str | None:
        if type(value) not in expected and not (named and value in named):
            return changed + _NAMES[type(value)]
        return inner(value) if inner else None

    return check


def _scalar(data_type: pa.DataType, place: _Place) -> Check | None:
    """Return the check of a number or text; None if all fit. What a cast does behind Arrow is told of columns alone."""
    t = pa.types
    is_column = place.parent is None and not place.items
    if data_type == pa.uuid():
        return _uuid
    if t.is_integer(data_type):
        return _whole(data_type)
    if t.is_floating(data_type):
        return _finite(data_type, place.column)
    if t.is_timestamp(data_type):
        return _moment(data_type)
    if t.is_decimal(data_type):
        return _decimal(data_type, place.name if is_column else None)
    if t.is_date(data_type) and is_column:
        return _date(data_type, f"column {place.name!r} of type string does not fit {type_name(data_type)}: ")
    return _time_of_day if t.is_time(data_type) and is_column else None


def _entries(check: Check) -> Check:
    """Return the check of a map's keys and values."""

    def first(pairs: Fields) -> str | None:
        if (key := repeated_key(pairs)) is not None:
            return f"the key {key[:_LONGEST_NAME]!r} is in a map twice"
        return next((fault for _, value in pairs if value is not None and (fault := check(value))), None)

    return first


def _uuid(text: str) -> str | None:
    return None if _UUID.fullmatch(text) else f"{text[:_LONGEST_NAME]!r} is no uuid"


def _each(check: Check) -> Check:
    """Return the check of an array's items."""

    def first(values: list[Any]) -> str | None:
        return next((fault for value in values if value is not None and (fault := check(value))), None)

    return first


def _expected(data_type: pa.DataType) -> tuple[tuple[type, ...], str]:
    t = pa.types
    if t.is_list(data_type):
        return (list,), "array"
    if t.is_struct(data_type) or t.is_map(data_type):
        return (tuple,), "object"
    if t.is_string(data_type):
        # What is no text is read as its text.
        return (str, Number, bool, list, tuple), "string"
    if t.is_decimal(data_type):
        return (Number, str), "number_or_string"
    if t.is_integer(data_type) or t.is_floating(data_type):
        return (Number,), "number"
    return ((bool,), "boolean") if t.is_boolean(data_type) else ((str,), "string")


def oddity_in(value: Any) -> str | None:
    """Return the fault of a number or text that no column holds; its parser refuses it."""
    if isinstance(value, Number):
        exponent = _EXPONENT.fullmatch(value)
        is_large = exponent and int(exponent[2]) > _LARGEST_EXPONENT + len(exponent[1] or "")
        return "JSON parse error: Number too big to be stored in double." if is_large else None
    if isinstance(value, str):
        return "JSON parse error: The surrogate pair in string is invalid." if _HALVES.search(value) else None
    inner = value if isinstance(value, list | tuple) else ()
    return next((fault for item in inner if (fault := oddity_in(item))), None)


def _whole(data_type: pa.DataType) -> Check:
    limit, failed = 2 ** (data_type.bit_width - 1), _failed(data_type)
    return lambda text: None if _is_whole(text, limit) else failed + text


def _finite(data_type: pa.DataType, column: str) -> Check:
    """Return the check of numbers that are too large for a double or float."""
    message = f"column {column!r}: a number is too large for its type"
    limit = float("inf") if pa.types.is_float64(data_type) else _FLOAT_LIMIT
    return lambda text: message if abs(float(text)) >= limit and text not in NAMED_NUMBERS else None


def _moment(data_type: pa.DataType) -> Check:
    failed = _failed(data_type)
    is_moment = _is_fine_moment if data_type.unit == "ns" else _is_moment
    return lambda text: None if is_moment(text) else _without_row(failed + text)


def _moment_or_number(data_type: pa.DataType, changed: str, epoch: str) -> Check:
    moment = _moment(data_type)

    def check(value: Any) -> str | None:
        if isinstance(value, Number):
            is_time = epoch_text(value, epoch) is not None
            return None if is_time else f"{value[:_LONGEST_NAME]} is no time in {epoch} since 1970"
        return moment(value) if isinstance(value, str) else changed + _NAMES[type(value)]

    return check


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


def _is_fine_moment(text: str) -> bool:
    return _is_moment(text) and is_in_nanoseconds(text)


def _has_day(match: re.Match[str]) -> bool:
    year, month, day = map(int, match.group(1, 2, 3))
    # The calendar repeats after 400 years; Python's has no year 0.
    return day <= 28 or day <= monthrange(year or 400, month)[1]


def _decimal(data_type: pa.DataType, column: str | None) -> Check:
    """Return the check of decimals; those of a column are cast once more to its precision."""
    precision, scale = data_type.precision, data_type.scale
    read_as = pa.decimal256(precision, scale)
    failed = f"Failed to convert JSON to {read_as}: "
    unfit = f"column {column!r} of type {read_as} does not fit {type_name(data_type)}: "

    def check(text: str) -> str | None:
        if _MAYBE_DECIMAL.fullmatch(text) is None:
            wrong = f"The string '{text}' is not a valid" if text else "Empty string cannot be converted to"
            return _without_row(f"{wrong} decimal256" + (" number" if text else ""))
        match = _PLAIN_NUMBER.fullmatch(text)
        if match is None or len(text) > _MOST_DIGITS:
            return None
        whole, fraction = match[1].lstrip("0"), match[2] or ""
        digits = len((match[1] + fraction).lstrip("0"))
        if digits > precision:
            return f"{failed}{text} requires precision {digits}"
        if fraction[scale:].strip("0"):
            return f"{failed}{text} requires scale {len(fraction)}"
        is_unfit = column is not None and len(whole) > precision - scale
        return f"{unfit}Decimal value does not fit in precision {precision}" if is_unfit else None

    return check


def _time_of_day(text: str) -> str | None:
    if _TIME.fullmatch(text) or _OTHER_TIME.fullmatch(text):
        return None
    return f"Failed to parse string: '1970-01-01T{text}' as a scalar of type timestamp[us]".partition("\n")[0]


def _date(data_type: pa.DataType, unfit: str) -> Check:
    def check(text: str) -> str | None:
        match = _DAY.fullmatch(text)
        if match is not None and _has_day(match):
            return None
        return f"{unfit}Failed to parse string: '{text}' as a scalar of type {data_type}".partition("\n")[0]

    return check
