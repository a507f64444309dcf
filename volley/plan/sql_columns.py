"""Gives constants in a SQL text the types of the columns that they are compared with: `day >= '2026-11-01'`."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlglot import exp

__all__ = ["KnownColumn", "Resolve", "with_columns"]

_MOMENTS = ("timestamp", "timestamp_ntz", "timestamp(9)", "timestamp_ntz(9)")
_NUMBER = re.compile(r"\s*([+-]?)\s*(\d+\.?\d*(?:e[+-]?\d+)?|\.\d+(?:e[+-]?\d+)?)\s*", re.I)
_WHOLE = {"int": 31, "long": 63}
_TYPES = {
    "date": exp.DType.DATE,
    "time": exp.DType.TIME,
    "timestamp": exp.DType.TIMESTAMP,
    "timestamp_ntz": exp.DType.TIMESTAMPNTZ,
    "uuid": exp.DType.UUID,
}
_PAIRS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.NullSafeNEQ)


@dataclass(frozen=True)
class KnownColumn:
    """A column, or a field of a struct.

    Args:
        names: Its name, or those of the column and of the fields within it.
        type: Its type, as casts name it; "" = constants stay as they are.
    """

    names: Sequence[str]
    type: str


Resolve = Callable[[Sequence[str]], KnownColumn | None]
"""Returns what the names between the dots of a SQL text mean; None = not known."""


def with_columns(tree: exp.Expression, resolve: Resolve) -> exp.Expression:
    """Return a tree in which constants have the types of their columns, and columns are named as `resolve` says."""
    for node in list(tree.walk()):
        for name, others in _compared(node):
            column = node.args[name]
            known = resolve(_path(column)) if isinstance(column, exp.Column | exp.Dot) else None
            if known is None:
                continue
            for other in others:
                _set_typed(node, other, known.type)
            if known.type == "uuid":
                # Expressions compare no UUIDs, but their texts, which have the same order.
                node.set(name, _cast(column, exp.DType.TEXT))
    named = tree.transform(_named, resolve)
    assert isinstance(named, exp.Expression)
    return named


def _compared(node: exp.Expr) -> Sequence[tuple[str, Sequence[str]]]:
    """Return each operand of a comparison by its name in the tree, with those that it is compared with."""
    if isinstance(node, _PAIRS):
        return [("this", ["expression"]), ("expression", ["this"])]
    if isinstance(node, exp.In):
        return [("this", ["expressions"])]
    return [("this", ["low", "high"])] if isinstance(node, exp.Between) else []


def _set_typed(node: exp.Expr, name: str, to: str) -> None:
    value = node.args.get(name)
    # A list is set as a whole: to replace its items one by one takes time by the square of their number.
    node.set(name, [_typed(item, to) for item in value] if isinstance(value, list) else value and _typed(value, to))


def _path(node: exp.Expr) -> list[str]:
    if isinstance(node, exp.Dot):
        return [*_path(node.this), node.name]
    return [part.name for part in node.parts] if isinstance(node, exp.Column) else [node.name]


def _named(node: exp.Expr, resolve: Resolve) -> exp.Expr:
    known = resolve(_path(node)) if isinstance(node, exp.Column | exp.Dot) else None
    if known is None or list(known.names) == _path(node):
        return node
    named: exp.Expr = exp.column(known.names[0], quoted=True)
    for name in known.names[1:]:
        named = exp.Bracket(this=named, expressions=[exp.Literal.string(name)])
    return named


def _typed(constant: exp.Expr, to: str) -> exp.Expr:
    """Return a constant as one of a column's type; what is no constant, or has no such type, as it is."""
    text = _text(constant, to)
    if text is None:
        return constant
    if to in _WHOLE or to in ("float", "double", "decimal"):
        return _number(text, to)
    if to == "boolean" and text.lower() in ("true", "false"):
        return exp.Boolean(this=text.lower() == "true")
    name, _, digits = to.partition("(")
    return _cast(exp.Literal.string(text), _TYPES[name], digits[:-1]) if name in _TYPES else constant


def _text(constant: exp.Expr, to: str) -> str | None:
    """Return the text that says a constant; None if it is computed, or of a type of its own."""
    if isinstance(constant, exp.Paren):
        return _text(constant.this, to)
    if isinstance(constant, exp.Neg):
        text = _text(constant.this, to)
        return f"-{text}" if text and text[0].isdecimal() and not constant.this.is_string else None
    if isinstance(constant, exp.Cast) and constant.this.is_string and to in _MOMENTS:
        # `timestamp '…'` is of the column's type, with or without a zone.
        is_moment = constant.to.this in (exp.DType.TIMESTAMP, exp.DType.TIMESTAMPTZ, exp.DType.TIMESTAMPNTZ)
        return str(constant.this.this) if is_moment else None
    is_number = to in _WHOLE or to in ("float", "double", "decimal")
    return str(constant.this) if isinstance(constant, exp.Literal) and (constant.is_string or is_number) else None


def _number(text: str, to: str) -> exp.Expr:
    """Return a number that a column of numbers is compared with: exactly, but as a double with a double."""
    match = _NUMBER.fullmatch(text)
    if match is None:
        is_special = to in ("float", "double") and text.strip().lstrip("+-").lower() in ("nan", "inf", "infinity")
        return _cast(exp.Literal.string(text), exp.DType.DOUBLE if is_special else exp.DType.DECIMAL)
    sign, digits = match.groups()
    is_whole = digits.isdecimal() and int(digits).bit_length() <= _WHOLE.get(to, 63)
    if not is_whole and to not in ("float", "double"):
        return _cast(exp.Literal.string(sign + digits), exp.DType.DECIMAL)
    number: exp.Expr = exp.Literal.number(digits)
    return exp.Neg(this=number) if sign == "-" else number


def _cast(node: exp.Expr, to: exp.DType, digits: str = "") -> exp.Cast:
    numbers = [exp.DataTypeParam(this=exp.Literal.number(digits))] if digits else []
    return exp.Cast(this=node, to=exp.DataType(this=to, expressions=numbers, nested=False))
