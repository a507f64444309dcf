"""Functions in YAML: ``{function: its first argument, another argument: …}``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import Parameter, signature
from typing import Any, Literal, TypeVar

from volley.config.scope import Expression, Scope
from volley.documents.mistakes import Path, nearest
from volley.errors import VolleyError
from volley.plan import aggregates, series
from volley.plan.aggregates import Aggregation
from volley.plan.series import SeriesFunction

__all__ = ["AggregateCall", "SeriesCall", "aggregations", "series_functions"]

AggregateCall = Literal["count"] | dict[str, Expression]
"""A call of an aggregate function."""
SeriesCall = dict[str, Expression | AggregateCall]
"""A call of a series function."""

F = TypeVar("F")

_AGGREGATES: dict[str, Callable[..., Aggregation]] = {
    name: getattr(aggregates, function) for name, function in aggregates.AGGREGATES.items()
}
_SERIES: dict[str, Callable[..., SeriesFunction]] = {name: getattr(series, name) for name in series.SERIES}
_GAPS: dict[Any, Callable[[Aggregation], Aggregation]] = {
    "forward_fill": Aggregation.forward_fill,
    "interpolate": Aggregation.interpolate,
}


def aggregations(calls: Mapping[str, AggregateCall], scope: Scope, path: Path) -> dict[str, Aggregation]:
    """Return the aggregates by their columns, without those that have mistakes.

    Args:
        calls: The calls by their columns.
    """
    computed = {name: _aggregation(call, scope, (*path, name)) for name, call in calls.items()}
    return {name: function for name, function in computed.items() if function is not None}


def series_functions(calls: Mapping[str, SeriesCall], scope: Scope, path: Path) -> dict[str, SeriesFunction]:
    """Return the series functions by their columns, without those that have mistakes; arguments of `aggregations`."""
    computed = {
        name: _called("series function", _SERIES, call, scope, (*path, name), "{rate: bytes, per: 1s}")
        for name, call in calls.items()
    }
    return {name: function for name, function in computed.items() if function is not None}


def _aggregation(call: AggregateCall, scope: Scope, path: Path) -> Aggregation | None:
    """Return an aggregate; `gaps` beside its arguments says what windows without rows have of it."""
    if isinstance(call, str):
        return aggregates.count()
    gaps = call.get("gaps")
    arguments = {name: value for name, value in call.items() if name != "gaps"}
    aggregation = _called("aggregate", _AGGREGATES, arguments, scope, path, "{sum: price}")
    if gaps is None or aggregation is None:
        return aggregation
    if gaps not in _GAPS:
        scope.collector.add((*path, "gaps"), f"gaps is {gaps!r}", "forward_fill or interpolate")
        return None
    return _GAPS[gaps](aggregation)


def _called(
    kind: str,
    functions: Mapping[str, Callable[..., F]],
    call: Mapping[str, Any],
    scope: Scope,
    path: Path,
    example: str,
) -> F | None:
    """Return what a function gives for the arguments of a call; None if there is a mistake."""
    names = [name for name in call if name in functions]
    if len(names) != 1:
        unknown = next(iter(call), "")
        article = f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"
        message = f"{article} has {len(names)} functions" if names else f"there is no {kind} {unknown!r}"
        scope.collector.add(
            (*path, unknown), message, f"one: {example}" if names else nearest(unknown, functions), of_key=True
        )
        return None
    (name,) = names
    first, *others = signature(functions[name]).parameters.values()
    if not _fits(name, call.keys() - {name}, others, scope, path):
        return None
    arguments = {}
    for key, value in call.items():
        argument = first.name if key == name else key
        arguments[argument] = _argument(argument, value, scope, (*path, key))
    if any(argument is None for argument in arguments.values()):
        return None
    try:
        return functions[name](**arguments)
    except VolleyError as error:
        scope.collector.add((*path, name), error.message, error.hint)
        return None


def _fits(name: str, keys: set[str], parameters: list[Parameter], scope: Scope, path: Path) -> bool:
    """Return whether a function takes these arguments, and needs no others."""
    unknown = sorted(keys - {parameter.name for parameter in parameters})
    for key in unknown:
        scope.collector.add((*path, key), f"{name} has no argument {key!r}", "leave it out", of_key=True)
    missing = [each.name for each in parameters if each.default is Parameter.empty and each.name not in keys]
    for key in missing:
        scope.collector.add((*path, name), f"{name} has no {key}", f"{{{name}: …, {key}: …}}", of_key=True)
    return not (unknown or missing)


def _argument(name: str, value: Any, scope: Scope, path: Path) -> Any:
    """Return an argument: expressions and aggregates from their text, others as they are."""
    if name == "aggregation":
        return _aggregation(value, scope, path)
    return scope.expression(value, path) if name in ("value", "by") else value
