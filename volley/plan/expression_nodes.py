"""The nodes of expressions: columns, constants and calls as plain data; and the table of functions that are called."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from volley.contracts.source import ExprNode
from volley.errors import ExpressionError

__all__ = [
    "FUNCTIONS",
    "OPERATIONS",
    "Call",
    "Column",
    "ExprNode",
    "Function",
    "Literal",
    "column_names",
    "joined",
    "output_name",
    "parameter",
]

# To write, pickle or compile a call takes up to 5 of Python's 1,000 frames; what runs Volley needs some, too.
_DEEPEST = 150
_LONGEST = 64

OPERATIONS: dict[str, str] = {
    "eq": "==",
    "ne": "!=",
    "gt": ">",
    "gt_eq": ">=",
    "lt": "<",
    "lt_eq": "<=",
    "and_": "&",
    "or_": "|",
    "not_": "~",
    "add": "+",
    "sub": "-",
    "mul": "*",
    "div": "/",
    "mod": "%",
    "neg": "-",
    "is_null": "",
    "is_not_null": "",
    "is_in": "",
    "starts_with": "",
    "contains": "",
    "cast": "",
    "alias": "",
}
"""Every operation of a Call, and its Python operator, if any; each backend implements all of them."""
_NULL = "null if an argument is"
_TEXT, _MOMENT, _NUMBER = "string", "date or timestamp", "number"
_ROUNDED = "the same type; of decimals one with the digits that are left, and one more before the point"


@dataclass(frozen=True, repr=False)
class Column(ExprNode):
    """The value of a column."""

    name: str

    def __repr__(self) -> str:
        return f"col({self.name!r})"


@dataclass(frozen=True, repr=False, eq=False)
class Literal(ExprNode):
    """A constant; equal only to one of the same type: 1, 1.0 and True differ."""

    value: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Literal) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[type, str]:
        # Compare by repr: it distinguishes 0.0 from -0.0, and NaN equals itself.
        return type(self.value), repr(self.value)

    def __repr__(self) -> str:
        return f"lit({self.value!r})"


@dataclass(frozen=True, repr=False)
class Now(ExprNode):
    """The processing time of the epoch."""

    def __repr__(self) -> str:
        return "now()"


@dataclass(frozen=True, repr=False)
class Call(ExprNode):
    """An operation on other expressions; its parameters, such as a cast's type, are Literals.

    Raises:
        ExpressionError: If calls are nested too deeply.
    """

    op: str
    args: tuple[ExprNode, ...]
    depth: int = field(init=False, compare=False)

    def __post_init__(self) -> None:
        depth = 1 + max((arg.depth for arg in self.args if isinstance(arg, Call)), default=0)
        if depth > _DEEPEST:
            raise ExpressionError(
                f"an expression has more than {_DEEPEST} calls within each other",
                hint="compute a part of it before, by with_column; add many columns in parts: (a + b) + (c + d)",
            )
        object.__setattr__(self, "depth", depth)

    def __repr__(self) -> str:
        first, *rest = self.args
        if function := FUNCTIONS.get(self.op):
            if not function.is_method:
                return _function_text(function.name, self.args)
            if self.op == "field":
                return f"{_operand(first)}[{_parameter_text(rest[0])}]"
            return f"{_operand(first)}.{function.name}({', '.join(_parameter_text(arg) for arg in rest)})"
        symbol = OPERATIONS[self.op]
        if not symbol:
            return f"{_operand(first)}.{self.op}({', '.join(_parameter_text(arg) for arg in rest)})"
        if not rest:
            return f"{symbol}{_operand(first)}"
        return f"{_operand(first)} {symbol} {_operand(rest[0])}"


def joined(op: str, left: ExprNode, right: ExprNode) -> ExprNode:
    """Return two conditions joined by "and_" or "or_"; a long chain becomes a tree, which is true for the same rows.

    The conditions keep their order: where the first ones decide, the others are not computed.
    """
    call = Call(op, (left, right))
    if max(_length(call, 0), _length(call, -1)) <= _LONGEST:
        return call
    return _tree(op, list(_conditions(call)))


def _length(call: Call, side: int) -> int:
    """Return how many calls of the same operation are within each other, first (0) or last (-1)."""
    length = 0
    node: ExprNode = call
    while isinstance(node, Call) and node.op == call.op:
        length, node = length + 1, node.args[side]
    return length


def _conditions(call: Call) -> Iterator[ExprNode]:
    """Yield what calls of one operation join."""
    rest: list[ExprNode] = [call]
    while rest:
        node = rest.pop()
        if isinstance(node, Call) and node.op == call.op:
            rest.extend(reversed(node.args))
        else:
            yield node


def _tree(op: str, conditions: Sequence[ExprNode]) -> ExprNode:
    half = len(conditions) // 2
    return Call(op, (_tree(op, conditions[:half]), _tree(op, conditions[half:]))) if half else conditions[0]


def _operand(node: ExprNode) -> str:
    return f"({node!r})" if isinstance(node, Call) and OPERATIONS.get(node.op) else repr(node)


def _function_text(name: str, args: Sequence[ExprNode]) -> str:
    if name == "when":
        # Pairs of a condition and a value, and the value for the other rows.
        pairs = zip(args[:-1:2], args[1:-1:2], strict=True)
        branches = ".".join(f"when({condition!r}).then({value!r})" for condition, value in pairs)
        return f"{branches}.otherwise({args[-1]!r})"
    if name == "struct":
        pairs = zip(args[::2], args[1::2], strict=True)
        return f"struct({', '.join(f'{_text_of(field)}={value!r}' for field, value in pairs)})"
    if name == "concat_str":
        *values, separator = args
        return f"concat_str({', '.join(map(repr, values))}, separator={_parameter_text(separator)})"
    return f"{name}({', '.join(map(repr, args))})"


def _text_of(node: ExprNode) -> str:
    return str(node.value) if isinstance(node, Literal) else repr(node)


def _parameter_text(node: ExprNode) -> str:
    return repr(node.value) if isinstance(node, Literal) else repr(node)


def _walk(node: ExprNode) -> Iterator[ExprNode]:
    yield node
    for arg in node.args if isinstance(node, Call) else ():
        yield from _walk(arg)


def column_names(node: ExprNode) -> set[str]:
    """Return the names of the columns that an expression reads."""
    return {part.name for part in _walk(node) if isinstance(part, Column)}


def output_name(node: ExprNode) -> str:
    """Return the name of the column that an expression becomes: its alias, or the name of the column that it is.

    Raises:
        ExpressionError: If it is computed and has no alias.
    """
    if isinstance(node, Column):
        return node.name
    if isinstance(node, Call) and node.op == "alias":
        return str(parameter(node))
    raise ExpressionError(f"the computed column {node!r} has no name", hint='name it: .alias("…")')


def parameter(node: Call) -> Any:
    """Return the value of a call's last argument, a constant."""
    last = node.args[-1]
    assert isinstance(last, Literal)
    return last.value


@dataclass(frozen=True)
class Function:
    """A function of expressions.

    Args:
        op: The operation of its `Call`.
        name: How it is called: ``"str.lower"`` as a method of an expression, ``"coalesce"`` as a function.
        takes: The types of its arguments.
        returns: The type of its values.
        is_method: True if it is called on an expression.
    """

    op: str
    name: str
    takes: str
    returns: str
    nulls: str = _NULL
    is_method: bool = True


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
