"""Makes docs/reference/functions.md, the reference of the functions of expressions."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import volley
from tests.unit.functions import CASES
from volley.plan.expressions import Expr
from volley.plan.functions import FUNCTIONS, Function
from volley.plan.nested import Lists, Maps
from volley.plan.sql_functions import FUNCTIONS as SQL_FUNCTIONS
from volley.plan.sql_functions import arguments_of
from volley.plan.strings import Strings
from volley.plan.times import Times

__all__ = ["page"]

_HEAD = """# Functions of expressions

Made from the table of functions in `volley/plan/functions.py`; the examples are tried against DuckDB. Both execution
paths give the same values. Comparisons, arithmetic, logic, `is_in`, `between`, `is_null`, `starts_with`, `contains` and
`cast` are methods of every expression, too.

Cast to a text, floats are as in Python and DuckDB (`10000000.0`, `1e+16`, `inf`, `nan`; Spark has `1.0E7`, `1.0E16`,
`Infinity`, `NaN`), and instants end with a `Z`, in UTC, which Spark leaves out.
"""

_SQL = """## In SQL texts

`sql("…")` reads arithmetic, comparisons, `and`, `or`, `not`, `is null`, `is true`, `is distinct from`, `in`,
`between`, `like` and `ilike` with `escape`, `case`, `if`, `cast` and `::`, `||`, `extract`, `trim`, `substring`, fields
of structs (`a.b`), constants such as `date '2024-01-31'`, and these functions. Positions count from 1, as in SQL.
"""


def page() -> str:
    """The text of the page."""
    heads = ("function", "takes", "returns", "null", "example")
    lines = [_HEAD, _row(heads), _row(["---"] * len(heads))]
    lines += [_row(_cells(function)) for function in FUNCTIONS.values()]
    lines.append("")
    for function in FUNCTIONS.values():
        method = _method(function)
        first = (inspect.getdoc(method) or "").partition("\n\n")[0].replace("\n", " ")
        lines.append(f"- `{function.name}{_signature(method)}`: {first}")
    lines += ["", _SQL]
    lines += [f"- `{arguments_of(name, build)}`" for name, build in SQL_FUNCTIONS.items()]
    return "\n".join(lines) + "\n"


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
