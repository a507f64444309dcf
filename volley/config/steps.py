"""The steps of a pipeline in YAML: one row of a table for each verb of a stream."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic import ConfigDict, Field, create_model

from volley.config.keyed import (
    GroupStep,
    JoinStep,
    OrderStep,
    SeriesStep,
    WindowStep,
    aggregate,
    join,
    ordered,
    placed,
    windowed,
)
from volley.config.scope import Expression, Scope
from volley.documents.mistakes import Path
from volley.documents.models import Model, Names, Whole, given, model_of
from volley.errors import ExpressionError, VolleyError
from volley.plan.expressions import Expr
from volley.stream.stream import DataStream

__all__ = ["VERBS", "Step", "apply_steps"]


class _Deduplication(Model):
    """Which rows count as the same; see `DataStream.deduplicate`."""

    keys: Names = Field(description="The key columns.")


Deduplication = model_of(DataStream.deduplicate, frozenset({"keys"}), _Deduplication)


class _Expectation(Model):
    """What is expected of rows; see `DataStream.expect`."""

    name: str = Field(description="What is expected, in words: counts are told by it.")
    predicate: str = Field(description="SQL: a row for which it is false fails, one for which it is null does not.")


Expectation = model_of(DataStream.expect, frozenset({"name", "predicate"}), _Expectation)
Explosion, Sample, Repartition = map(model_of, (DataStream.explode, DataStream.sample, DataStream.repartition))


@dataclass(frozen=True)
class Verb:
    """A verb of a stream in YAML.

    Args:
        argument: The type of what stands behind it.
        apply: Returns the stream with the step: from the stream, the argument, the scope and the argument's path.
    """

    argument: Any
    apply: Callable[[DataStream, Any, Scope, Path], DataStream]
    description: str


def _filter(stream: DataStream, text: str, scope: Scope, path: Path) -> DataStream:
    predicate = scope.expression(text, path)
    return stream if predicate is None else stream.filter(predicate)


def _select(stream: DataStream, columns: list[str | dict[str, Expression]], scope: Scope, path: Path) -> DataStream:
    selected: list[str | Expr] = []
    for number, column in enumerate(columns):
        if isinstance(column, str):
            selected.append(column)
        else:
            computed = scope.expressions(column, (*path, number))
            selected += [expression.alias(name) for name, expression in computed.items()]
    return stream.select(*selected)


def _with_columns(stream: DataStream, columns: dict[str, Expression], scope: Scope, path: Path) -> DataStream:
    computed = scope.expressions(columns, path)
    return stream.with_columns(**computed) if computed or not columns else stream


def _with_column(stream: DataStream, columns: dict[str, Expression], scope: Scope, path: Path) -> DataStream:
    if len(columns) != 1:
        raise ExpressionError(f"with_column has {len(columns)} columns", hint="one; for several: with_columns")
    for name, expression in scope.expressions(columns, path).items():
        return stream.with_column(name, expression)
    return stream


def _deduplicate(stream: DataStream, by: Any, scope: Scope, path: Path) -> DataStream:
    if isinstance(by, list):
        return stream.deduplicate(*by)
    settings = given(by)
    return stream.deduplicate(*settings.pop("keys"), **settings)


def _explode(stream: DataStream, step: Any, scope: Scope, path: Path) -> DataStream:
    return stream.explode(step) if isinstance(step, str) else stream.explode(**given(step))


def _sample(stream: DataStream, step: Any, scope: Scope, path: Path) -> DataStream:
    return stream.sample(**given(step))


def _repartition(stream: DataStream, step: Any, scope: Scope, path: Path) -> DataStream:
    return stream.repartition(step) if isinstance(step, int) else stream.repartition(**given(step))


def _union(stream: DataStream, names: list[str], scope: Scope, path: Path) -> DataStream:
    others = [scope.stream(name, (*path, number)) for number, name in enumerate(names)]
    return stream.union(*(other for other in others if other is not None))


def _expect(stream: DataStream, step: Any, scope: Scope, path: Path) -> DataStream:
    settings = given(step)
    predicate = scope.expression(settings.pop("predicate"), (*path, "predicate"))
    return stream if predicate is None else stream.expect(predicate=predicate, **settings)


VERBS = {
    "filter": Verb(str, _filter, "Keep the rows for which a SQL condition is true."),
    "expect": Verb(
        Expectation,
        _expect,
        "Count the rows that do not meet a condition, and warn of, drop or reject them: {name, predicate, on_fail}.",
    ),
    "select": Verb(
        list[str | dict[str, Expression]],
        _select,
        "Keep these columns: names, or {name: SQL} for computed ones.",
    ),
    "with_columns": Verb(
        dict[str, Expression], _with_columns, "Add or replace columns, all computed from the rows as they were."
    ),
    "with_column": Verb(dict[str, Expression], _with_column, "Add or replace one column: {name: SQL}."),
    "with_processing_time": Verb(
        str, lambda stream, name, scope, path: stream.with_processing_time(name), "Add the time of processing: a name."
    ),
    "drop": Verb(Names, lambda stream, names, scope, path: stream.drop(*names), "Drop these columns."),
    "rename": Verb(
        dict[str, str], lambda stream, names, scope, path: stream.rename(names), "Rename columns: {old: new}."
    ),
    "deduplicate": Verb(
        Names | Deduplication,
        _deduplicate,
        "Keep the first row of each key: columns, or {keys, event_time, within}.",
    ),
    "explode": Verb(str | Explosion, _explode, "Make a row of each item of a list: a column, or {column, keep_empty}."),
    "sample": Verb(Sample, _sample, "Keep a part of the keys, with all of their rows."),
    "limit": Verb(
        Whole,
        lambda stream, rows, scope, path: stream.limit(rows),
        "Keep at most this many rows of a stream that ends.",
    ),
    "window": Verb(WindowStep, windowed, "Group rows by keys and windows of event time, and compute aggregates."),
    "series": Verb(SeriesStep, ordered, "Add columns that a row gets from the rows of its key before it."),
    "order_by": Verb(OrderStep, placed, "Add columns that a row gets from the rows of its key around it, in an order."),
    "aggregate": Verb(GroupStep, aggregate, "Group rows by keys, and compute aggregates."),
    "join": Verb(JoinStep, join, "Add the columns of a table's, or another stream's, rows with the same key."),
    "union": Verb(Names, _union, "Add the rows of other sources, by their names."),
    "repartition": Verb(
        Whole | Repartition,
        _repartition,
        "Divide an epoch's rows among this many tasks that write them: a number, or {tasks, by}.",
    ),
    "sort_within_epoch": Verb(
        Names,
        lambda stream, columns, scope, path: stream.sort_within_epoch(*columns),
        "Sort the rows of each data file by these columns, such as at desc: the last step.",
    ),
}
"""The verbs, by name."""

_definitions: dict[str, Any] = {
    name: (verb.argument | None, Field(None, description=verb.description)) for name, verb in VERBS.items()
}
Step: type[Model] = create_model(
    "Step",
    __base__=Model,
    __doc__="One step: one verb, with what it needs.",
    **_definitions,
)
Step.model_config = ConfigDict(**Step.model_config, json_schema_extra={"minProperties": 1, "maxProperties": 1})
Step.model_rebuild(force=True)


def apply_steps(stream: DataStream, steps: list[Any], scope: Scope, path: Path) -> DataStream:
    """Return the stream with the steps; those with mistakes are left out.

    Args:
        steps: The document's values: one mapping for each step.
    """
    for number, values in enumerate(steps):
        place = (*path, number)
        step = scope.collector.check(Step, values, place)
        verbs = {} if step is None else given(step)
        if len(verbs) > 1:
            scope.collector.add(
                place, f"a step has the verbs {', '.join(verbs)}", "one step for each: begin each with -"
            )
        for name, argument in verbs.items():
            if argument is None:
                scope.collector.add((*place, name), f"{name} is empty", VERBS[name].description)
                continue
            try:
                with scope.at((*place, name)):
                    stream = VERBS[name].apply(stream, argument, scope, (*place, name))
            except VolleyError as error:
                scope.collector.add((*place, name), error.message, error.hint)
    return stream
