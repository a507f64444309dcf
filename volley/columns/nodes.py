"""Compiles the steps without state to functions on Arrow batches, and checks their types."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from volley.columns.batches import check_values, conform, no_rows
from volley.columns.casts import cast
from volley.columns.clock import PROCESSING_TIME, epoch_clock
from volley.columns.compiled import as_array, whole
from volley.columns.dictionaries import decode_rows, make_batch
from volley.columns.exact import array_of
from volley.columns.expectations import lower_expectation
from volley.columns.expressions import compile_expression
from volley.columns.joins import lower_join
from volley.columns.keys.order import sort_keys
from volley.columns.letters import blaming, only_column
from volley.columns.unknown import unknown_columns, unknown_in_values
from volley.columns.user_code import failed
from volley.errors import ExpressionError, JobError, near
from volley.plan import nodes
from volley.plan.expression_nodes import Call, Column, ExprNode, output_name
from volley.types.arrow import arrow_schema, canonical_schema, type_name

__all__ = ["CompiledSteps", "lower"]

_Function = Callable[[pa.RecordBatch], pa.RecordBatch]
_LoweredStep = tuple[nodes.Node, _Function]
_Compute = Callable[[pa.RecordBatch], pa.Array]


@dataclass(frozen=True)
class CompiledSteps:
    """Narrow steps compiled for batches of one schema by `lower`; pickled to the executors."""

    nodes: tuple[nodes.Node, ...]
    input: pa.Schema
    schema: pa.Schema

    @cached_property
    def _steps(self) -> list[_LoweredStep]:
        steps, schema = [], self.input
        for node in self.nodes:
            step, schema = _lower(node, schema)
            steps.append((node, step))
        return steps

    def __call__(self, batch: pa.RecordBatch, behind: list[int] | None = None) -> pa.RecordBatch:
        """Apply all steps to a batch. An error notes its step, see `blame_of`.

        Args:
            behind: Gets the number of rows behind each step that has had rows.
        """
        for node, step in self._steps:
            if batch.num_rows == 0:
                return no_rows(self.schema)
            with blaming(node):
                batch = step(batch)
            if behind is not None:
                behind.append(batch.num_rows)
        return batch

    def __getstate__(self) -> dict[str, Any]:
        # Leave out the closures, which don't pickle; each executor compiles its own.
        return {"nodes": tuple(node.alone() for node in self.nodes), "input": self.input, "schema": self.schema}


def lower(nodes: Sequence[nodes.Node], schema: pa.Schema) -> CompiledSteps:
    """Check narrow nodes against the schema of their input and compile them.

    Raises:
        ExpressionError: If a column is unknown, or types do not fit.
    """
    out = schema
    for node in nodes:
        _, out = _lower(node, out)
    return CompiledSteps(tuple(nodes), schema, out)


def _lower(node: nodes.Node, schema: pa.Schema) -> tuple[_Function, pa.Schema]:
    return _LOWERED[type(node)](node, schema)


def _filter(node: nodes.Filter | nodes.Rest, schema: pa.Schema) -> tuple[_Function, pa.Schema]:
    predicate, rest = compile_expression(node.predicate, schema), isinstance(node, nodes.Rest)
    if pa.types.is_null(predicate.type):
        return (lambda batch: batch) if rest else (lambda batch: batch.slice(0, 0)), schema
    if not pa.types.is_boolean(predicate.type):
        raise ExpressionError(
            f"a filter takes a condition, but {node.predicate!r} is {type_name(predicate.type)}",
            hint="compare it with something",
        )

    def step(batch: pa.RecordBatch) -> pa.RecordBatch:
        with blaming(column=only_column(node.predicate)):
            mask = predicate.evaluate(batch)
        if isinstance(mask, pa.Scalar):
            return batch if bool(mask.as_py()) != rest else batch.slice(0, 0)
        if rest:
            mask = pc.invert(mask.fill_null(False))
        if mask.true_count == batch.num_rows:
            return batch  # filter() would copy it
        # Decode: a dictionary would keep the values of dropped rows, and so write them to the files.
        return decode_rows(batch.filter(mask))

    return step, schema


def _column_of(node: ExprNode, schema: pa.Schema) -> tuple[pa.DataType, _Compute]:
    """Return the type and evaluation of a column: a null gets a type, a constant is repeated for each row."""
    value, only = compile_expression(node, schema), only_column(node)
    data_type = pa.string() if pa.types.is_null(value.type) else value.type

    def column(batch: pa.RecordBatch) -> pa.Array:
        with blaming(column=only):
            values = as_array(cast(value.evaluate(batch), data_type), batch.num_rows)
        return whole(values)

    return data_type, column


def _output_field(node: ExprNode, data_type: pa.DataType, schema: pa.Schema) -> pa.Field:
    """Return the field of a selected column; an existing one keeps its metadata."""
    inner = _unaliased(node)
    metadata = schema.field(inner.name).metadata if isinstance(inner, Column) else None
    return pa.field(output_name(node), data_type, metadata=metadata)


def _unaliased(node: ExprNode) -> ExprNode:
    while isinstance(node, Call) and node.op == "alias":
        node = node.args[0]
    return node


def _selected(node: ExprNode, schema: pa.Schema) -> tuple[pa.DataType, _Compute]:
    """Return the type and evaluation of a selected column; an existing column stays as it is, also a dictionary."""
    value, inner = compile_expression(node, schema), _unaliased(node)
    if not isinstance(inner, Column) or pa.types.is_null(value.type):
        return _column_of(node, schema)
    index = schema.get_field_index(inner.name)
    return value.type, lambda batch: batch.column(index)


def _select(node: nodes.Select, schema: pa.Schema) -> tuple[_Function, pa.Schema]:
    columns = [_selected(column, schema) for column in node.columns]
    named = zip(node.columns, columns, strict=True)
    out = pa.schema([_output_field(column, data_type, schema) for column, (data_type, _) in named])

    def step(batch: pa.RecordBatch) -> pa.RecordBatch:
        return make_batch((compute(batch) for _, compute in columns), out)

    return step, out


def _with_columns(node: nodes.WithColumns, schema: pa.Schema) -> tuple[_Function, pa.Schema]:
    columns = {name: _column_of(value, schema) for name, value in node.columns}
    out = schema
    for name, (data_type, _) in columns.items():
        field, index = pa.field(name, data_type), schema.get_field_index(name)
        out = out.append(field) if index < 0 else out.set(index, field)

    def step(batch: pa.RecordBatch) -> pa.RecordBatch:
        arrays = [columns[name][1](batch) if name in columns else batch.column(name) for name in out.names]
        return make_batch(arrays, out)

    return step, out


def _processing_time(node: nodes.ProcessingTime, schema: pa.Schema) -> tuple[_Function, pa.Schema]:
    field, index = pa.field(node.column, PROCESSING_TIME), schema.get_field_index(node.column)
    out = schema.append(field) if index < 0 else schema.set(index, field)

    def step(batch: pa.RecordBatch) -> pa.RecordBatch:
        now = pa.repeat(pa.scalar(epoch_clock(), field.type), batch.num_rows)
        return make_batch([now if name == node.column else batch.column(name) for name in out.names], out)

    return step, out


def _check_columns(names: Iterable[str], schema: pa.Schema, verb: str) -> None:
    for name in names:
        if name not in schema.names:
            raise ExpressionError(f"{verb}: unknown column {name!r}", hint=near(name, schema.names))


def _lists(name: str, schema: pa.Schema) -> str:
    """Return how to explode something, in the place of a column that is no list."""
    lists = [repr(field.name) for field in schema if pa.types.is_list(field.type)]
    if pa.types.is_string(schema.field(name).type):
        return f'split the text before: with_column("{name}", col("{name}").str.split(","))'
    return f"lists are {', '.join(lists)}" if lists else "no column is a list: leave the step out"


def _explode(node: nodes.Explode, schema: pa.Schema) -> tuple[_Function, pa.Schema]:
    value = compile_expression(Column(node.column), schema)
    if not pa.types.is_list(value.type):
        raise ExpressionError(
            f"explode takes a list, but {node.column!r} is {type_name(value.type)}", hint=_lists(node.column, schema)
        )
    index = schema.get_field_index(node.column)
    out = schema.set(index, pa.field(node.column, value.type.value_type))

    def step(batch: pa.RecordBatch) -> pa.RecordBatch:
        lists = value.evaluate(batch)
        lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
        counts = np.maximum(lengths, 1) if node.keep_empty else lengths
        rows = np.repeat(np.arange(batch.num_rows), counts)
        # The place of each row's item among the items of all lists.
        before = (np.cumsum(counts) - counts) - (np.cumsum(lengths) - lengths)
        places = np.arange(len(rows)) - before[rows]
        items = pc.list_flatten(lists).take(pa.array(places, mask=lengths[rows] == 0))
        others = decode_rows(batch.take(pa.array(rows)))
        return make_batch((items if name == node.column else others.column(name) for name in out.names), out)

    return step, out


def _drop(node: nodes.Drop, schema: pa.Schema) -> tuple[_Function, pa.Schema]:
    _check_columns(node.columns, schema, "drop")
    remaining = [name for name in schema.names if name not in node.columns]
    if not remaining:
        raise ExpressionError(f"drop leaves no column of {', '.join(map(repr, schema.names))}", hint="keep one")
    return lambda batch: batch.select(remaining), pa.schema([schema.field(name) for name in remaining])


def _rename(node: nodes.Rename, schema: pa.Schema) -> tuple[_Function, pa.Schema]:
    names = dict(node.names)
    _check_columns(names, schema, "rename")
    new = [names.get(name, name) for name in schema.names]
    if twice := sorted({name for name in new if new.count(name) > 1}):
        raise ExpressionError(f"rename makes two columns {twice[0]!r}", hint="drop or rename the other one")
    out = pa.schema([field.with_name(name) for field, name in zip(schema, new, strict=True)])
    return lambda batch: make_batch(batch.columns, out), out


def _repartition(node: nodes.Repartition, schema: pa.Schema) -> tuple[_Function, pa.Schema]:
    # Only a check: rows change their tasks when all steps are done.
    _check_columns(node.keys, schema, "repartition")
    for name in node.keys:
        if pa.types.is_nested(schema.field(name).type):
            raise ExpressionError(f"repartition by {name!r}, which is nested", hint="take a field of it as a column")
    return lambda batch: batch, schema


def _sort_within_epoch(node: nodes.SortWithinEpoch | nodes.Ordered, schema: pa.Schema) -> tuple[_Function, pa.Schema]:
    # Only a check: rows are sorted when all of them are there.
    sort_keys(node.order, schema)
    return lambda batch: batch, schema


def _output_schema(declared: Any, schema: pa.Schema) -> pa.Schema:
    return schema if declared is None else canonical_schema(arrow_schema(declared))


def _map(node: nodes.Map, schema: pa.Schema) -> tuple[_Function, pa.Schema]:
    out = _output_schema(node.schema, schema)
    return partial(_each_row, node, lambda row: [node.function(row)], out), out


def _flat_map(node: nodes.FlatMap, schema: pa.Schema) -> tuple[_Function, pa.Schema]:
    out = _output_schema(node.schema, schema)
    return partial(_each_row, node, node.function, out), out


def _each_row(
    node: nodes.Node, function: Callable[[dict[str, Any]], Iterable[Any]], out: pa.Schema, batch: pa.RecordBatch
) -> pa.RecordBatch:
    rows = []
    for row in _as_dicts(node, batch):
        try:
            results = list(function(row))
        except Exception as error:
            raise failed(node.label(), error, f"the row {_short(row)}") from error
        for result in results:
            _check_row(node, result, out)
        rows += results
    return _from_rows(node, rows, out)


def _as_dicts(node: nodes.Node, batch: pa.RecordBatch) -> list[dict[str, Any]]:
    try:
        rows: list[dict[str, Any]] = batch.to_pylist()
    except (ValueError, OverflowError) as error:
        # Arrow supports times before the year 1 and after 9999, Python does not.
        raise JobError(
            f"{node.label()} was given a value that Python has no object for: {error}",
            hint="filter such rows out before, or use map_batches, which is given Arrow",
        ) from error
    return rows


def _check_row(node: nodes.Node, row: Any, out: pa.Schema) -> None:
    if not isinstance(row, dict):
        raise JobError(f"{node.label()} gave {_short(row)}", hint="return a dict of column names and values")
    for name in row:
        if name not in out.names:
            raise _unknown_column(node, str(name), out)


def _unknown_column(node: nodes.Node, name: str, out: pa.Schema) -> JobError:
    return JobError(
        f"{node.label()} gave a row with the unknown column {name!r}",
        hint=f"declare it: schema=…; {near(name, out.names)}",
    )


def _from_rows(node: nodes.Node, rows: list[dict[str, Any]], out: pa.Schema) -> pa.RecordBatch:
    arrays = []
    for field in out:
        values = [row.get(field.name) for row in rows]
        if unknown := unknown_in_values(values, field):
            raise _unknown_column(node, unknown, out)
        try:
            arrays.append(array_of(values, field.type))
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise JobError(
                f"{node.label()} gave a value for column {field.name!r} that is no {type_name(field.type)}: {error}",
                hint="convert it in the function, or declare another schema=…",
            ) from error
    return pa.RecordBatch.from_arrays(arrays, schema=out)


def _map_batches(node: nodes.MapBatches, schema: pa.Schema) -> tuple[_Function, pa.Schema]:
    out = _output_schema(node.schema, schema)

    def step(batch: pa.RecordBatch) -> pa.RecordBatch:
        try:
            result = node.function(decode_rows(batch))
        except Exception as error:
            raise failed(node.label(), error, f"a batch of {batch.num_rows} rows") from error
        if not isinstance(result, pa.RecordBatch):
            raise JobError(f"{node.label()} gave a {type(result).__name__}", hint="return a pyarrow.RecordBatch")
        if set(result.schema.names) != set(out.names):
            raise JobError(
                f"{node.label()} gave the columns {result.schema.names}, not {out.names}", hint="declare them: schema=…"
            )
        if unknown := next(unknown_columns(result.schema, out), None):
            raise _unknown_column(node, unknown, out)
        rows = conform(result, out)
        check_values(rows)
        return rows

    return step, out


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else text[:200] + "…"


_LOWERED: dict[type[nodes.Node], Callable[[Any, pa.Schema], tuple[_Function, pa.Schema]]] = {
    nodes.Filter: _filter,
    nodes.Expect: lower_expectation,
    nodes.Rest: _filter,
    nodes.Select: _select,
    nodes.WithColumns: _with_columns,
    nodes.ProcessingTime: _processing_time,
    nodes.Explode: _explode,
    nodes.Drop: _drop,
    nodes.Rename: _rename,
    nodes.Map: _map,
    nodes.FlatMap: _flat_map,
    nodes.MapBatches: _map_batches,
    nodes.Join: lower_join,
    nodes.Repartition: _repartition,
    nodes.SortWithinEpoch: _sort_within_epoch,
    nodes.Ordered: _sort_within_epoch,
}
