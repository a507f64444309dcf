"""Makes docs/reference/functions.md, the reference of the functions of expressions."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import volley
from tests.unit.beside_spark.cases import CASES as SPARK_CASES
from tests.unit.beside_spark.differences import differences
from tests.unit.functions import CASES
from volley.plan.expression_nodes import FUNCTIONS, Function
from volley.plan.expressions import Expr
from volley.plan.namespaces import Lists, Maps, Strings
from volley.plan.sql_functions import FUNCTIONS as SQL_FUNCTIONS
from volley.plan.sql_functions import arguments_of
from volley.plan.times import Times

__all__ = ["CLOCKS", "page"]

CLOCKS = ("sql now", "sql current_timestamp", "sql current_date")
"""Functions that are not compared by value: no two clocks are equal."""

_HEAD = """# Functions of expressions

Made from the table of functions in `volley/plan/expression_nodes.py`; the examples are tried against DuckDB.
Comparisons, arithmetic, logic, `is_in`, `between`, `is_null`, `starts_with`, `contains` and `cast` are methods of every
expression, too.

Each function is compared with Spark 4.3's of the same or the nearest name, with ANSI mode and the zone UTC, on values
at edges: nulls, empty texts, letters beyond ASCII, NaN, infinities, -0.0, the ends of types, far dates. Where no
difference stands below, values and types are equal; where Spark raises, so does Volley. What Volley does not compute
though Spark does, such as `%` of decimals or a sum that needs 39 digits, is refused before the job starts.
"""

_METHODS = """## Operators and casts

Python's operators do the same as these methods.
"""

_SQL = """## In SQL texts

`sql("…")` reads arithmetic, comparisons, `and`, `or`, `not`, `is null`, `is true`, `is distinct from`, `in`,
`between`, `like` and `ilike` with `escape`, `case`, `if`, `cast` and `::`, `||`, `extract`, `trim`, `substring`, fields
of structs (`a.b`), constants such as `date '2024-01-31'`, and these functions. Positions count from 1, as in SQL.
Columns' names are case-sensitive and quoted by `"`, and a backslash in a text, or in a pattern of `like`, stands for
itself; not so in Spark.
"""

_OTHERWISE_IN_SQL = """Of what is no function, these differ from Spark's:
"""


def page() -> str:
    """The text of the page."""
    heads = ("function", "takes", "returns", "null", "example")
    lines = [_HEAD, _row(heads), _row(["---"] * len(heads))]
    lines += [_row(_cells(function)) for function in FUNCTIONS.values()]
    lines.append("")
    lines += [_entry(function.name, _method(function)) for function in FUNCTIONS.values()]
    named = {function.name for function in FUNCTIONS.values()}
    lines += ["", _METHODS]
    names = dict.fromkeys(case.name for case in SPARK_CASES)
    lines += [_entry(name, getattr(Expr, name)) for name in names if name not in named and "sql " not in name]
    lines += ["", _SQL]
    lines += [
        f"- `{arguments_of(name, build)}`:{_beside_spark(f'sql {name}')}" for name, build in SQL_FUNCTIONS.items()
    ]
    lines += ["", _OTHERWISE_IN_SQL]
    syntax = [name for name in names if name.startswith("sql ") and name[4:] not in SQL_FUNCTIONS]
    lines += [f"- {_shown(name[4:])}: {_differences(name)}" for name in syntax if _differences(name)]
    return "\n".join(lines) + "\n"


def _entry(name: str, method: Callable[..., Any]) -> str:
    """Return the signature, the first sentence, and what Spark has."""
    first = (inspect.getdoc(method) or "").partition("\n\n")[0].replace("\n", " ")
    return f"- `{name}{_signature(method)}`: {first}{_beside_spark(name)}"


def _beside_spark(name: str) -> str:
    """Return what a function is compared with, and the differences."""
    calls = [case.spark for case in SPARK_CASES if case.name == name]
    if not calls and name in CLOCKS:
        return " As Spark's, of the epoch in which a row is processed."
    if not calls:
        return " Spark has no such function."
    text = _differences(name)
    return f" Differs from Spark's `{calls[0]}`: {text}" if text else f" Equal to Spark's `{calls[0]}`."


def _differences(name: str) -> str:
    return " ".join(difference.text for difference in differences() if name in difference.names)


def _shown(syntax: str) -> str:
    return syntax if " with " in syntax else f"`{syntax}`"


def _cells(function: Function) -> list[str]:
    example = next(case.expression for case in CASES if case.op == function.op)
    return [f"`{function.name}`", function.takes, function.returns, function.nulls, f"`{example!r}`"]


def _row(cells: Any) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _method(function: Function) -> Callable[..., Any]:
    namespace, _, name = function.name.rpartition(".")
    if function.op == "field":
        return Expr.__getitem__
    if not function.is_method:
        return getattr(volley, name)  # type: ignore[no-any-return]
    return getattr({"str": Strings, "dt": Times, "list": Lists, "map": Maps, "": Expr}[namespace], name)  # type: ignore[no-any-return]


def _signature(method: Callable[..., Any]) -> str:
    signature = inspect.signature(method)
    parameters = [
        each.replace(annotation=inspect.Parameter.empty)
        for name, each in signature.parameters.items()
        if name != "self"
    ]
    return str(signature.replace(parameters=parameters, return_annotation=inspect.Signature.empty))


if __name__ == "__main__":
    print(page(), end="")
