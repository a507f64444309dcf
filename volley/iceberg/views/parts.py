"""What a view keeps of each group: parts that changes can be added to, and from which the aggregates are computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from volley.errors import ExpressionError

__all__ = ["HIDDEN", "ROWS", "Part", "Parts", "reached", "sum_type"]

HIDDEN = "_volley_"
"""The prefix of a view's columns that are not the query's."""

_SUMS = ("rows", "count", "sum")
_WIDE = pa.decimal128(38, 0)
_LARGEST = 2**63 - 1


@dataclass(frozen=True)
class Part:
    """A part of aggregates.

    Args:
        kind: What it is of the values of a group; ``"rows"`` counts rows.
        value: The number of the aggregated expression; 0 for ``"rows"``.
    """

    kind: Literal["rows", "count", "sum", "min", "max"]
    value: int = 0

    @property
    def name(self) -> str:
        """The name of its column."""
        return f"{HIDDEN}rows" if self.kind == "rows" else f"{HIDDEN}{self.kind}_{self.value}"

    @property
    def merge(self) -> str:
        """Arrow's function that merges parts of one group."""
        return "sum" if self.kind in _SUMS else self.kind


ROWS = Part("rows")


@dataclass(frozen=True)
class Parts:
    """The keys and parts of a view's groups.

    Args:
        keys: The names of the keys.
        types: The type of each part.
    """

    keys: tuple[str, ...]
    types: dict[Part, pa.DataType]

    def partial(self, rows: pa.Table) -> pa.Table:
        """Return the parts of each group of rows, which have the keys and the values in columns ``v0``, ``v1``, …."""
        columns = {part.name: _contribution(part, rows) for part in self.types}
        return self._grouped(pa.table({**{key: rows[key] for key in self.keys}, **columns}))

    def combined(self, tables: Sequence[pa.Table]) -> pa.Table:
        """Return the parts of groups of which several tables have parts; null is no part."""
        return self._grouped(pa.concat_tables(tables))

    def negated(self, groups: pa.Table) -> pa.Table:
        """Return parts that take those of removed rows away again: without extremes, which can't be taken away."""
        columns = {
            part.name: pc.negate(groups[part.name])
            if part.kind in _SUMS
            else pa.nulls(groups.num_rows, self.types[part])
            for part in self.types
        }
        return pa.table({**{key: groups[key] for key in self.keys}, **columns})

    def none(self, keys: pa.Schema) -> pa.Table:
        """Return no groups, with the types that the keys have in a schema; the key that all rows share is not there."""
        key_types = [keys.field(key).type if key in keys.names else pa.int8() for key in self.keys]
        parts = [(part.name, data_type) for part, data_type in self.types.items()]
        return pa.schema([*zip(self.keys, key_types, strict=True), *parts]).empty_table()

    def _grouped(self, table: pa.Table) -> pa.Table:
        columns = {key: table[key] for key in self.keys}
        columns |= {part.name: _prepared(part, table[part.name]) for part in self.types}
        functions = [(part.name, part.merge) for part in self.types]
        grouped = pa.table(columns).group_by(list(self.keys), use_threads=False).aggregate(functions)
        merged = {
            part.name: _restored(grouped[f"{part.name}_{part.merge}"], data_type)
            for part, data_type in self.types.items()
        }
        return pa.table({**{key: grouped[key] for key in self.keys}, **merged})


def _contribution(part: Part, rows: pa.Table) -> Any:
    if part.kind == "rows":
        return pa.repeat(pa.scalar(1, pa.int64()), rows.num_rows)
    values = rows[f"v{part.value}"]
    if part.kind == "count":
        return values.is_valid().cast(pa.int64())
    return values.cast(sum_type(values.type)) if part.kind == "sum" else values


def sum_type(data_type: pa.DataType) -> pa.DataType:
    """Return the type of sums."""
    if pa.types.is_decimal(data_type):
        return pa.decimal128(38, data_type.scale)
    return pa.int64() if pa.types.is_integer(data_type) else pa.float64()


def _prepared(part: Part, values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return values that Arrow's grouping merges without overflow, and with NaN as the largest number."""
    if pa.types.is_floating(values.type) and part.kind in ("min", "max"):
        return pa.chunked_array([_ordered(chunk) for chunk in values.chunks], _integer(values.type))
    if part.kind == "sum" and pa.types.is_integer(values.type) and _may_overflow(values):
        return values.cast(_WIDE)
    return values


def _may_overflow(values: pa.ChunkedArray) -> bool:
    limits = pc.min_max(values).as_py()
    return max(-(limits["min"] or 0), limits["max"] or 0) * len(values) > _LARGEST


def _restored(values: pa.ChunkedArray, data_type: pa.DataType) -> pa.ChunkedArray:
    if pa.types.is_floating(data_type) and pa.types.is_integer(values.type):
        return pa.chunked_array([_from_ordered(chunk, data_type) for chunk in values.chunks], data_type)
    try:
        return values.cast(data_type)
    except pa.ArrowInvalid as error:
        raise ExpressionError("a sum is beyond 64 bits", hint='add decimals up: .cast("decimal(38, 0)")') from error


def reached(part: Part, lost: pa.ChunkedArray, left: pa.ChunkedArray) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return where a removed extreme is as extreme as what is left, so that this may have been removed itself."""
    if pa.types.is_floating(lost.type):
        lost, left = (pa.chunked_array(map(_ordered, side.chunks), _integer(side.type)) for side in (lost, left))
    compare = pc.less_equal if part.kind == "min" else pc.greater_equal
    may_be = pc.and_(lost.is_valid(), pc.fill_null(compare(lost, left), True))
    return np.asarray(may_be.to_numpy())


def _integer(data_type: pa.DataType) -> pa.DataType:
    return pa.int64() if data_type == pa.float64() else pa.int32()


def _ordered(values: pa.Array) -> pa.Array:
    """Return integers in the order of floating-point numbers, NaN the largest: IEEE 754's total order."""
    positive = pc.if_else(pc.is_nan(values), pa.scalar(np.nan, values.type), pc.add(values, pa.scalar(0, values.type)))
    return pc.if_else(values.is_valid(), _flipped(positive.view(_integer(values.type))), None)


def _from_ordered(values: pa.Array, data_type: pa.DataType) -> pa.Array:
    return _flipped(values).view(data_type)


def _flipped(bits: pa.Array) -> pa.Array:
    """Reverse the order of the bits below the sign of negative numbers."""
    largest = pa.scalar(np.iinfo(bits.type.to_pandas_dtype()).max, bits.type)
    return pc.if_else(pc.less(bits, pa.scalar(0, bits.type)), pc.bit_wise_xor(bits, largest), bits)
