"""What a view keeps of each group: states that changes can be added to, and that the aggregates follow from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from volley.columns.batches import no_table
from volley.columns.compiled import whole
from volley.columns.exact import stored
from volley.columns.groups import narrowed, sum_type, widened
from volley.columns.keys.normal import normal
from volley.columns.keys.order import from_ordered, ordered

__all__ = ["KEPT", "OWN_PREFIX", "ROWS", "Extreme", "GroupState", "GroupStates"]

KEPT = 4
"""How many of the least or greatest values a view keeps of each group."""

Extreme = Literal["min", "max"]

_Numbers = np.ndarray[Any, np.dtype[np.int64]]
# Differences of values up to this are compared as they are, together with the number of a group in 64 bits.
_WIDEST = 1 << 31
_WIDTHS = {32: pa.int32(), 64: pa.int64()}

OWN_PREFIX = "_volley_"
"""The prefix of a view's columns that are not the query's."""
_ROW = "_volley_row"
_SUMS = ("rows", "count", "sum")


@dataclass(frozen=True)
class Values:
    """Values of groups, and the number of the group that each is in."""

    groups: _Numbers
    values: pa.Array

    @classmethod
    def of(cls, groups: _Numbers, columns: Sequence[pa.Array]) -> Values:
        """Return the values that are not null.

        Args:
            groups: The number of each row's group.
            columns: Columns of one type; each row has a value in each, or null.
        """
        known = [column.is_valid().to_numpy(zero_copy_only=False) for column in columns]
        kept = [column.drop_null() for column in columns]
        return cls(np.concatenate([groups[mask] for mask in known]), normal(pa.concat_arrays(kept)))


def extremes(kind: Extreme, members: Values, count: int) -> list[pa.Array]:
    """Return the most extreme values of groups, as many columns as are kept; null where a group has fewer.

    Args:
        kind: Which end of the order counts.
        members: Values of the groups, in any order.
    """
    order = np.argsort(_words(members.groups, _codes(kind, members.values)))
    return _columns(members, order, count)


def changed(
    kind: Extreme, known: Sequence[pa.Array], counts: _Numbers, added: Values, removed: Values
) -> list[pa.Array]:
    """Return the most extreme values of groups after changes; null where no more are known.

    A group may have more values than are known; those are no more extreme than the last known one. So values up to
    that one can be removed and added, and the others are left out.

    Args:
        kind: Which end of the order counts.
        known: The most extreme values before, as many columns as are kept, with a row for each group.
        counts: How many values each group had before.
    """
    count = len(counts)
    before = Values.of(np.arange(count), known)
    groups = np.concatenate([before.groups, added.groups, removed.groups])
    values = pa.concat_arrays([before.values, added.values, removed.values])
    codes = _codes(kind, values)
    is_complete = np.bincount(before.groups, minlength=count) == counts
    last = np.where(is_complete, np.iinfo(np.int64).max, -1)
    partly = ~is_complete[before.groups]
    np.maximum.at(last, before.groups[partly], codes[: len(before.groups)][partly])
    within = np.flatnonzero(codes <= last[groups])
    signs = np.where(np.arange(len(groups)) < len(before.groups) + len(added.groups), 1, -1)[within]
    _, first, value = np.unique(_words(groups, codes)[within], return_index=True, return_inverse=True)
    copies = np.bincount(value, weights=signs, minlength=len(first)).astype(np.int64).clip(0, KEPT)
    return _columns(Values(groups, values), np.repeat(within[first], copies), count)


def _columns(members: Values, order: _Numbers, count: int) -> list[pa.Array]:
    """Return the first values of each group, as columns."""
    sizes = np.bincount(members.groups[order], minlength=count)
    starts = np.cumsum(sizes) - sizes
    columns = []
    for rank in range(KEPT):
        has_rank = sizes > rank
        chosen = np.zeros(count, np.int64)
        chosen[has_rank] = order[starts[has_rank] + rank]
        columns.append(members.values.take(pa.array(chosen, mask=~has_rank)))
    return columns


def _words(groups: _Numbers, codes: _Numbers) -> _Numbers:
    """Return numbers in the order of groups, and of codes within a group."""
    bits = int(codes.max(initial=0)).bit_length()
    return (groups << bits) | codes


def _codes(kind: Extreme, values: pa.Array) -> _Numbers:
    """Return numbers from 0 in the order of values, the most extreme value first."""
    if not len(values):
        return np.empty(0, np.int64)
    if pa.types.is_floating(values.type):
        values = ordered(values)
    if (pa.types.is_integer(values.type) or pa.types.is_temporal(values.type)) and values.type.bit_width in _WIDTHS:
        numbers = values.view(_WIDTHS[values.type.bit_width]).to_numpy().astype(np.int64)
        low, high = int(numbers.min()), int(numbers.max())
        if high - low < _WIDEST:
            codes: _Numbers = numbers - low if kind == "min" else high - numbers
            return codes
    order = "ascending" if kind == "min" else "descending"
    ranks: _Numbers = pc.rank(values, sort_keys=order, tiebreaker="dense").to_numpy().astype(np.int64)
    return ranks


@dataclass(frozen=True)
class GroupState:
    """What is kept of the values of one expression in a group.

    Args:
        kind: What it is of the values; ``"rows"`` counts rows.
        value: The number of the aggregated expression; 0 for ``"rows"``.
        rank: How many values of the group are more extreme than this ``"min"`` or ``"max"``.
    """

    kind: Literal["rows", "count", "sum", "min", "max"]
    value: int = 0
    rank: int = 0

    @property
    def name(self) -> str:
        """The name of its column."""
        if self.kind == "rows":
            return f"{OWN_PREFIX}rows"
        return f"{OWN_PREFIX}{self.kind}_{self.value}" + (f"_{self.rank}" if self.rank else "")

    @property
    def merge(self) -> str:
        """Arrow's function that merges states of one group."""
        return "sum" if self.kind in _SUMS else self.kind


ROWS = GroupState("rows")


@dataclass(frozen=True)
class GroupStates:
    """The keys and states of a view's groups.

    Args:
        types: The type of each state.
    """

    keys: tuple[str, ...]
    types: dict[GroupState, pa.DataType]

    def partial(self, rows: pa.Table) -> pa.Table:
        """Return the states of each group of rows, which have keys and the values in columns ``v0``, ``v1``, …."""
        return self.combined([self._contributions(rows)])

    def combined(self, tables: Sequence[pa.Table]) -> pa.Table:
        """Return the states of groups of which several tables have states; null is no state."""
        table = pa.concat_tables(tables)
        groups, numbers = self._merged(table)
        for kind, value in self._ranked:
            names = _ranks(kind, value)
            columns = [table[name].combine_chunks() for name in names if name in table.column_names]
            members = Values.of(numbers, columns)
            groups = _with(groups, names, extremes(kind, members, len(groups)))
        return groups.select(self._names)

    def updated(self, stored: pa.Table, added: pa.Table, removed: pa.Table) -> pa.Table:
        """Return the states of groups after changes; an extreme is null if what is kept does not tell it.

        Args:
            added: Added rows, as `partial` takes them.
        """
        gains, losses = self._contributions(added), self._contributions(removed)
        groups, numbers = self._merged(
            pa.concat_tables(
                [stored.select(gains.column_names), gains, self._negated(losses)], promote_options="permissive"
            )
        )
        if not self._ranked:
            return groups
        of_stored, of_gains, of_losses = np.split(numbers, np.cumsum([len(stored), len(gains)]))
        place = np.full(len(groups), -1)
        place[of_stored] = np.arange(len(stored))
        before = stored.take(pa.array(place, mask=place < 0)).combine_chunks()
        for kind, value in self._ranked:
            names = _ranks(kind, value)
            known = [before[name].combine_chunks() for name in names]
            counts = before[GroupState("count", value).name].fill_null(0).to_numpy()
            come, gone = (
                Values.of(of, [side[names[0]].combine_chunks()])
                for of, side in ((of_gains, gains), (of_losses, losses))
            )
            groups = _with(groups, names, changed(kind, known, counts, come, gone))
        return groups.select(self._names)

    def none(self, keys: pa.Schema) -> pa.Table:
        """Return no groups, with the types that the keys have in a schema; the key that all rows share is not there."""
        key_types = [stored(keys.field(key).type) if key in keys.names else pa.int8() for key in self.keys]
        states = [(state.name, data_type) for state, data_type in self.types.items()]
        return no_table(pa.schema([*zip(self.keys, key_types, strict=True), *states]))

    @property
    def _names(self) -> list[str]:
        return [*self.keys, *(state.name for state in self.types)]

    @property
    def _ranked(self) -> list[tuple[Extreme, int]]:
        """The extremes of which several values are kept, with the numbers of their expressions."""
        return [(state.kind, state.value) for state in self.types if state.kind in ("min", "max") and state.rank == 1]

    def _contributions(self, rows: pa.Table) -> pa.Table:
        """Return the states of each row; its value is the only extreme."""
        columns = {state.name: _contribution(state, rows) for state in self.types if not state.rank}
        return pa.table({**{key: rows[key] for key in self.keys}, **columns})

    def _negated(self, rows: pa.Table) -> pa.Table:
        """Return states that take those of removed rows away again: without extremes, which can't be taken away."""
        columns = {
            state.name: _negative(rows[state.name]) if state.kind in _SUMS else pa.nulls(len(rows), data_type)
            for state, data_type in self.types.items()
            if not state.rank
        }
        return pa.table({**{key: rows[key] for key in self.keys}, **columns})

    def _merged(self, table: pa.Table) -> tuple[pa.Table, np.ndarray[Any, np.dtype[np.int64]]]:
        """Return groups with the states that Arrow merges, and the number of each row's group."""
        ranked = self._ranked
        types = {state: kind for state, kind in self.types.items() if (state.kind, state.value) not in ranked}
        columns = {key: table[key] for key in self.keys}
        columns |= {state.name: _prepared(state, table[state.name]) for state in types}
        functions = [(state.name, state.merge) for state in types]
        if ranked:
            columns[_ROW] = pa.array(np.arange(len(table)))
            functions.append((_ROW, "list"))
        grouped = pa.table(columns).group_by(list(self.keys), use_threads=False).aggregate(functions)
        merged = {state.name: _restored(grouped[f"{state.name}_{state.merge}"], kind) for state, kind in types.items()}
        numbers = np.empty(len(table) if ranked else 0, np.int64)
        if ranked:
            rows = grouped[f"{_ROW}_list"].combine_chunks()
            numbers[rows.flatten().to_numpy()] = np.repeat(np.arange(len(rows)), rows.value_lengths().to_numpy())
        return pa.table({**{key: grouped[key] for key in self.keys}, **merged}), numbers


def _negative(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the values with the other sign: as decimals, if -2**63 is there, as 2**63 needs more than 64 bits."""
    try:
        return pc.negate_checked(values)
    except pa.ArrowInvalid:
        return pc.negate(values.cast(pa.decimal128(38, 0)))


def _ranks(kind: Extreme, value: int) -> list[str]:
    """Return the columns of an extreme, the most extreme one first."""
    return [GroupState(kind, value, rank).name for rank in range(KEPT)]


def _with(groups: pa.Table, names: Sequence[str], columns: Sequence[pa.Array]) -> pa.Table:
    for name, column in zip(names, columns, strict=True):
        groups = groups.append_column(name, column)
    return groups


def _contribution(state: GroupState, rows: pa.Table) -> Any:
    if state.kind == "rows":
        return pa.repeat(pa.scalar(1, pa.int64()), rows.num_rows)
    values = rows[f"v{state.value}"]
    if state.kind == "count":
        return values.is_valid().cast(pa.int64())
    return values.cast(sum_type(values.type)) if state.kind == "sum" else values


def _prepared(state: GroupState, values: pa.ChunkedArray) -> Any:
    """Return values that Arrow's grouping merges without overflow, and with NaN as the largest number."""
    if pa.types.is_floating(values.type) and state.kind in ("min", "max"):
        return ordered(normal(whole(values)))
    return widened(values) if state.kind == "sum" else values


def _restored(values: pa.ChunkedArray, data_type: pa.DataType) -> Any:
    if pa.types.is_floating(data_type) and pa.types.is_integer(values.type):
        return from_ordered(whole(values), data_type)
    return narrowed(values, data_type)
