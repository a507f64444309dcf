"""What polars, pandas and PySpark call functions of expressions otherwise: an unknown name is answered with ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from volley.errors import ExpressionError, near

__all__ = ["EXPRESSIONS", "Namespace", "UnknownFunction", "unknown"]

E = TypeVar("E")

EXPRESSIONS = {
    "isNull": "is_null()",
    "isna": "is_null()",
    "isNotNull": "is_not_null()",
    "notna": "is_not_null()",
    "isin": "is_in(1, 2)",
    "isnan": "is_nan()",
    "is_between": "between(low, high)",
    "astype": 'cast("long")',
    "like": "sql(\"name like 'a%'\")",
    "ilike": "sql(\"name ilike 'a%'\")",
    "rlike": 'str.matches("^a")',
    "startswith": 'starts_with("a")',
    "endswith": 'str.ends_with("a")',
    "substr": "str.slice(0, 3)",
    "name": 'alias("name")',
    "fillna": "fill_null(0)",
    "fill_nan": "when(value.is_nan()).then(0).otherwise(value)",
    "otherwise": "when(condition).then(value).otherwise(other)",
    "when": "when(condition).then(value).otherwise(other)",
    "clip": "greatest(low, least(high, value))",
    "replace": "when(value == 1).then(2).otherwise(value)",
    "getItem": 'list.get(0), map.get("key") or ["field"]',
    "getField": '["field"]',
    "struct": '["field"]',
    "arr": "list",
    "eqNullSafe": "(a == b) | (a.is_null() & b.is_null())",
    "pow": "power(2)",
    "log": "ln() or log10()",
    "floordiv": "int_div(2)",
    "truediv": "div(2)",
    "xor": "bit_xor(1)",
    "bitwiseAND": "bit_and(1)",
    "bitwiseOR": "bit_or(1)",
    "bitwiseXOR": "bit_xor(1)",
    "hash": "volley.xxhash64(value) or volley.murmur3(value)",
    "mean": "avg()",
    "var": "variance()",
    "std": "variance(), then sqrt() of that column",
    "median": "quantile(0.5)",
    "n_unique": "count_distinct()",
    "collect_list": "volley.list_(value, limit)",
    "asc": 'sort_within_epoch("name asc"), of a stream',
    "desc": 'sort_within_epoch("name desc"), of a stream',
    "map_elements": "stream.map(function), or map_batches",
    "apply": "stream.map(function), or map_batches",
    "over": "stream.key_by(…).window(…)",
    "explode": 'stream.explode("name")',
}


class UnknownFunction(ExpressionError, AttributeError):
    """An unknown method of an expression; also an AttributeError, so that `hasattr` returns False."""


def unknown(name: str, what: str, owner: type, elsewhere: Mapping[str, str]) -> UnknownFunction:
    """Return the error for an unknown method, with ours in the place of one of polars, pandas or PySpark.

    Args:
        what: What has no such method.
        elsewhere: What others call otherwise.
    """
    ours, methods = elsewhere.get(name), [method for method in dir(owner) if not method.startswith("_")]
    return UnknownFunction(f"{what} has no {name!r}", hint=f"here {name} is {ours}" if ours else near(name, methods))


class Namespace(Generic[E]):
    """Functions of one kind of values.

    Args:
        record: Returns the expression that calls a function.
    """

    _name: ClassVar[str]
    _elsewhere: ClassVar[Mapping[str, str]] = {}

    def __init__(self, record: Callable[..., E]) -> None:
        self._record = record

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise unknown(name, f".{self._name}", type(self), self._elsewhere)
