"""Series as an operator: rows wait until the watermark has passed them, then come out in the order of their times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import pyarrow as pa

from volley.columns.aggregates import time_type
from volley.columns.compiled import whole
from volley.columns.dictionaries import decode
from volley.columns.groups import by_key
from volley.columns.keyed import KeyedOperator
from volley.columns.keys.normal import Bools
from volley.columns.operators import Merged, Times
from volley.columns.series_functions import SeriesPart, SeriesRows, series_part, series_type
from volley.plan.keyed_nodes import Series
from volley.plan.windows import microseconds

__all__ = ["SeriesOperator"]

_TIME = "time"


@dataclass(frozen=True)
class SeriesOperator(KeyedOperator):
    """Series functions compiled for rows of one schema: an `Operator` with one input.

    A state is a row with its key, and what the functions keep of it. A row comes out once the watermark is behind its
    time. It is kept while later rows need it: the last one of each key, and those within the longest rolling span.
    """

    folder: ClassVar[str] = "series"
    faults: ClassVar[tuple[str, str]] = ("it is in no series", "later rows of its series have come out")
    node: Series

    @cached_property
    def output(self) -> pa.Schema:
        time = time_type(self.node.ordering.on, self.input, "series")
        _ = self.key_fields
        types = {field.name: field.type for field in self.input}
        types |= {name: series_type(function, self.input, time) for name, function in self.node.functions}
        return pa.schema(types.items())

    @property
    def states(self) -> tuple[pa.Schema, ...]:
        return (self._states,)

    @cached_property
    def _states(self) -> pa.Schema:
        columns = [f"column_{number}" for number in range(len(self.input))]
        kept = [name for names in self._state_names for name in names]
        types = [
            pa.int64(),
            *self.key_types,
            *self.input.types,
            *(data_type for part in self._parts for data_type in part.types),
        ]
        return pa.schema(zip([_TIME, *self.key_names, *columns, *kept], types, strict=True))

    def time_column(self, input: int) -> str:
        return self.node.ordering.on

    def ends(self, times: Times) -> Times:
        return times + 1

    def closing(self, latest: int) -> int | None:
        return latest + 1

    def lifted(self, input: int, batch: pa.RecordBatch, times: pa.Array) -> pa.Table:
        columns = [
            times,
            *self.key_columns(batch),
            *map(decode, batch.columns),
            *(column for part in self._parts for column in part.lift(batch, times)),
        ]
        return pa.Table.from_arrays(columns, schema=self._states)

    def merge(self, old: Sequence[pa.Table], new: Sequence[pa.Table], before: int, watermark: int) -> Merged:
        table = pa.concat_tables([*old, *new])
        waits = table[_TIME].to_numpy() >= watermark
        rows, groups = by_key(table.filter(pa.array(~waits)), self.key_names)
        order = np.lexsort((rows[_TIME].to_numpy(), groups))
        rows, groups = rows.take(pa.array(order)).combine_chunks(), groups[order]
        series = self._series(rows[_TIME].to_numpy(), groups, before)
        results = []
        for part, names in zip(self._parts, self._state_names, strict=True):
            result, states = part.run([whole(rows[name]) for name in names], series)
            results.append(result)
            for name, column in zip(names, states, strict=True):
                rows = rows.set_column(rows.column_names.index(name), name, column)
        kept = rows.filter(pa.array(self._needed(series.times, groups, watermark)))
        out = self._rows(rows.take(pa.array(series.due)), results)
        return Merged([out] if out.num_rows else [], (pa.concat_tables([kept, table.filter(pa.array(waits))]),))

    def _series(self, times: Times, groups: Times, before: int) -> SeriesRows:
        """Divide the rows of keys at pauses."""
        begins = np.ones(len(times), bool)
        begins[1:] = groups[1:] != groups[:-1]
        if self.node.ordering.pause is not None:
            begins[1:] |= np.diff(times) >= microseconds(self.node.ordering.pause)
        return SeriesRows(times, np.flatnonzero(begins), times < before)

    def _needed(self, times: Times, groups: Times, watermark: int) -> Bools:
        """Return which rows later ones need: they come at the watermark or after it."""
        spans = [part.span for part in self._parts]
        needed: Bools = times > watermark - max((span for span in spans if span is not None), default=0)
        if None in spans:
            is_last = np.ones(len(times), bool)
            is_last[:-1] = groups[1:] != groups[:-1]
            if self.node.ordering.pause is not None:
                is_last &= times > watermark - microseconds(self.node.ordering.pause)
            needed |= is_last
        return needed

    def _rows(self, rows: pa.Table, results: Sequence[pa.Array]) -> pa.RecordBatch:
        columns = {name: whole(rows[f"column_{number}"]) for number, name in enumerate(self.input.names)}
        columns |= zip((name for name, _ in self.node.functions), results, strict=True)
        return pa.RecordBatch.from_arrays([columns[name] for name in self.output.names], schema=self.output)

    @cached_property
    def _parts(self) -> Sequence[SeriesPart]:
        time = time_type(self.node.ordering.on, self.input)
        return [series_part(function, self.input, time) for _, function in self.node.functions]

    @cached_property
    def _state_names(self) -> list[list[str]]:
        sizes = [len(part.types) for part in self._parts]
        return [[f"state_{number}_{column}" for column in range(size)] for number, size in enumerate(sizes)]
