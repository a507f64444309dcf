"""The table of functions of expressions: how each is called, what it takes and returns, and what it does with nulls."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FUNCTIONS", "Function"]

_NULL = "null if an argument is"


@dataclass(frozen=True)
class Function:
    """A function of expressions.

    Args:
        op: The operation of its `Call`.
        name: How it is called: ``"str.lower"`` as a method of an expression, ``"coalesce"`` as a function.
        takes: The types of its arguments.
        returns: The type of its values.
        nulls: What it does with nulls.
        is_method: True if it is called on an expression.
    """

    op: str
    name: str
    takes: str
    returns: str
    nulls: str = _NULL
    is_method: bool = True


_TEXT, _MOMENT, _NUMBER = "string", "date or timestamp", "number"
_ROUNDED = "the same type; of decimals one with the digits that are left, and one more before the point"

_ALL = (
    Function("coalesce", "coalesce", "any, of one type", "that type", "the first value that is not null", False),
    Function("null_if", "null_if", "any, of one type", "the type of the first", "null stays"),
    Function("when", "when", "conditions and values", "the values' type", "a null condition is not true", False),
    Function("greatest", "greatest", "numbers, strings, times", "their type", "passed over; null if all are", False),
    Function("least", "least", "numbers, strings, times", "their type", "passed over; null if all are", False),
    Function("is_nan", "is_nan", "float, double", "boolean"),
    Function("try_cast", "try_cast", "any, type", "that type", "null if the value does not fit the type"),
    Function("field", "field", "struct, name", "the field's type"),
    Function("str_lower", "str.lower", _TEXT, "string"),
    Function("str_upper", "str.upper", _TEXT, "string"),
    Function("str_strip", "str.strip", "string, characters", "string"),
    Function("str_strip_start", "str.strip_start", "string, characters", "string"),
    Function("str_strip_end", "str.strip_end", "string, characters", "string"),
    Function("str_length", "str.length", _TEXT, "int"),
    Function("str_byte_length", "str.byte_length", "string, binary", "int"),
    Function("str_slice", "str.slice", "string, start, length", "string"),
    Function("str_replace", "str.replace", "string, part, other", "string"),
    Function("str_replace_pattern", "str.replace_pattern", "string, pattern, other", "string"),
    Function("str_matches", "str.matches", "string, pattern", "boolean"),
    Function("str_extract", "str.extract", "string, pattern, group", "string", "null without a match"),
    Function("str_ends_with", "str.ends_with", "string, suffix", "boolean"),
    Function("str_split", "str.split", "string, separator", "array<string>"),
    Function("str_pad_start", "str.pad_start", "string, length, character", "string"),
    Function("str_pad_end", "str.pad_end", "string, length, character", "string"),
    Function("str_reverse", "str.reverse", _TEXT, "string"),
    Function("str_to_date", "str.to_date", "string, format", "date", "null without a match"),
    Function(
        "str_to_timestamp",
        "str.to_timestamp",
        "string, format",
        "timestamp_ntz; timestamp with %z",
        "null if the text does not fit",
    ),
    Function("str_to_integer", "str.to_integer", _TEXT, "long", "null if it is no such number"),
    Function("str_to_double", "str.to_double", _TEXT, "double", "null if it is no number"),
    Function("str_to_decimal", "str.to_decimal", "string, precision, scale", "decimal", "null if it does not fit"),
    Function("str_json_path", "str.json_path", "string, path", "string", "null without such a value"),
    Function("concat_str", "concat_str", "strings, separator", "string", _NULL, False),
    Function("struct", "struct", "any, by name", "struct", "never null", False),
    Function("array", "array", "any, of one type", "array of that type", "never null", False),
    Function("list_length", "list.length", "array", "int"),
    Function("list_get", "list.get", "array, position", "the items' type", "null without such an item"),
    Function(
        "list_contains",
        "list.contains",
        "array, value",
        "boolean",
        "null if the list is, or if it has a null and no such item",
    ),
    Function("list_join", "list.join", "array<string>, separator", "string", "null items are passed over"),
    Function("map_length", "map.length", "map", "int"),
    Function("map_keys", "map.keys", "map", "array of the keys' type"),
    Function("map_values", "map.values", "map", "array of the values' type"),
    Function("map_get", "map.get", "map, key", "the values' type", "null without the key"),
    Function("map_contains", "map.contains", "map, key", "boolean"),
    Function("md5", "md5", "string, binary", "string"),
    Function("sha256", "sha256", "string, binary", "string"),
    Function("uuid5", "uuid5", "string, namespace", "uuid"),
    Function("murmur3", "murmur3", "plain values", "int", "passed over; never null", False),
    Function("xxhash64", "xxhash64", "plain values", "long", "passed over; never null", False),
    Function("dt_year", "dt.year", _MOMENT, "int"),
    Function("dt_quarter", "dt.quarter", _MOMENT, "int"),
    Function("dt_month", "dt.month", _MOMENT, "int"),
    Function("dt_day", "dt.day", _MOMENT, "int"),
    Function("dt_weekday", "dt.weekday", _MOMENT, "int"),
    Function("dt_day_of_year", "dt.day_of_year", _MOMENT, "int"),
    Function("dt_iso_week", "dt.iso_week", _MOMENT, "int"),
    Function("dt_hour", "dt.hour", "timestamp, time", "int"),
    Function("dt_minute", "dt.minute", "timestamp, time", "int"),
    Function("dt_second", "dt.second", "timestamp, time", "int"),
    Function("dt_microsecond", "dt.microsecond", "timestamp, time", "int"),
    Function("dt_truncate", "dt.truncate", "date or timestamp, unit", "the same type"),
    Function("dt_format", "dt.format", "date or timestamp, format", "string"),
    Function("dt_epoch_seconds", "dt.epoch_seconds", "timestamp", "long"),
    Function("dt_add", "dt.add", "date or timestamp, days, hours, minutes, seconds, microseconds", "the same type"),
    Function("dt_add_months", "dt.add_months", "date or timestamp, months", "the same type"),
    Function("dt_since", "dt.since", "two dates or timestamps, unit", "long"),
    Function("dt_in_zone", "dt.in_zone", "timestamp, zone", "timestamp_ntz"),
    Function("dt_from_zone", "dt.from_zone", "timestamp_ntz, zone", "timestamp"),
    Function("from_epoch", "from_epoch", "whole number, unit", "timestamp"),
    Function("abs", "abs", _NUMBER, "the same type"),
    Function("sign", "sign", _NUMBER, "int"),
    Function("floor", "floor", _NUMBER, _ROUNDED),
    Function("ceil", "ceil", _NUMBER, _ROUNDED),
    Function("round", "round", "number, digits", _ROUNDED),
    Function("sqrt", "sqrt", _NUMBER, "double"),
    Function("exp", "exp", _NUMBER, "double"),
    Function("ln", "ln", _NUMBER, "double"),
    Function("log10", "log10", _NUMBER, "double"),
    Function("power", "power", "numbers", "double"),
    Function("int_div", "int_div", "whole numbers", "the larger type"),
    Function("bit_and", "bit_and", "whole numbers", "the larger type"),
    Function("bit_or", "bit_or", "whole numbers", "the larger type"),
    Function("bit_xor", "bit_xor", "whole numbers", "the larger type"),
    Function("bit_not", "bit_not", "whole number", "the same type"),
    Function("shift_left", "shift_left", "whole numbers", "the larger type"),
    Function("shift_right", "shift_right", "whole numbers", "the larger type"),
)

FUNCTIONS: dict[str, Function] = {function.op: function for function in _ALL}
"""Every function, by its operation."""
