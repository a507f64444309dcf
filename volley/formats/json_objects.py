"""Decodes JSON objects without Arrow, each number as its own text, and writes them again as they were."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from math import isfinite
from typing import Any, TypeAlias

import pyarrow as pa

from volley.errors import SourceError

__all__ = [
    "LONG_LINE",
    "NAMED_NUMBERS",
    "Fields",
    "Names",
    "Number",
    "decoded",
    "encoded",
    "fields_of",
    "known_only",
    "names_of",
    "no_double_in",
    "objects_of",
    "rest_of",
    "rests_in",
    "some_lines",
    "spans_of_objects",
    "unknown_in",
    "values_of",
    "why_no_object",
    "with_names",
    "with_numbers",
]

Fields: TypeAlias = tuple[tuple[str, Any], ...]
"""The names and values of an object, in their order, duplicates too."""

NAMED_NUMBERS = ("NaN", "Infinity", "-Infinity")
"""What Python writes without quotes in JSON, and Java with them, for numbers that JSON lacks."""

LONG_LINE = 16 << 10
"""Of more bytes, a line is not looked at as an example."""

Names = dict[str, "Names | None"]
"""The names of fields, each with those of the fields within; None = it has none."""

_SPACES = " \t\n\r"
_NOT_SPACE = re.compile(r"[^ \t\n\r]")
# A string may have no end, and a name at the end of a text may go on.
_STRINGS_AND_CONSTANTS = re.compile(
    r'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)|(-?)(Inf(?:inity)?|NaN)(?=[ \t\r\n,\]}])', re.S
)


# The names of infinities and NaN, exponents of three digits, very long numbers.
_MAYBE_NO_DOUBLE = re.compile(r"NaN|Infinity|[eE]\+?[0-9]{3}|[0-9]{300}")
_LONGEST_NAME = 100
_HALVES = re.compile("[\ud800-\udfff]")
_quoted = json.JSONEncoder(ensure_ascii=False).encode


class Number(str):
    """The text of a number."""

    __slots__ = ()


_DECODER = json.JSONDecoder(parse_float=Number, parse_int=Number, parse_constant=Number, object_pairs_hook=tuple)


def decoded(text: str) -> list[Any]:
    """Return the values of a text: objects as `Fields`, arrays as lists, numbers as `Number`.

    Raises:
        ValueError: If it is not JSON, even if infinities and NaN are allowed with a sign and by all their names.
        RecursionError: If it is nested too deep.
    """
    text = text.strip(_SPACES)
    try:
        value, end = _DECODER.raw_decode(text)
        return [value] if end == len(text) else [*_values(text)]
    except ValueError:
        named = with_names(text)
        if named == text:
            raise
        return [*_values(named)]


def values_of(text: bytes) -> Iterator[Any]:
    """Yield the values of a long text one by one, as `decoded` returns them; raise likewise."""
    return _values(with_names(text.decode("utf-8-sig", errors="replace")))


def _values(text: str) -> Iterator[Any]:
    return (value for value, _, _ in _spans(text))


def _spans(text: str) -> Iterator[tuple[Any, int, int]]:
    """Yield each value of a text, where it begins and where it ends."""
    at = _after_space(text, 0)
    while at < len(text):
        value, end = _DECODER.raw_decode(text, at)
        yield value, at, end
        at = _after_space(text, end)


def with_names(text: str) -> str:
    """Return a text with its infinities and NaNs by the names that Python's decoder knows.

    Example:
        >>> with_names('{"a": Inf, "b": -Inf, "c": -NaN, "d": "Inf"}')
        '{"a": Infinity, "b": -Infinity, "c": NaN, "d": "Inf"}'
    """
    return _with_constants(text, _by_its_name)


def _with_constants(text: str, change: Callable[[re.Match[str]], str]) -> str:
    """Return a text with its constants changed; most have none but those that Python's decoder knows."""
    return _STRINGS_AND_CONSTANTS.sub(change, text) if "Inf" in text or "-NaN" in text else text


def _after_space(text: str, at: int) -> int:
    match = _NOT_SPACE.search(text, at)
    return match.start() if match else len(text)


def spans_of_objects(text: str) -> tuple[list[tuple[int, int]], bool]:
    """Return where the objects begin and end that a text begins with, up to one that ends its line.

    Returns:
        Their places, without one that is damaged or that something else than an object stands behind; and whether the
        text ends within an object.
    """
    characters = _with_constants(text, _of_its_length)
    spans, at = list[tuple[int, int]](), _after_space(characters, 1 if text.startswith("\ufeff") else 0)
    while characters[at : at + 1] == "{":
        try:
            _, end = _DECODER.raw_decode(characters, at)
        except RecursionError:
            break
        except ValueError as error:
            place = error.pos if isinstance(error, json.JSONDecodeError) else 0
            return spans, _after_space(characters, place) == len(characters)
        begin, at = at, _after_space(characters, end)
        is_last = at == len(characters) or "\n" in characters[end:at]
        if not is_last and characters[at] != "{":
            break
        spans.append((begin, end))
        if is_last:
            break
    return spans, False


def _of_its_length(match: re.Match[str]) -> str:
    """Return a constant as long as it was, which Python's decoder knows: its value is not looked at."""
    sign, name = match.groups()
    return match[0] if name in (None, "Infinity") else "null" if sign else "NaN"


def _by_its_name(match: re.Match[str]) -> str:
    """Return a constant as Python's decoder knows it."""
    sign, name = match.groups()
    return match[0] if name is None else "NaN" if name == "NaN" else f"{sign}Infinity"


def encoded(value: Any) -> str:
    """Return a decoded value as JSON; numbers and the halves of surrogate pairs stay as they were.

    Example:
        >>> encoded(decoded('{"a": 1.50, "b": ["x", null], "c": 1e400}')[0])
        '{"a": 1.50, "b": ["x", null], "c": 1e400}'
    """
    if isinstance(value, tuple):
        return "{" + ", ".join(f"{_text(name)}: {encoded(inner)}" for name, inner in value) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(encoded, value)) + "]"
    if isinstance(value, Number):
        return str(value)
    return _text(value) if isinstance(value, str) else json.dumps(value)


def _text(text: str) -> str:
    return json.dumps(text) if _HALVES.search(text) else _quoted(text)


def no_double_in(value: Any) -> str | None:
    """Return the first number in a decoded value that is infinite as a double, or NaN; None without any."""
    if isinstance(value, Number):
        return None if isfinite(float(value)) else str(value)
    inner = value if isinstance(value, list | tuple) else ()
    return next((number for item in inner if (number := no_double_in(item))), None)


def fields_of(line: bytes) -> Fields:
    """Return the fields of an object; none if the text is not one object."""
    with suppress(ValueError, RecursionError):
        match decoded(line.decode("utf-8-sig")):
            case [tuple() as fields]:
                return fields
    return ()


def objects_of(text: bytes, count: int) -> Sequence[bytes]:
    """Return the text of each object; usually one a line."""
    lines = [line for line in text.split(b"\n") if line.strip()]
    return lines if len(lines) == count else [*_decoded_objects(text)]


def _decoded_objects(text: bytes) -> Iterator[bytes]:
    """Yield the text of each object, also of those that span lines; ends where Python can't read one."""
    characters = with_names(text.decode("utf-8-sig", errors="replace"))
    with suppress(ValueError, RecursionError):
        for _, start, end in _spans(characters):
            yield characters[start:end].encode()


def names_of(fields: Iterable[pa.Field]) -> Names:
    """Return the names of fields, for `unknown_in`; items of lists count as their list."""
    return {field.name: _names_within(field.type) for field in fields}


def _names_within(data_type: pa.DataType) -> Names | None:
    if pa.types.is_list(data_type):
        return _names_within(data_type.value_type)
    return names_of(list(data_type)) if pa.types.is_struct(data_type) else None


def unknown_in(value: Any, names: Names, before: str = "") -> Iterator[str]:
    """Yield the names of fields that are in no column, with dots if they are nested.

    Args:
        value: The fields of an object, or a value within.
        names: The names of the columns, as of `names_of`.
    """
    if isinstance(value, list):
        for item in value:
            yield from unknown_in(item, names, before)
    elif isinstance(value, tuple):
        for name, inner in value:
            if name not in names:
                yield before + name
            elif within := names[name]:
                yield from unknown_in(inner, within, f"{before}{name}.")


def known_only(fields: Fields, names: Names) -> Fields:
    """Return the fields of an object that have a column, those within them likewise.

    Args:
        names: The names of the columns, as of `names_of`.
    """
    return tuple((name, _known_within(value, names[name])) for name, value in fields if name in names)


def _known_within(value: Any, names: Names | None) -> Any:
    if names is None:
        return value
    if isinstance(value, list):
        return [_known_within(item, names) for item in value]
    return known_only(value, names) if isinstance(value, tuple) else value


def with_numbers(value: Any, data_type: pa.DataType) -> Any:
    """Return a decoded value with numbers for texts such as "NaN" where a type has doubles."""
    if isinstance(value, list) and pa.types.is_list(data_type):
        return [with_numbers(item, data_type.value_type) for item in value]
    if isinstance(value, tuple) and pa.types.is_struct(data_type):
        types = {field.name: field.type for field in data_type}
        return tuple((name, with_numbers(item, types.get(name, pa.null()))) for name, item in value)
    is_named = isinstance(value, str) and pa.types.is_floating(data_type) and value in NAMED_NUMBERS
    return Number(value) if is_named else value


def why_no_object(line: bytes) -> str | None:
    """Return why a text is no JSON object; None if it is one."""
    try:
        value = json.loads(with_names(line.decode()) if b"Inf" in line or b"-NaN" in line else line)
    except RecursionError:
        return "nested too deep"
    except ValueError as error:
        return f"not JSON ({error})"
    if isinstance(value, dict):
        return None
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return "not a JSON object, but an array of them: write each by itself"
    return "not a JSON object"


def rests_in(objects: Iterable[bytes], known: Collection[str]) -> list[str | None]:
    """Return, for each object, its fields that are not known, as JSON; None without any."""
    try:
        return [rest_of(fields, known) for text in objects for fields in decoded(text.decode("utf-8-sig"))]
    except RecursionError as error:
        raise SourceError("nested too deep") from error
    except ValueError as error:
        raise SourceError(str(error).partition(":")[0]) from error


def rest_of(fields: Fields, known: Collection[str]) -> str | None:
    """Return the fields of an object that are not known, as JSON; None without any.

    Raises:
        SourceError: If one has a number that no double holds.
    """
    rest = tuple(pair for pair in fields if pair[0] not in known)
    text = encoded(rest) if rest else None
    if text and _MAYBE_NO_DOUBLE.search(text) and (number := no_double_in(rest)):
        reason = "no double holds it" if number[-1].isdigit() else "it is no JSON"
        raise SourceError(f"{number[:_LONGEST_NAME]} in a field that is in no column can't be kept: {reason}")
    return text


def some_lines(text: bytes, count: int) -> Iterator[bytes]:
    """Yield some lines of a text, evenly spread and none twice; long ones are left out."""
    end = 0
    for number in range(count):
        at = max(end, len(text) * number // count)
        start = text.rfind(b"\n", 0, at) + 1 if at > end else end
        end = text.find(b"\n", start) + 1 or len(text)
        if start < end <= start + LONG_LINE:
            yield text[start:end]
