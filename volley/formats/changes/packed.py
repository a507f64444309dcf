"""Decodes changes of many tables: the rows of each are packed, with the columns that their messages' schema tells."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from volley.errors import SourceError, message_of
from volley.formats.change_options import ChangeOptions
from volley.formats.changes.decoder import ChangeValues
from volley.formats.changes.grouped import GroupedChanges
from volley.formats.changes.sequence import PLACES, SOURCE
from volley.formats.messages import Values
from volley.formats.packed_rows import pack_rows
from volley.formats.rows import Sorted
from volley.formats.schema_registry import Registry
from volley.types.arrow import canonical_schema

__all__ = ["PackedChanges", "change_values"]


@dataclass(frozen=True)
class PackedChanges(GroupedChanges):
    """Decodes messages of which each has its schema: a row is the packed rows of one table, in the one column."""

    @cached_property
    def schema(self) -> pa.Schema:
        return pa.schema([*self.columns, *((name, pa.string()) for name in self._names)])

    def sort(self, values: Values, place: str = "") -> Sorted:
        """Return packed rows, each at the number of the first message that it has rows of."""
        groups, faults = self._encoding.groups(values)
        faults = {**faults, **self._tombstones(values)}
        tables: dict[tuple[Any, ...], list[_Part]] = {}
        for schema, units in groups.items():
            by_key: dict[tuple[str, ...], list[tuple[int, bytes]]] = {}
            for number, payload in units:
                try:
                    keys = self._encoding.key_fields(getattr(values[number], "key", None))
                except SourceError as error:
                    faults[number] = message_of(error)
                else:
                    by_key.setdefault(keys, []).append((number, payload))
            for keys, of_keys in by_key.items():
                parts, bad = self._of_schema(schema, keys, of_keys, place)
                faults |= bad
                for part in parts:
                    tables.setdefault(part.table, []).append(part)
        packed = [self._packed(part) for parts in tables.values() for part in _in_runs(parts)]
        return self._ordered([Sorted([], [], faults), *packed])

    @property
    def _read_columns(self) -> pa.Schema:
        return pa.schema([])

    @cached_property
    def _decoders(self) -> dict[tuple[bytes, tuple[str, ...]], ChangeValues]:
        return {}

    @property
    def _names(self) -> list[str]:
        return [f"source_{part}" for part in self.options.source]

    def _of_schema(
        self, schema: bytes, keys: tuple[str, ...], units: Sequence[tuple[int, bytes]], place: str
    ) -> tuple[list[_Part], Mapping[int, str]]:
        """Return the rows of messages that carry one schema, and whose keys have these fields; and their faults."""
        try:
            decoder = self._decoder(schema, keys)
        except SourceError as error:
            return [], dict.fromkeys((number for number, _ in units), message_of(error))
        rows = decoder.of_schema(schema, units, place)
        if not rows.numbers:
            return [], rows.faults
        names, own = rows.batch.select(self._names), rows.batch.drop_columns(self._names)
        numbers, key_fields = np.array(rows.numbers), decoder.options.key_fields
        parts = []
        for of_table in _alike(names):
            table = tuple(column[int(of_table[0])].as_py() for column in names.columns)
            alone = own if len(of_table) == len(own) else own.take(pa.array(of_table))
            parts.append(_Part(table, numbers[of_table], alone, key_fields))
        return parts, rows.faults

    def _decoder(self, schema: bytes, keys: tuple[str, ...]) -> ChangeValues:
        """Return what decodes messages of a schema.

        Raises:
            SourceError: If it can't be read, tells a column that the format adds, or does not tell what `source` names;
                or if a key is no column of it.
        """
        if (schema, keys) not in self._decoders:
            columns = canonical_schema(self._encoding.columns_of(schema))
            if twice := [name for name in ChangeOptions().added if name in columns.names]:
                raise SourceError(f"column {twice[0]!r} is there twice: in the table, and added by {self.value_format}")
            told = self._told(schema)
            wire = {name: way for name, way in self.options.wire.items() if name in columns.names}
            # Messages that are no changes have keys, too, and no columns.
            if columns.names and (lacking := [name for name in keys if name not in columns.names]):
                raise SourceError(f"its key has {lacking[0]!r}, which is no column of its table")
            own = keys if columns.names else ()
            options = replace(self.options, packed=False, wire=wire, key_fields=own)
            tells_place = any(place <= told for place in PLACES)
            self._decoders[schema, keys] = ChangeValues(
                columns, self.value_format, options, "drop", tells_place=tells_place, registry=self.registry
            )
        return self._decoders[schema, keys]

    def _told(self, schema: bytes) -> Set[str]:
        """Return what rows that were flattened tell of the source block; an envelope has all of it.

        Raises:
            SourceError: If they lack what `source` names.
        """
        if not self.options.flattened:
            return {*SOURCE.names}
        fields = self._encoding.wires(schema)
        told = {name for name in SOURCE.names if {f"__{name}", f"__source_{name}"} & fields.keys()}
        if lacking := [part for part in self.options.source if part not in told]:
            raise SourceError(
                f"it does not tell the {lacking[0]} of its row, by which tables are told apart",
                hint=f"transforms.unwrap.add.fields=op,{','.join(self.options.source)}",
            )
        return told

    def _packed(self, part: _Part) -> Sorted:
        row = [[pack_rows(part.rows, part.keys)], *([name] for name in part.table)]
        columns = [pa.array(value, field.type) for value, field in zip(row, self.schema, strict=True)]
        return Sorted([pa.RecordBatch.from_arrays(columns, schema=self.schema)], [int(part.numbers[0])], {})


@dataclass(frozen=True)
class _Part:
    """Rows of one table that carry one schema, in the order of their messages.

    Args:
        table: What tells the table.
        numbers: The numbers of their messages.
        keys: The columns of the primary key.
    """

    table: tuple[Any, ...]
    numbers: np.ndarray[Any, Any]
    rows: pa.RecordBatch
    keys: Sequence[str]


def _in_runs(parts: Sequence[_Part]) -> Iterator[_Part]:
    """Yield the rows of one table so that those of several schemas stay in the order of their messages."""
    if len(parts) == 1:
        yield from parts
        return
    owners = np.repeat(np.arange(len(parts)), [len(part.numbers) for part in parts])
    owners = owners[np.argsort(np.concatenate([part.numbers for part in parts]), kind="stable")]
    starts, taken = np.flatnonzero(np.diff(owners, prepend=-1)).tolist(), [0] * len(parts)
    for start, end in zip(starts, [*starts[1:], len(owners)], strict=True):
        owner, count = int(owners[start]), end - start
        part, first = parts[owner], taken[owner]
        yield replace(part, numbers=part.numbers[first : first + count], rows=part.rows.slice(first, count))
        taken[owner] += count


def _alike(names: pa.RecordBatch) -> list[np.ndarray[Any, Any]]:
    """Return the numbers of rows with the same names, ascending."""
    if all(pc.count_distinct(column, mode="all").as_py() == 1 for column in names.columns):
        return [np.arange(names.num_rows)]
    numbers: dict[tuple[Any, ...], list[int]] = {}
    for number, name in enumerate(zip(*(column.to_pylist() for column in names.columns), strict=True)):
        numbers.setdefault(name, []).append(number)
    return [np.array(rows) for rows in numbers.values()]


def change_values(
    columns: pa.Schema, value_format: str, options: ChangeOptions, on_unknown: str, registry: Registry | None = None
) -> GroupedChanges:
    """Return what decodes changes of a table into declared columns, or those of many tables into packed rows."""
    if options.packed:
        return PackedChanges(columns, value_format, options, registry=registry)
    return ChangeValues(columns, value_format, options, on_unknown, registry=registry)
