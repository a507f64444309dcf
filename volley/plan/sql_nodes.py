"""Expressions out of sqlglot's syntax trees."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, reduce
from math import inf
from typing import Any

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ParseError, SqlglotError
from sqlglot.parser import Parser

from volley.errors import ConfigError, ExpressionError, near
from volley.plan.choices import concat_str
from volley.plan.expression_nodes import Call
from volley.plan.expressions import Expr, as_node, col, lit
from volley.plan.sql_columns import Resolve, with_columns
from volley.plan.sql_functions import FIRST_CONSTANT, FUNCTIONS, LITERALS, PARTS, arguments_of, like, substring
from volley.types.names import MOMENTS, NANOSECONDS

__all__ = ["ExpressionParser", "Mistake", "expression_of", "expression_of_tree", "mistakes_of", "written_paren"]

_WRITTEN = "written"
_SPECIAL_SYNTAX = ("CAST", "TRY_CAST", "EXTRACT", "SUBSTRING", "TRIM")


class ExpressionParser(Parser):
    """Leaves calls as they are written, except those with a syntax of their own."""

    FUNCTIONS = {}
    FUNCTION_PARSERS = {name: Parser.FUNCTION_PARSERS[name] for name in _SPECIAL_SYNTAX}

    def _parse_paren(self) -> exp.Expr | None:
        """Mark the parentheses that the text has: sqlglot adds others where engines differ in what it means."""
        parsed = super()._parse_paren()
        if isinstance(parsed, exp.Paren):
            parsed.meta[_WRITTEN] = True
        return parsed

    def _parse_alias(self, this: exp.Expr | None, explicit: bool = False) -> exp.Expr | None:
        """Take a name only after AS: of `1_000`, `0xFF` or `10 usd`, sqlglot reads a number and a name."""
        return super()._parse_alias(this, explicit=True)


class _Dialect(Dialect):
    """SQL without the functions of any engine."""

    Parser = ExpressionParser


class Mistake(Exception):
    """What a node can't become."""

    def __init__(self, message: str, node: exp.Expr, hint: str) -> None:
        super().__init__(message)
        self.message, self.node, self.hint = message, node, hint


def expression_of(text: str, resolve: Resolve | None = None) -> Expr:
    """Return the expression that a SQL text says; see `volley.sql`.

    Args:
        resolve: Returns the columns that the text can name: constants have the types of those that they are compared
            with. None = columns are not known, and constants have types of their own.
    """
    with mistakes_of(text, 'write one expression of SQL; a column that is named like a word of SQL stands in "'):
        trees = _Dialect().parse_into(exp.Expr, text)
        if not any(trees):
            raise ExpressionError("the SQL text is empty", hint='for example "price > 10"')
        if len(trees) > 1 or not isinstance(trees[0], exp.Expression):
            raise ExpressionError(f"the SQL text {text!r} has several expressions", hint="leave ; out")
        return _expr(trees[0] if resolve is None else with_columns(trees[0], resolve))


@contextmanager
def mistakes_of(text: str, hint: str) -> Iterator[None]:
    """Raise what goes wrong while a text is read as ExpressionError, with its place.

    Args:
        hint: What to write if the text is no SQL.
    """
    try:
        yield
    except Mistake as mistake:
        raise ExpressionError(f"{mistake.message}{_at_node(text, mistake.node)}", hint=mistake.hint) from None
    except ParseError as error:
        raise ExpressionError(_parse_error(text, error), hint=hint) from error
    except SqlglotError as error:
        hint = "a text ends with ', a quoted name with \""
        raise ExpressionError(f"the SQL text {text!r} can't be read: {error}", hint=hint) from error
    except RecursionError as error:
        raise ExpressionError("the SQL text is nested too deeply", hint="split it into columns") from error


def expression_of_tree(tree: exp.Expression) -> Expr:
    """Return the expression that a tree of `ExpressionParser` says.

    Raises:
        Mistake: If it says what expressions can't.
    """
    return _expr(tree)


def written_paren(tree: exp.Expr) -> exp.Paren:
    """Return a tree in parentheses, as if the text had them."""
    paren = exp.Paren(this=tree)
    paren.meta[_WRITTEN] = True
    return paren


def _expr(node: exp.Expression) -> Expr:
    """Return a node as an expression."""
    value = _value(node)
    return value if isinstance(value, Expr) else lit(value)


_INSTEAD: dict[type[exp.Expr], str] = {
    exp.Window: "the list of a query has functions over rows; filter by them in QUALIFY, or in a query around it"
}


def _value(node: exp.Expression) -> Any:
    """Return a constant as a Python value, any other node as an expression."""
    # A chain such as `a or b or c` takes a loop and not a frame of Python for each operator: it may have thousands.
    chain = [node]
    while type(chain[-1]) in _BINARY:
        chain.append(chain[-1].this)
    last = type(chain[-1])
    if last not in _CONVERSIONS:
        name = _name(chain[-1])
        hint = _INSTEAD.get(last, "use Python for it, or leave it out")
        raise Mistake(f"SQL's {name} is not an expression here", chain[-1], hint)
    convert, known = _CONVERSIONS[last]
    value = _converted(chain.pop(), convert, known)
    for operator in reversed(chain):
        value = _converted(operator, partial(_joined, value), _OPERANDS)
    return value


def _joined(value: Any, node: exp.Expression) -> Expr:
    """Return what stands before an operator, joined with what stands behind it."""
    if isinstance(node.expression, exp.Interval):
        return _shifted(value if isinstance(value, Expr) else lit(value), node, node.expression)
    return _BINARY[type(node)](value if isinstance(value, Expr) else lit(value), _value(node.expression))


def _shifted(moment: Expr, node: exp.Expression, interval: exp.Interval) -> Expr:
    """Return a date or time some time later, or earlier: `at + interval '3' day`."""
    number, unit = interval.this, str(interval.args.get("unit") or "").lower().removesuffix("s")
    is_number = isinstance(number, exp.Literal) and _WHOLE_NUMBER.fullmatch(str(number.this))
    if not isinstance(node, exp.Add | exp.Sub) or not is_number or unit not in _UNITS:
        raise Mistake("the interval can't be read", node, f"at + interval '3' day; units are {', '.join(_UNITS)}")
    method, times = _UNITS[unit]
    count = int(number.this) * times * (-1 if isinstance(node, exp.Sub) else 1)
    return moment.dt.add_months(count) if method == "months" else moment.dt.add(**{method: count})


_WHOLE_NUMBER = re.compile(r"\s*-?[0-9]{1,9}\s*")
_UNITS = {
    **{"year": ("months", 12), "month": ("months", 1), "week": ("days", 7), "day": ("days", 1)},
    **{"hour": ("hours", 1), "minute": ("minutes", 1), "second": ("seconds", 1)},
}


def _converted(node: exp.Expression, convert: Callable[[Any], Any], known: set[str]) -> Any:
    """Return what a node becomes; its mistakes name its place."""
    for name, argument in node.args.items():
        if argument and name not in known and name not in _IGNORED:
            raise Mistake(f"SQL's {_name(node)} takes no {name} here", node, f"leave {name} out")
    try:
        return convert(node)
    except (ConfigError, ExpressionError) as error:
        raise Mistake(error.message, node, error.hint or "") from error


def _name(node: exp.Expression) -> str:
    return str(node.key).upper()


# Arguments with which sqlglot notes how other dialects would write the node.
_IGNORED = {"safe", "typed", "coalesce", "_type"}


def _column(node: exp.Column) -> Expr:
    first, *fields = node.parts
    if any(isinstance(part, exp.Star) for part in (first, *fields)):
        raise Mistake("SQL's * is not an expression", node, "name the columns")
    return reduce(lambda struct, field: struct[field.name], fields, col(first.name))


def _literal(node: exp.Literal) -> Any:
    if node.is_string:
        return node.this
    try:
        number = float(node.this) if set(node.this) & set(".eE") else int(node.this)
    except ValueError as error:
        raise Mistake(f"{node.this!r} is no number", node, "for example 1000, 2.5 or 1e3") from error
    if number == inf:
        raise Mistake(f"no double holds {node.this}", node, "write a number up to 1.7976931348623157e308")
    return number


def _negative(node: exp.Neg) -> Any:
    value = _value(node.this)
    if isinstance(value, (bool, str)):
        raise Mistake(f"- stands before {value!r}", node, "write it before a number; the opposite of true is not true")
    return -value if isinstance(value, (Expr, int, float)) else lit(value).neg()


def _comparison(method: Callable[..., Expr]) -> Callable[[exp.Expression], Expr]:
    def convert(node: exp.Expression) -> Expr:
        for operand in (node.this, node.expression):
            inner = operand.this if isinstance(operand, exp.Not) else operand
            if isinstance(inner, _PREDICATES) or (isinstance(inner, exp.Paren) and _WRITTEN not in inner.meta):
                # Engines differ in what `a = b is null` means.
                raise Mistake("SQL's condition is ambiguous", node, "put its parts into parentheses")
        return method(_expr(node.this), _value(node.expression))

    return convert


def _is(node: exp.Is) -> Expr:
    value, expected = _expr(node.this), node.expression
    if isinstance(expected, exp.Null):
        return value.is_not_null() if node.args.get("negate") else value.is_null()
    if isinstance(expected, exp.Column) and expected.sql().lower() == "nan":
        return value.is_nan().fill_null(False)
    if not isinstance(expected, exp.Boolean):
        raise Mistake("IS is followed by NULL, TRUE, FALSE or NAN", node, "compare other values by =")
    return (value if expected.this else ~value).fill_null(False)


def _in(node: exp.In) -> Expr:
    value, listed = _expr(node.this), [_value(option) for option in node.expressions]
    if not any(isinstance(option, Expr) for option in listed):
        return value.is_in(listed)
    return reduce(Expr.or_, (value.eq(option) for option in listed))


def _like(node: exp.Like | exp.ILike, escape: str = "") -> Expr:
    matches = like(_expr(node.this), _value(node.expression), escape, ignore_case=isinstance(node, exp.ILike))
    return ~matches if node.args.get("negate") else matches


def _escape(node: exp.Escape) -> Expr:
    if not isinstance(node.this, (exp.Like, exp.ILike)):
        raise Mistake("ESCAPE follows LIKE", node, "leave it out")
    escape = _value(node.expression)
    if not isinstance(escape, str) or len(escape) != 1:
        raise Mistake(f"the escape character is {escape!r}", node, "one character in quotes")
    return _like(node.this, escape)


def _case(node: exp.Case) -> Expr:
    subject = node.this and _expr(node.this)
    ifs = node.args["ifs"]
    conditions = [_expr(part.this) if subject is None else subject.eq(_value(part.this)) for part in ifs]
    values = [_value(part.args["true"]) for part in ifs]
    default = node.args.get("default")
    pairs = [value for pair in zip(conditions, values, strict=True) for value in pair]
    return _choice(*pairs, _value(default) if default else None)


def _if(node: exp.If) -> Expr:
    default = node.args.get("false")
    return _choice(_expr(node.this), _value(node.args["true"]), _value(default) if default else None)


def _distinct(node: exp.NullSafeNEQ) -> Expr:
    left, right = _expr(node.this), _expr(node.expression)
    return _choice(left.is_null() | right.is_null(), left.is_null() != right.is_null(), left != right)


def _choice(*parts: Any) -> Expr:
    """Return a choice of conditions, each with its value behind it, and the value of all other rows."""
    return Expr(Call("when", tuple(map(as_node, parts))))


def _cast(node: exp.Cast) -> Any:
    to = _type(node.to)
    name = to.partition("(")[0]
    value = _value(node.this)
    # `date '2024-01-01'` comes as a cast of a constant text; casts between other types are left to the expression.
    # Python's times have no nanoseconds.
    is_fine = name in MOMENTS and name != to
    if name in LITERALS and isinstance(value, str) and not is_fine and not isinstance(node, exp.TryCast):
        try:
            constant = LITERALS[name](value)
        except ValueError as error:
            raise Mistake(f"{value!r} is no {name}", node, f"for example {name} '{_EXAMPLES[name]}'") from error
        return lit(constant).cast(to) if name != to else constant
    expression = _expr(node.this)
    return expression.try_cast(to) if isinstance(node, exp.TryCast) else expression.cast(to)


_EXAMPLES = {
    **{"date": "2024-01-31", "time": "09:30:00", "timestamp": "2024-01-31 09:30:00+01:00", "decimal": "2.5"},
    **{"timestamp_ntz": "2024-01-31 09:30:00", "uuid": "f81d4fae-7dec-11d0-a765-00a0c91e6bf6"},
}
_TYPE_NAMES = {
    "text": "string",
    "varchar": "string",
    "bigint": "long",
    "varbinary": "binary",
    "timestamptz": "timestamp",
    "timestampntz": "timestamp_ntz",
}


def _type(node: exp.DataType) -> str:
    name = (node.args.get("kind") or node.this.value) if node.this is exp.DType.USERDEFINED else node.this.value
    name = _TYPE_NAMES.get(str(name).lower(), str(name).lower())
    if node.args.get("nested"):
        raise Mistake("casts to lists, maps and structs are not possible", node, "cast their parts")
    digits = ", ".join(part.name for part in node.expressions)
    is_fine = name in MOMENTS and digits == str(NANOSECONDS)
    return f"{name}({digits})" if is_fine or (digits and name == "decimal") else name


def _extract(node: exp.Extract) -> Expr:
    part = node.this.name.lower()
    if part not in PARTS:
        raise Mistake(f"EXTRACT has no part {part!r}", node, near(part, PARTS))
    return PARTS[part](_expr(node.expression))


def _trim(node: exp.Trim) -> Expr:
    text, characters = _expr(node.this).str, node.args.get("expression")
    strip = {"LEADING": text.strip_start, "TRAILING": text.strip_end}.get(str(node.args.get("position")), text.strip)
    return strip(" " if characters is None else _value(characters))


def _substring(node: exp.Substring) -> Expr:
    length = node.args.get("length")
    return substring(_expr(node.this), _value(node.args["start"]), None if length is None else _value(length))


def _field(node: exp.Bracket) -> Expr:
    (key,) = map(_value, node.expressions)
    if not isinstance(key, str):
        raise Mistake(f"[{key!r}] is no field", node, "a field's name in quotes: place['city']")
    return _expr(node.this)[key]


def _call(node: exp.Anonymous) -> Expr:
    name = node.name.lower()
    if name not in FUNCTIONS:
        raise Mistake(f"there is no function {node.name!r}", node, near(name, FUNCTIONS))
    build, arguments = FUNCTIONS[name], [_value(argument) for argument in node.expressions]
    try:
        inspect.signature(build).bind(*arguments)
    except TypeError as error:
        hint = arguments_of(name, build)
        raise Mistake(f"{node.name} got {len(arguments)} arguments", node, f"call it as {hint}") from error
    if arguments and not isinstance(arguments[0], Expr) and name not in FIRST_CONSTANT:
        arguments[0] = lit(arguments[0])
    return build(*arguments)


_PREDICATES = (exp.Is, exp.In, exp.Between, exp.Like, exp.ILike)
_COMPARISONS: dict[type[exp.Expression], Callable[..., Expr]] = {
    exp.EQ: Expr.eq,
    exp.NEQ: Expr.ne,
    exp.GT: Expr.gt,
    exp.GTE: Expr.gt_eq,
    exp.LT: Expr.lt,
    exp.LTE: Expr.lt_eq,
}
_BINARY: dict[type[exp.Expression], Callable[..., Expr]] = {
    exp.And: Expr.and_,
    exp.Or: Expr.or_,
    exp.Add: Expr.add,
    exp.Sub: Expr.sub,
    exp.Mul: Expr.mul,
    exp.Div: Expr.div,
    exp.Mod: Expr.mod,
    exp.RegexpLike: lambda text, pattern: text.str.matches(pattern),
    exp.DPipe: concat_str,
}
_OPERANDS = {"this", "expression"}

# How each kind of node is converted, and the arguments that are looked at.
_CONVERSIONS: dict[type[exp.Expression], tuple[Callable[[Any], Any], set[str]]] = {
    exp.Column: (_column, {"this", "table", "db", "catalog"}),
    # What stands behind the fourth name.
    exp.Dot: (lambda node: _expr(node.this)[node.name], _OPERANDS),
    exp.Literal: (_literal, {"this", "is_string"}),
    exp.Boolean: (lambda node: bool(node.this), {"this"}),
    exp.Null: (lambda node: None, set()),
    exp.Paren: (lambda node: _value(node.this), {"this"}),
    exp.Neg: (_negative, {"this"}),
    exp.Not: (lambda node: ~_expr(node.this), {"this"}),
    **{operator: (_comparison(method), _OPERANDS) for operator, method in _COMPARISONS.items()},
    exp.NullSafeNEQ: (_distinct, _OPERANDS),
    exp.NullSafeEQ: (lambda node: ~_distinct(node), _OPERANDS),
    exp.Is: (_is, {*_OPERANDS, "negate"}),
    exp.In: (_in, {"this", "expressions"}),
    exp.Between: (
        lambda node: _expr(node.this).between(_value(node.args["low"]), _value(node.args["high"])),
        {"this", "low", "high"},
    ),
    exp.Like: (_like, {*_OPERANDS, "negate"}),
    exp.ILike: (_like, {*_OPERANDS, "negate"}),
    exp.Escape: (_escape, _OPERANDS),
    exp.Case: (_case, {"this", "ifs", "default"}),
    exp.If: (_if, {"this", "true", "false"}),
    exp.Cast: (_cast, {"this", "to"}),
    exp.TryCast: (_cast, {"this", "to"}),
    exp.Extract: (_extract, _OPERANDS),
    exp.Trim: (_trim, {*_OPERANDS, "position"}),
    exp.Substring: (_substring, {"this", "start", "length"}),
    exp.Bracket: (_field, {"this", "expressions"}),
    exp.Anonymous: (_call, {"this", "expressions"}),
    exp.CurrentTimestamp: (lambda node: FUNCTIONS["current_timestamp"](), set()),
    exp.CurrentDate: (lambda node: FUNCTIONS["current_date"](), set()),
    exp.Alias: (lambda node: _expr(node.this).alias(node.alias), {"this", "alias"}),
}


def _at_node(text: str, node: exp.Expr) -> str:
    starts = [part.meta["start"] for part in node.walk() if "start" in part.meta]
    return _place(text, min(starts)) if starts else f"\n{text}"


def _parse_error(text: str, error: ParseError) -> str:
    first = error.errors[0]
    lines = text.split("\n")
    # The column is that of the last character of what is wrong.
    offset = sum(len(line) + 1 for line in lines[: first["line"] - 1]) + first["col"] - max(len(first["highlight"]), 1)
    missing = str(first["description"]).startswith("Required")
    what = f"something is missing after {first['highlight']!r}" if missing else f"unexpected {first['highlight']!r}"
    return f"{what}{_place(text, offset)}"


def _place(text: str, offset: int) -> str:
    """Return a place in a text: line and column, the line, and a caret below."""
    offset = min(max(offset, 0), len(text))
    line = text.count("\n", 0, offset)
    column = offset - (text.rfind("\n", 0, offset) + 1)
    return f" in line {line + 1}, column {column + 1}\n{text.split(chr(10))[line]}\n{' ' * column}^"
