"""Groups of a view: computed from all rows, or brought up to date by the changes of their rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from volley.columns.aggregates import aggregated_schema, value_of
from volley.columns.compiled import CompiledExpression, as_array
from volley.columns.exact import doubles, storage_of, stored
from volley.columns.expressions import compile_expression
from volley.columns.groups import sum_type
from volley.columns.keys.equality import distinct, matching_rows
from volley.columns.keys.normal import normal, plain
from volley.errors import JobError
from volley.iceberg.views.keys import Keys
from volley.iceberg.views.operators import WEIGHT, Side, ViewOperator, copies, plain_column, restricted_delta, united
from volley.iceberg.views.scan import Tally
from volley.iceberg.views.states import KEPT, ROWS, Extreme, GroupState, GroupStates
from volley.plan import keyed_nodes
from volley.plan.aggregates import Aggregation
from volley.plan.expression_nodes import Column

__all__ = ["Group", "rereading"]

_ALL = "_volley_all"
# Rows that are grouped at once, and groups that are merged at once.
_ROWS = 2_000_000


class Group(ViewOperator):
    """Aggregates of groups; without an aggregate, the distinct keys.

    Args:
        node: The aggregate, or a deduplication by all columns.
        is_kept: True: they are the rows of the view, which keeps several extreme values of each.
    """

    how = (
        "the groups with changed rows; computed anew from all their rows: after removals, groups that lost all the "
        f"extreme values that the view keeps, {KEPT} of each, and floating-point sums"
    )

    reads_before = True

    def __init__(
        self, node: keyed_nodes.Aggregate | keyed_nodes.Deduplicate, before: ViewOperator, tally: Tally, is_kept: bool
    ) -> None:
        if isinstance(node, keyed_nodes.Aggregate):
            keys, self._aggregates = node.keys, node.aggregates
            schema = aggregated_schema(node, before.schema)
        else:
            keys, self._aggregates = tuple(map(Column, node.keys)), ()
            schema = pa.schema([before.schema.field(key) for key in node.keys])
        super().__init__(node, [before], schema)
        self._values = list(dict.fromkeys(aggregate.value for _, aggregate in self._aggregates if aggregate.value))
        named = {aggregate.value: aggregate for _, aggregate in self._aggregates}
        names = tuple(schema.names[: len(keys)])
        self._sources = {name: plain_column(key) for name, key in zip(names, keys, strict=True)}
        self._compiled: dict[str, CompiledExpression] = {
            name: compile_expression(key, before.schema) for name, key in zip(names, keys, strict=True)
        }
        self._compiled |= {f"v{n}": value_of(named[value], before.schema) for n, value in enumerate(self._values)}
        self._tally = tally
        self._extremes = KEPT if is_kept else 1
        self.is_single = not keys
        types = {state: self._type(state) for _, aggregate in self._aggregates for state in self._states_of(aggregate)}
        self.states = GroupStates(names or (_ALL,), {ROWS: pa.int64(), **types})

    def _type(self, state: GroupState) -> pa.DataType:
        if state.kind in ("rows", "count"):
            return pa.int64()
        value = self._input_type(f"v{state.value}")
        return sum_type(value) if state.kind == "sum" else value

    def _states_of(self, aggregate: Aggregation) -> list[GroupState]:
        """Return the states that an aggregate is made of, that which has its own values first."""
        if aggregate.value is None:
            return [ROWS]
        value = self._values.index(aggregate.value)
        match aggregate.function:
            case "count":
                return [GroupState("count", value)]
            case "sum" | "avg":
                return [GroupState("sum", value), GroupState("count", value)]
        kind: Extreme = "min" if aggregate.function == "min" else "max"
        # The number of values tells whether those that are kept are all.
        counts = [GroupState("count", value)] if self._extremes > 1 else []
        return [*(GroupState(kind, value, rank) for rank in range(self._extremes)), *counts]

    @property
    def _in_result(self) -> dict[GroupState, str]:
        """The states that are results themselves, and the columns that these are in."""
        own = [
            (self._states_of(aggregate)[0], name) for name, aggregate in self._aggregates if aggregate.function != "avg"
        ]
        return dict(reversed(own))

    @property
    def _separate(self) -> list[GroupState]:
        """The states that are not columns of the result: the view keeps them in columns of their own."""
        return [state for state in self.states.types if state not in self._in_result]

    @property
    def stored_schema(self) -> pa.Schema:
        """The schema of the view's table: that of the rows, and the separate states."""
        return pa.schema([*self.schema, *(pa.field(state.name, self.states.types[state]) for state in self._separate)])

    @property
    def kept_columns(self) -> list[str]:
        """The columns of the view's table that are keys or states: the others follow from them."""
        keys = () if self.is_single else self.states.keys
        states = {self._in_result.get(state, state.name) for state in self.states.types}
        return [name for name in self.stored_schema.names if name in keys or name in states]

    def rows(self, side: Side, keys: Keys | None = None) -> Iterator[pa.RecordBatch]:
        for batch in self.stored(self.grouped(side, keys)).select(self.schema.names).to_batches():
            yield batch if keys is None else keys.select(batch)

    def delta(self) -> pa.Table:
        changed = self._inputs_of(self.inputs[0].delta())
        if not len(changed):
            return united([], self.schema)
        return restricted_delta(self, None if self.is_single else Keys.of(changed, self.states.keys))

    def grouped(self, side: Side, keys: Keys | None = None) -> pa.Table:
        """Return the states of all groups, or of those with some keys and perhaps of others."""
        groups: list[pa.Table] = []
        keys = None if keys is None else keys.renamed({name: name for name in self._sources})
        before = None if keys is None else keys.renamed(self._sources)
        for rows in _chunks(self.inputs[0].rows(side, before)):
            inputs = self._inputs_of(rows)
            if keys is not None:
                batches = map(keys.select, inputs.combine_chunks().to_batches())
                inputs = pa.Table.from_batches(batches, inputs.schema)
            groups.append(self.states.partial(inputs))
            # Many groups are merged again only when there are twice as many.
            if len(groups) > 1 and sum(map(len, groups)) > max(_ROWS, 2 * len(groups[0])):
                groups = [self.states.combined(groups)]
        if len(groups) != 1:
            groups = [self.states.combined([self.states.none(self.schema), *groups])]
        return self._with_single(groups[0])

    def _with_single(self, groups: pa.Table) -> pa.Table:
        """Return the groups, and that without rows if all rows are one group."""
        if not self.is_single or len(groups):
            return groups
        sums = {state.name: [0 if state.kind in ("rows", "count", "sum") else None] for state in self.states.types}
        columns = {name: pa.array(value, groups.schema.field(name).type) for name, value in {_ALL: [0], **sums}.items()}
        return pa.table(columns)

    def touched(self, changes: pa.Table) -> pa.Table:
        """Return the keys of the groups that have changed rows, each once.

        Args:
            changes: The changes of the input, weighted.
        """
        return distinct(self._inputs_of(changes).select(self.states.keys))

    def regrouped(self, stored: pa.Table, changes: pa.Table) -> pa.Table:
        """Return the states of the touched groups after the refresh, without those that have no rows any more.

        Args:
            stored: Those of the groups that the view has, as it stores them.
            changes: The changes of the input, weighted.
        """
        added, removed = copies(self._inputs_of(changes))
        groups = self.states.updated(self._loaded(stored), added, removed)
        counts = groups[ROWS.name]
        if pc.any(pc.less(counts, 0)).as_py():
            raise JobError(
                "the view has fewer rows than its sources have lost: it was changed by another writer, or a query "
                "gives other rows for the same ones",
                hint='refresh("full") computes it anew',
            )
        incomputable = self._incomputable(groups, removed) & pc.greater(counts, 0).to_numpy()
        kept = groups.filter(pa.array(~incomputable & (pc.greater(counts, 0).to_numpy() | self.is_single)))
        return pa.concat_tables(
            [kept, self._recomputed(groups.filter(pa.array(incomputable)).select(self.states.keys))]
        )

    def _recomputed(self, keys: pa.Table) -> pa.Table:
        """Return the states of some groups, from all their rows."""
        self._tally.groups += len(keys)
        if not len(keys):
            return self.states.none(self.schema)
        groups = self.grouped("after", None if self.is_single else Keys.of(keys, self.states.keys))
        places, _ = matching_rows(groups.select(self.states.keys), keys, self.states.keys)
        return groups.take(pa.array(places))

    def _incomputable(self, groups: pa.Table, removed: pa.Table) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Return which groups can't be computed from their states and the changes.

        An extreme is null if all of those that were kept are gone. A floating-point sum is not exact: 1e16 + 1 - 1e16
        is 0.
        """
        incomputable = np.zeros(len(groups), bool)
        for state, data_type in self.states.types.items():
            if state.kind in ("min", "max") and not state.rank:
                has_values = pc.greater(groups[GroupState("count", state.value).name], 0)
                incomputable |= pc.and_(has_values, groups[state.name].is_null()).to_numpy()
            elif _is_floating_sum(state, data_type):
                incomputable |= self._has_lost(state.value, groups, removed)
        return incomputable

    def _has_lost(self, value: int, groups: pa.Table, removed: pa.Table) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Return which groups have lost a value of an expression that is not null."""
        keys = distinct(removed.filter(removed[f"v{value}"].is_valid()).select(self.states.keys))
        has_lost = np.zeros(len(groups), bool)
        has_lost[matching_rows(groups.select(self.states.keys), keys, self.states.keys)[0]] = True
        return has_lost

    def stored(self, groups: pa.Table) -> pa.Table:
        """Return groups as the view stores them: with the columns of `stored_schema`."""
        keys = {} if self.is_single else {key: groups[key] for key in self.states.keys}
        results = {name: self._result(aggregate, groups) for name, aggregate in self._aggregates}
        separate = {state.name: groups[state.name] for state in self._separate}
        return pa.table({**keys, **results, **separate}).cast(self.stored_schema)

    def _loaded(self, stored: pa.Table) -> pa.Table:
        """Return the states of stored groups."""
        keys = (
            {_ALL: pa.array(np.zeros(len(stored), np.int8))}
            if self.is_single
            else {key: normal(stored[key]) for key in self.states.keys}
        )
        columns = {state.name: plain(stored[self._in_result.get(state, state.name)]) for state in self.states.types}
        filled = {
            state.name: columns[state.name].fill_null(0) if state.kind == "sum" else columns[state.name]
            for state in self.states.types
        }
        return pa.table({**keys, **filled})

    def _result(self, aggregate: Aggregation, groups: pa.Table) -> Any:
        first, *rest = (groups[state.name] for state in self._states_of(aggregate))
        if aggregate.function not in ("sum", "avg"):
            return first
        (counts,) = rest
        has_values = pc.greater(counts, 0)
        if aggregate.function == "avg":
            first = pc.divide(doubles(first), counts.cast(pa.float64()))
        return pc.if_else(has_values, first, pa.scalar(None, first.type))

    def _inputs_of(self, rows: pa.Table) -> pa.Table:
        """Return the keys and the aggregated values of rows of the input, and their weights if they have some."""
        weights = [WEIGHT] if WEIGHT in rows.column_names else []
        batches = [
            pa.RecordBatch.from_arrays(
                [*self._evaluated(batch), *map(batch.column, weights)], [*self._input_names, *weights]
            )
            for batch in rows.to_batches()
        ]
        types = [*(self._input_type(name) for name in self._input_names), *(pa.int64() for _ in weights)]
        return pa.Table.from_batches(batches, pa.schema(zip([*self._input_names, *weights], types, strict=True)))

    @property
    def _input_names(self) -> list[str]:
        return [*([_ALL] if self.is_single else []), *self._compiled]

    def _input_type(self, name: str) -> pa.DataType:
        return pa.int8() if name == _ALL else stored(self._compiled[name].type)

    def _evaluated(self, batch: pa.RecordBatch) -> Iterator[pa.Array]:
        if self.is_single:
            yield pa.array(np.zeros(batch.num_rows, np.int8))
        for name, value in self._compiled.items():
            values = as_array(value.evaluate(batch), batch.num_rows)
            yield normal(values) if name in self._sources else storage_of(values)


def rereading(operator: ViewOperator) -> list[ViewOperator]:
    """Return the operators of a query whose changes are computed with rows as they were: not the view's own groups."""
    operators = list(operator.walk())
    inner = operators[1:] if isinstance(operator, Group) else operators
    return [other for other in inner if other.reads_before]


def _is_floating_sum(state: GroupState, data_type: pa.DataType) -> bool:
    return state.kind == "sum" and bool(pa.types.is_floating(data_type))


def _chunks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield tables of many rows each."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        if rows >= _ROWS:
            yield pa.Table.from_batches(waiting)
            waiting, rows = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting)
