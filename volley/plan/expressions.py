"""Expressions: predicates and values over columns; `col` and `lit` create them."""

from __future__ import annotations

import builtins
import html
import uuid
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

from volley.errors import ExpressionError, brief, brief_methods
from volley.plan.elsewhere import EXPRESSIONS, unknown
from volley.plan.expression_nodes import Call, Column, ExprNode, Literal, Now, joined
from volley.plan.namespaces import Lists, Maps, Strings
from volley.plan.numbers import Numeric
from volley.plan.times import ClockUnit, Times, check_clock_unit
from volley.types.names import TypeLike, check_type

__all__ = ["Expr", "as_node", "col", "lit", "now"]

_NAMESPACES = {
    **{"dns": uuid.NAMESPACE_DNS, "url": uuid.NAMESPACE_URL, "oid": uuid.NAMESPACE_OID},
    "x500": uuid.NAMESPACE_X500,
}
_LITERALS = (bool, int, float, str, bytes, Decimal, date, datetime, time)


@brief_methods
class Expr(Numeric["Expr"]):
    """An expression over columns: records the methods and operators called on it.

    Comparisons and arithmetic follow SQL: a null operand makes the result null, but ``false & null`` is false and
    ``true | null`` is true. Python's operators do the same as the methods.

    Example:
        >>> (col("price") * 2 > 10) & col("name").is_not_null()
        ((col('price') * lit(2)) > lit(10)) & col('name').is_not_null()
    """

    __slots__ = ("node",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, node: ExprNode) -> None:
        self.node = node

    def _call(self, op: builtins.str, *args: Any) -> Expr:
        return Expr(Call(op, (self.node, *(as_node(arg) for arg in args))))

    def _reversed(self, op: builtins.str, left: Any) -> Expr:
        return Expr(Call(op, (as_node(left), self.node)))

    def eq(self, other: Any) -> Expr:
        """Return self == other; NaN equals NaN, as in Spark."""
        return self._call("eq", other)

    def ne(self, other: Any) -> Expr:
        """Return self != other."""
        return self._call("ne", other)

    def gt(self, other: Any) -> Expr:
        """Return self > other; NaN is greater than all other numbers, as in Spark."""
        return self._call("gt", other)

    def gt_eq(self, other: Any) -> Expr:
        """Return self >= other."""
        return self._call("gt_eq", other)

    def lt(self, other: Any) -> Expr:
        """Return self < other."""
        return self._call("lt", other)

    def lt_eq(self, other: Any) -> Expr:
        """Return self <= other."""
        return self._call("lt_eq", other)

    def and_(self, other: Any) -> Expr:
        """Return self & other: true if both are; false if either is false, even if the other one is null."""
        return Expr(joined("and_", self.node, as_node(other)))

    def or_(self, other: Any) -> Expr:
        """Return self | other: true if either is, even if the other one is null."""
        return Expr(joined("or_", self.node, as_node(other)))

    def not_(self) -> Expr:
        """Return ~self: true for false, false for true, null for null."""
        return self._call("not_")

    def add(self, other: Any) -> Expr:
        """Return self + other; of a date or timestamp and a timedelta, the later time."""
        if isinstance(other, timedelta):
            return self.dt.add(days=other.days, seconds=other.seconds, microseconds=other.microseconds)
        return self._call("add", other)

    def sub(self, other: Any) -> Expr:
        """Return self - other; of a date or timestamp and a timedelta, the earlier time."""
        return self.add(-other) if isinstance(other, timedelta) else self._call("sub", other)

    def mul(self, other: Any) -> Expr:
        """Return self * other; an integer overflow raises."""
        return self._call("mul", other)

    def div(self, other: Any) -> Expr:
        """Return self / other as a double; division by zero raises."""
        return self._call("div", other)

    def mod(self, other: Any) -> Expr:
        """Return self % other of integers, with the sign of the dividend as in SQL, not Python; zero raises."""
        return self._call("mod", other)

    def neg(self) -> Expr:
        """Return -self."""
        return self._call("neg")

    def is_null(self) -> Expr:
        """Return true for null, else false."""
        return self._call("is_null")

    def is_not_null(self) -> Expr:
        """Return false for null, else true."""
        return self._call("is_not_null")

    def is_in(self, *values: Any) -> Expr:
        """Return true if it equals one of the values; else false, or null if None is one of them.

        Args:
            values: Constants, as arguments or as one list, tuple or set.

        Raises:
            ExpressionError: If there is no value.
        """
        options = values[0] if len(values) == 1 and isinstance(values[0], (list, tuple, set, frozenset)) else values
        listed = sorted(options, key=repr) if isinstance(options, (set, frozenset)) else list(options)
        if not listed:
            raise ExpressionError(f"{self!r}.is_in() without values", hint="give at least one value")
        return self._call("is_in", *listed)

    def between(self, low: Any, high: Any) -> Expr:
        """Return low <= self <= high."""
        return self.gt_eq(low).and_(self.lt_eq(high))

    def starts_with(self, prefix: builtins.str) -> Expr:
        """Return true if the string starts with `prefix`."""
        return self._call("starts_with", _pattern("starts_with", prefix))

    def contains(self, part: builtins.str) -> Expr:
        """Return true if the string contains `part`."""
        return self._call("contains", _pattern("contains", part))

    @property
    def str(self) -> Strings[Expr]:
        """Functions of texts."""
        return Strings(self._call)

    @property
    def dt(self) -> Times[Expr]:
        """Functions of dates and times."""
        return Times(self._call)

    @property
    def list(self) -> Lists[Expr]:
        """Functions of lists."""
        return Lists(self._call)

    @property
    def map(self) -> Maps[Expr]:
        """Functions of maps."""
        return Maps(self._call)

    def __getitem__(self, name: builtins.str) -> Expr:
        """Return a field of a struct; null if the struct is.

        Example:
            >>> col("place")["city"].str.upper()
            col('place')['city'].str.upper()
        """
        if not isinstance(name, builtins.str) or not name:
            raise ExpressionError(f"a field's name is a text, not {name!r}", hint='for example col("place")["city"]')
        return self._call("field", name)

    __iter__ = None

    def md5(self) -> Expr:
        """Return the MD5 hash of a text in UTF-8, or of a binary value, as 32 hexadecimal digits."""
        return self._call("md5")

    def sha256(self) -> Expr:
        """Return the SHA-256 hash of a text in UTF-8, or of a binary value, as 64 hexadecimal digits."""
        return self._call("sha256")

    def uuid5(self, namespace: UUID | builtins.str = "oid") -> Expr:
        """Return the UUID that a text has in a namespace (RFC 9562, version 5): the same key, the same id.

        Args:
            namespace: A UUID, or its text; ``"dns"``, ``"url"``, ``"oid"`` or ``"x500"`` for those of the RFC.

        Raises:
            ExpressionError: If it is no UUID.

        Example:
            >>> col("page").uuid5("url")
            col('page').uuid5('6ba7b811-9dad-11d1-80b4-00c04fd430c8')
        """
        return self._call("uuid5", _namespace(namespace))

    def fill_null(self, value: Any) -> Expr:
        """Return the value, or another one in the place of null."""
        return self._call("coalesce", value)

    def null_if(self, value: Any) -> Expr:
        """Return null if it equals a value, else itself."""
        return self._call("null_if", value)

    def from_epoch(self, unit: ClockUnit = "second") -> Expr:
        """Return the instant that lies this many units after the start of 1970, as a timestamp."""
        return self._call("from_epoch", check_clock_unit(unit))

    def cast(self, to: TypeLike) -> Expr:
        """Convert the value to another type; a value that it can't represent raises.

        Args:
            to: A type's name (``"long"``, ``"decimal(10,2)"``, ``"timestamp"``, …), or a Python type (``int``, …).

        Raises:
            ConfigError: If there is no such type.
        """
        return self._call("cast", check_type(to))

    def try_cast(self, to: TypeLike) -> Expr:
        """Convert the value to another type; null where that can't represent it.

        Args:
            to: As for `cast`.

        Raises:
            ConfigError: If there is no such type.

        Example:
            >>> col("amount").try_cast("decimal(10,2)").fill_null(0)
            coalesce(col('amount').try_cast('decimal(10,2)'), lit(0))
        """
        return self._call("try_cast", check_type(to))

    def alias(self, name: builtins.str) -> Expr:
        """Name the value, for the column that it becomes.

        Raises:
            ExpressionError: If the name is empty or not a string.
        """
        if not isinstance(name, builtins.str) or not name:
            raise ExpressionError(f"alias takes a name, not {name!r}", hint='for example alias("total")')
        return self._call("alias", name)

    def __eq__(self, other: object) -> Expr:  # type: ignore[override]
        return self.eq(other)

    def __ne__(self, other: object) -> Expr:  # type: ignore[override]
        return self.ne(other)

    __gt__, __ge__, __lt__, __le__ = gt, gt_eq, lt, lt_eq
    __and__, __or__, __invert__ = and_, or_, not_
    __add__, __sub__, __mul__, __truediv__, __mod__, __neg__ = add, sub, mul, div, mod, neg

    def __rand__(self, left: Any) -> Expr:
        return Expr(joined("and_", as_node(left), self.node))

    def __ror__(self, left: Any) -> Expr:
        return Expr(joined("or_", as_node(left), self.node))

    def __radd__(self, left: Any) -> Expr:
        return self.add(left) if isinstance(left, timedelta) else self._reversed("add", left)

    def __rsub__(self, left: Any) -> Expr:
        return self._reversed("sub", left)

    def __rmul__(self, left: Any) -> Expr:
        return self._reversed("mul", left)

    def __rtruediv__(self, left: Any) -> Expr:
        return self._reversed("div", left)

    def __rmod__(self, left: Any) -> Expr:
        return self._reversed("mod", left)

    if not TYPE_CHECKING:

        def __getattr__(self, name: builtins.str) -> Any:
            raise unknown(name, "an expression", type(self), EXPRESSIONS)

    def __bool__(self) -> bool:
        raise ExpressionError(
            f"{self!r} has no truth value before it runs",
            hint="combine expressions with & | ~ (with parentheses) or and_ or_ not_, and use between for a < x < b",
        )

    def __contains__(self, item: object) -> bool:
        raise ExpressionError(
            f"{item!r} in {self!r} is not known before it runs",
            hint="is_in for values that a column may have, contains for a part of a text",
        )

    def __repr__(self) -> builtins.str:
        return repr(self.node)

    def _repr_html_(self) -> builtins.str:
        return f"<code>{html.escape(repr(self))}</code>"


@brief
def col(name: str) -> Expr:
    """Return the value of a column.

    Args:
        name: The column's name.

    Raises:
        ExpressionError: If the name is empty or not a string.

    Example:
        >>> col("status").eq(lit("active"))
        col('status') == lit('active')
    """
    if not isinstance(name, str) or not name:
        raise ExpressionError(f"col takes a column's name, not {name!r}", hint='for example col("status")')
    return Expr(Column(name))


@brief
def now() -> Expr:
    """Return when a row is processed: one time for all rows of an epoch, which a repeated epoch has again.

    What is read without a job (`DataStream.show`, `to_arrow`) has one time, too. The type is timestamp.

    Example:
        >>> from datetime import timedelta
        >>> from volley import col, now
        >>> col("at") > now() - timedelta(days=1)
        col('at') > now().dt.add(-1, 0, 0, 0, 0)
    """
    return Expr(Now())


@brief
def lit(value: Any) -> Expr:
    """Return a constant.

    Args:
        value: None, a bool, int (64 bits), float, str, bytes, Decimal, date, datetime (aware = an instant) or time. An
            int becomes the type of the number that it is combined with; alone, an int, or a long above 32 bits. A value
            of a subclass, such as an enum's or NumPy's, counts as one of its base type.

    Raises:
        ExpressionError: If the value has another type, is too large, or a text with half a surrogate pair.

    Example:
        >>> lit(5) * col("price")
        lit(5) * col('price')
    """
    if value is not None and not isinstance(value, _LITERALS):
        raise ExpressionError(
            f"{value!r} of type {type(value).__name__} can't be a constant",
            hint="None, bool, int, float, str, bytes, Decimal, date, datetime and time can",
        )
    value = _plain(value)
    if isinstance(value, str):
        _check_unicode(value)
    if type(value) is int and not -(2**63) <= value < 2**63:
        raise ExpressionError(f"{value} does not fit 64 bits", hint="use Decimal for it")
    if isinstance(value, time) and value.tzinfo is not None:
        raise ExpressionError(f"{value!r} has a time zone, but columns of type time have none", hint="leave tzinfo out")
    return Expr(Literal(value))


def as_node(value: Any) -> ExprNode:
    """Return the node of an expression, or of any other value as a constant."""
    return value.node if isinstance(value, Expr) else lit(value).node


def _plain(value: Any) -> Any:
    """Return a constant of a subclass as a value of its base type."""
    if value is None or type(value) in _LITERALS or isinstance(value, datetime):
        return value
    match value:
        case str():
            # Not str(value): an enum writes the name of its member.
            return str.__str__(value)
        case date():
            return date(value.year, value.month, value.day)
        case time():
            return time(value.hour, value.minute, value.second, value.microsecond, value.tzinfo)
    return next(base for base in (int, float, bytes, Decimal) if isinstance(value, base))(value)


def _check_unicode(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ExpressionError(
            f"{text!r} has half a surrogate pair at {error.start}, which UTF-8 does not have",
            hint='join the halves: text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")',
        ) from error


def _namespace(namespace: UUID | str) -> str:
    try:
        return str(_NAMESPACES.get(str(namespace)) or UUID(str(namespace)))
    except ValueError as error:
        raise ExpressionError(
            f"namespace is {namespace!r}", hint=f"a UUID, or one of {', '.join(map(repr, _NAMESPACES))}"
        ) from error


def _pattern(op: str, text: Any) -> str:
    if not isinstance(text, str):
        raise ExpressionError(f"{op} takes a string, not {text!r}", hint="patterns are constants, not columns")
    return text
