"""The nodes of expressions: columns, constants and calls as plain data, which each backend compiles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from volley.contracts.source import ExprNode
from volley.errors import ExpressionError
from volley.plan.functions import FUNCTIONS

__all__ = ["OPERATIONS", "Call", "Column", "ExprNode", "Literal", "column_names", "joined", "output_name"]

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
        return str(_parameter(node))
    raise ExpressionError(f"the computed column {node!r} has no name", hint='name it: .alias("…")')


def _parameter(node: Call) -> Any:
    last = node.args[-1]
    assert isinstance(last, Literal)
    return last.value
