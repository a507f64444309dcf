"""Functions of texts: RE2's patterns, Unicode's single characters, and values out of JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from volley.columns.calendar import has_offset, moments
from volley.columns.compiled import (
    CompiledExpression,
    Lowering,
    all_null,
    computed,
    of_distinct,
    to_type,
    wrong_types,
)
from volley.columns.texts import decimal_of, number_in
from volley.errors import ExpressionError
from volley.plan.expression_nodes import Call, Literal
from volley.plan.parameters import steps_of
from volley.types.arrow import Datum

__all__ = ["LOWERED"]


def _text(compute: Callable[..., Datum], out: pa.DataType | None = None) -> Lowering:
    """Return the lowering of a function of one text, whose other arguments are constants."""
    result = out or pa.string()

    def lower(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
        value, constants = args[0], _constants(node)
        if not (pa.types.is_string(value.type) or all_null(value)):
            raise wrong_types(node, [value.type], "a string")
        _check(node, compute, constants)
        return computed(result, lambda values: compute(values, *constants), to_type(value, pa.string()))

    return lower


def _constants(node: Call) -> list[Any]:
    return [arg.value for arg in node.args[1:] if isinstance(arg, Literal)]


def _check(node: Call, compute: Callable[..., Datum], constants: list[Any]) -> None:
    """Raise for a pattern or a format that is not valid, before a row is read."""
    try:
        compute(pa.array([""]), *constants)
    except pa.ArrowException as error:
        raise ExpressionError(f"{node!r} can't be computed: {error}", hint="patterns are those of RE2") from error


def _strip(whitespace: Callable[[Datum], Datum], characters: Callable[..., Datum]) -> Callable[[Datum, str], Datum]:
    return lambda value, chosen: characters(value, characters=chosen) if chosen else whitespace(value)


def _slice(value: Datum, start: int, length: int | None) -> Datum:
    if length is None:
        return pc.utf8_slice_codeunits(value, start)
    stop = start + length
    # Places before the first character count, as in SQL: two from the fourth last one of "ABC" are "A".
    return pc.utf8_slice_codeunits(value, start, stop if start >= 0 or stop < 0 else None)


def _extract(value: Datum, pattern: str, group: str) -> Datum:
    match = pc.extract_regex(value, pattern=pattern)
    field = pc.struct_field(match, match.type.get_field_index(group))
    return pc.if_else(pc.is_valid(match), field, pa.scalar(None, pa.string()))


def _to_integer(value: Datum) -> Datum:
    # No text of 38 digits is too long for this decimal.
    numbers = number_in(value, "[0-9]{1,38}").cast(pa.decimal128(38, 0))
    low, high = (pa.scalar(limit, pa.int64()).cast(pa.decimal128(38, 0)) for limit in (-(2**63), 2**63 - 1))
    fits = pc.and_(pc.greater_equal(numbers, low), pc.less_equal(numbers, high))
    return pc.if_else(fits, numbers, pa.scalar(None, numbers.type)).cast(pa.int64())


def _to_double(value: Datum) -> Datum:
    return number_in(value, r"([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?").cast(pa.float64())


def _to_decimal(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
    out = pa.decimal128(*_constants(node))
    return _text(lambda value, precision, scale: decimal_of(value, out), out)(node, args)


def _to_timestamp(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
    (format,) = _constants(node)
    return _text(moments, pa.timestamp("us", "UTC" if has_offset(format) else None))(node, args)


def _byte_length(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
    (value,) = args
    if not (pa.types.is_string(value.type) or pa.types.is_binary(value.type) or all_null(value)):
        raise wrong_types(node, [value.type], "a string or binary")
    return computed(pa.int32(), pc.binary_length, to_type(value, pa.string()) if all_null(value) else value)


def _concat(node: Call, args: list[CompiledExpression]) -> CompiledExpression:
    *values, separator = args
    if any(not (pa.types.is_string(value.type) or all_null(value)) for value in values):
        raise wrong_types(node, [value.type for value in values], "strings")
    join = partial(pc.binary_join_element_wise, null_handling="emit_null")
    return computed(pa.string(), join, *(to_type(value, pa.string()) for value in (*values, separator)))


class _Number(str):
    """A number as it is written."""


def _no_number(text: str) -> NoReturn:
    raise ValueError(text)


# NaN and Infinity are no JSON, but Python's reader takes them.
_AS_WRITTEN = json.JSONDecoder(parse_int=_Number, parse_float=_Number, parse_constant=_no_number)
_ENCODER = json.JSONEncoder(ensure_ascii=False)


def _json_value(values: Datum, path: str) -> Datum:
    """Return the values that a path names in JSON texts, as texts; null where there is none, or no JSON."""
    steps = steps_of(path)
    return of_distinct(values, lambda text: _value(text, steps), pa.string())


def _value(text: str, steps: tuple[str | int, ...]) -> str | None:
    try:
        value = _walk(_AS_WRITTEN.decode(text), steps)
        if value is None:
            return None
        # A half of a surrogate pair is JSON, but no text: it can't be encoded.
        return (value if isinstance(value, str) else _json(value)).encode().decode()
    except (ValueError, RecursionError):
        return None


def _json(value: Any) -> str:
    """Return a value as JSON, its numbers as they are written."""
    if isinstance(value, _Number):
        return value
    if isinstance(value, list):
        return f"[{','.join(map(_json, value))}]"
    if isinstance(value, dict):
        return f"{{{','.join(map('{}:{}'.format, map(_json, value), map(_json, value.values())))}}}"
    return _ENCODER.encode(value)


def _walk(value: Any, steps: tuple[str | int, ...]) -> Any:
    for step in steps:
        if isinstance(step, str) and isinstance(value, dict):
            value = value.get(step)
        elif isinstance(step, int) and isinstance(value, list) and step < len(value):
            value = value[step]
        else:
            return None
    return value


LOWERED: dict[str, Lowering] = {
    "str_lower": _text(pc.utf8_lower),
    "str_upper": _text(pc.utf8_upper),
    "str_strip": _text(_strip(pc.utf8_trim_whitespace, pc.utf8_trim)),
    "str_strip_start": _text(_strip(pc.utf8_ltrim_whitespace, pc.utf8_ltrim)),
    "str_strip_end": _text(_strip(pc.utf8_rtrim_whitespace, pc.utf8_rtrim)),
    "str_length": _text(pc.utf8_length, pa.int32()),
    "str_byte_length": _byte_length,
    "str_slice": _text(_slice),
    "str_replace": _text(lambda value, part, other: pc.replace_substring(value, pattern=part, replacement=other)),
    "str_replace_pattern": _text(
        lambda value, pattern, other: pc.replace_substring_regex(value, pattern=pattern, replacement=other)
    ),
    "str_matches": _text(lambda value, pattern: pc.match_substring_regex(value, pattern=pattern), pa.bool_()),
    "str_extract": _text(_extract),
    "str_ends_with": _text(lambda value, suffix: pc.ends_with(value, pattern=suffix), pa.bool_()),
    "str_split": _text(lambda value, separator: pc.split_pattern(value, pattern=separator), pa.list_(pa.string())),
    "str_pad_start": _text(lambda value, length, character: pc.utf8_lpad(value, width=length, padding=character)),
    "str_pad_end": _text(lambda value, length, character: pc.utf8_rpad(value, width=length, padding=character)),
    "str_reverse": _text(pc.utf8_reverse),
    "str_to_date": _text(lambda value, format: moments(value, format).cast(pa.date32()), pa.date32()),
    "str_to_timestamp": _to_timestamp,
    "str_to_integer": _text(_to_integer, pa.int64()),
    "str_to_double": _text(_to_double, pa.float64()),
    "str_to_decimal": _to_decimal,
    "str_json_path": _text(_json_value),
    "concat_str": _concat,
}
"""The lowering of each function."""
