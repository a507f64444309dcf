"""Refuses JSON objects that Arrow reads as rows of nulls, or whose numbers it must not convert to decimals."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from volley.columns.decimals import has_decimals
from volley.errors import SourceError
from volley.formats.input_file import no_match
from volley.formats.json_objects import fields_of, objects_of, values_of
from volley.types.arrow import type_name

__all__ = ["check_exponent", "check_exponents", "check_match"]


def check_match(text: bytes, table: pa.Table, columns: Collection[str]) -> None:
    """Raise SourceError if a JSON object has fields, but none of the columns; an empty one is a row of nulls.

    Args:
        text: The objects, separated by white space.
        table: The rows that were made of them: only rows of nulls are looked at.
        columns: The names of all columns that the objects can have.
    """
    if not table.num_rows or not all(column.null_count for column in table.columns):
        return
    if len(columns) > table.num_columns and _are_named(text, table.num_rows, columns):
        return
    nulls: pa.ChunkedArray = reduce(pc.and_, (pc.is_null(column) for column in table.columns))
    rows = np.flatnonzero(nulls.combine_chunks().to_numpy(zero_copy_only=False)).tolist()
    objects = objects_of(text, table.num_rows) if rows else []
    for row in (objects[row] for row in rows if row < len(objects)):
        if (fields := dict(fields_of(row))) and not fields.keys() & columns:
            raise SourceError(no_match(fields.keys(), [*columns]))


def _are_named(text: bytes, count: int, columns: Iterable[str]) -> bool:
    """Return True if one of the columns is named as often as there are rows: those that are not read may have values.

    To count names takes a tenth of the time that it takes to parse the text.
    """
    return any(text.count(json.dumps(name).encode()) >= count for name in columns)


_LARGEST = 38
# Bytes that are looked at at once: so many, and what is made of them, stay in the processor's cache.
_BLOCK = 1 << 17
_EXPONENT = re.compile(r"[eE][+-]?0*([0-9]*)$")
# Characters of a number that a string writes as an escape.
_ESCAPED = re.compile(rb"\\u00(?:3[0-9]|[46]5|2[bBdDeE])")


def _table(characters: bytes) -> np.ndarray[Any, Any]:
    """Return for each byte whether it is one of these."""
    return np.isin(np.arange(256), list(characters))


_DIGIT, _IN_NUMBER = _table(b"0123456789"), _table(b"0123456789.+-")
_BEFORE, _BEHIND = _table(b' \t\r\n,":['), _table(b' \t\r\n,"]}')
# More digits than an exponent has.
_LONGEST = 20


def check_exponents(text: bytes, schema: pa.Schema) -> None:
    """Raise SourceError if a decimal column of objects has a number with an exponent of more than 38, of either sign.

    Args:
        text: The objects, in UTF-8, separated by white space.
    """
    decimals = [field for field in schema if has_decimals(field.type)]
    if not decimals or not (_has_large_exponent(text) or (b"\\" in text and _ESCAPED.search(text))):
        return
    try:
        for row in values_of(text):
            for field in decimals:
                check_exponent(row, field)
    except ValueError as error:
        raise SourceError(f"not JSON ({error})") from error
    except RecursionError as error:
        raise SourceError("nested too deep") from error


def _has_large_exponent(text: bytes) -> bool:
    """Return True if there seems to be one: a scan that takes 4 to 17 percent of what Arrow needs to parse the text."""
    characters = np.frombuffer(text + b"   ", np.uint8)
    places = [_exponents(characters, start) for start in range(0, len(text), _BLOCK)]
    return _are_large(characters, np.concatenate(places)) if places else False


def _exponents(characters: np.ndarray[Any, Any], start: int) -> np.ndarray[Any, Any]:
    """Return the places of each e in a block that is between characters of a number."""
    block = characters[start : start + _BLOCK + 2]
    # Digits, signs and the point, with a comma and a slash, are 15 neighbors; smaller bytes wrap around.
    in_number = block - np.uint8(43) < 15
    is_e = (block[1:-1] | 32) == 101
    return np.flatnonzero(is_e & in_number[:-2] & in_number[2:]) + (start + 1)


def _are_large(characters: np.ndarray[Any, Any], places: np.ndarray[Any, Any]) -> bool:
    """Return True if the e of a number with a large exponent is at one of these places."""
    at = places + 1
    at = at + ((characters[at] == 43) | (characters[at] == 45))
    is_digit = _DIGIT[characters[at]]
    places, at = places[is_digit], at[is_digit] + 1
    for digits in range(2, _LONGEST):
        is_digit = _DIGIT[characters[at]]
        places, at = places[is_digit], at[is_digit] + 1
        if not len(at):
            return False
        is_large = _BEHIND[characters[at]]
        if digits == 2:
            is_large &= (characters[at - 2] - 48) * 10 + (characters[at - 1] - 48) > _LARGEST
        if is_large.any() and _in_numbers(characters, places[is_large]):
            return True
    return True


def _in_numbers(characters: np.ndarray[Any, Any], at: np.ndarray[Any, Any]) -> bool:
    """Return True if nothing but a number is before one of these places, unlike in the digits of a UUID."""
    while len(at):
        at = at[at > 0] - 1
        if _BEFORE[characters[at]].any():
            return True
        at = at[_IN_NUMBER[characters[at]]]
    return False


def check_exponent(row: Any, field: pa.Field) -> None:
    """Raise SourceError if a decimal column of one object has such a number.

    Args:
        row: The pairs of names and values of the object, numbers as texts.
    """
    for name, value in row if isinstance(row, tuple) else ():
        if name == field.name:
            for number, data_type in _decimals(value, field.type):
                exponent = _EXPONENT.search(number)
                if exponent and int(exponent[1][:_LONGEST] or 0) > _LARGEST:
                    raise SourceError(f"column {field.name!r}: {number[:80]} is no {type_name(data_type)}")


def _decimals(value: Any, data_type: pa.DataType) -> Iterator[tuple[str, pa.DataType]]:
    """Yield the texts that are read as decimals, each with its type."""
    if pa.types.is_decimal(data_type):
        if isinstance(value, str):
            yield value, data_type
    elif isinstance(value, list) and pa.types.is_list(data_type):
        for item in value:
            yield from _decimals(item, data_type.value_type)
    elif isinstance(value, tuple) and pa.types.is_struct(data_type):
        for name, item in value:
            for field in (field for field in data_type if field.name == name):
                yield from _decimals(item, field.type)
