"""Decodes changes of many tables: the rows of each are packed, with the columns that their messages' schema tells."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from volley.columns.batches import no_rows
from volley.errors import SourceError, message_of
from volley.formats.change_options import ChangeOptions
from volley.formats.changes.decoder import ChangeValues, encoding_of, shape_of
from volley.formats.changes.encoding import Encoding
from volley.formats.changes.events import Shape
from volley.formats.messages import Values
from volley.formats.packed_rows import pack_rows
from volley.formats.rows import Sorted, joined
from volley.formats.schema_registry import Registry
from volley.types.arrow import canonical_schema

__all__ = ["PackedChanges", "change_values"]


@dataclass(frozen=True)
class PackedChanges:
    """Decodes messages of which each has its schema: a row is the packed rows of one table.

    Args:
        column: The column of packed rows.
        value_format: ``"debezium"``.
        registry: The registry of the schemas of messages in Avro; None = they are JSON.
    """

    rows_vary: ClassVar[bool] = True
    column: str
    value_format: str
    options: ChangeOptions
    registry: Registry | None = None

    @property
    def format(self) -> str:
        return self._encoding.format

    @cached_property
    def schema(self) -> pa.Schema:
        return pa.schema([(self.column, pa.binary()), *((name, pa.string()) for name in self._names)])

    def decode(self, values: Values, place: str = "") -> pa.RecordBatch:
        rows = self.sort(values, place)
        if rows.faults:
            raise SourceError(next(iter(rows.faults.values())))
        return rows.batch

    def sort(self, values: Values, place: str = "") -> Sorted:
        """Return packed rows, each at the number of the first message that it has rows of."""
        groups, faults = self._encoding.groups(values)
        pieces = [Sorted([no_rows(self.schema)], [], faults)]
        for schema, units in groups.items():
            by_key: dict[tuple[str, ...], list[int]] = {}
            for number, _ in units:
                try:
                    keys = self._encoding.key_fields(getattr(values[number], "key", None))
                except SourceError as error:
                    pieces.append(Sorted([], [], {number: message_of(error)}))
                else:
                    by_key.setdefault(keys, []).append(number)
            for keys, numbers in by_key.items():
                pieces.append(self._of_schema(schema, keys, numbers, values, place))
        rows = joined(pieces)
        order = np.argsort(rows.numbers, kind="stable")
        return Sorted([rows.batch.take(pa.array(order))], [rows.numbers[row] for row in order], rows.faults)

    def fault(self, value: bytes | None, error: Exception) -> str:
        return message_of(error)

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    @cached_property
    def _encoding(self) -> Encoding:
        return encoding_of(pa.schema([]), self.value_format, self.options, self._shape, self.registry)

    @cached_property
    def _shape(self) -> Shape:
        return shape_of(self.value_format, self.options)

    @cached_property
    def _decoders(self) -> dict[tuple[bytes, tuple[str, ...]], ChangeValues]:
        return {}

    @property
    def _names(self) -> list[str]:
        return [f"source_{part}" for part in self.options.source]

    def _of_schema(
        self, schema: bytes, keys: tuple[str, ...], numbers: Sequence[int], values: Values, place: str
    ) -> Sorted:
        """Return the rows of messages that carry one schema, and whose keys have these fields."""
        try:
            decoder = self._decoder(schema, keys)
        except SourceError as error:
            return Sorted([], [], dict.fromkeys(numbers, message_of(error)))
        rows = decoder.sort([values[number] for number in numbers], place)
        faults = {numbers[number]: fault for number, fault in rows.faults.items()}
        packed = [*self._by_table(rows.batch, decoder.options.key_fields)]
        firsts = [numbers[rows.numbers[first]] for first, _ in packed]
        return Sorted([batch for _, batch in packed], firsts, faults)

    def _decoder(self, schema: bytes, keys: tuple[str, ...]) -> ChangeValues:
        """Return what decodes messages of a schema.

        Raises:
            SourceError: If it can't be read, or tells a column that the format adds; or if a key is no column of it.
        """
        if (schema, keys) not in self._decoders:
            columns = canonical_schema(self._encoding.columns_of(schema))
            if twice := [name for name in ChangeOptions().added if name in columns.names]:
                raise SourceError(f"column {twice[0]!r} is there twice: in the table, and added by {self.value_format}")
            wire = {name: way for name, way in self.options.wire.items() if name in columns.names}
            # Messages that are no changes have keys, too, and no columns.
            if columns.names and (lacking := [name for name in keys if name not in columns.names]):
                raise SourceError(f"its key has {lacking[0]!r}, which is no column of its table")
            own = keys if columns.names else ()
            options = replace(self.options, packed=False, wire=wire, key_fields=own)
            self._decoders[schema, keys] = ChangeValues(columns, self.value_format, options, "drop", self.registry)
        return self._decoders[schema, keys]

    def _by_table(self, rows: pa.RecordBatch, keys: Sequence[str]) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the rows of each table, packed, with the number of the first."""
        names = rows.select(self._names)
        own = rows.drop_columns(self._names)
        for numbers in _alike(names) if rows.num_rows else ():
            first = int(numbers[0])
            of_table = own if len(numbers) == len(rows) else own.take(pa.array(numbers))
            packed = pa.array([pack_rows(of_table, keys)], pa.binary())
            yield first, pa.RecordBatch.from_arrays([packed, *names.slice(first, 1).columns], schema=self.schema)


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
) -> ChangeValues | PackedChanges:
    """Return what decodes changes of a table into declared columns, or those of many tables into packed rows."""
    if options.packed:
        return PackedChanges(columns.names[0], value_format, options, registry)
    return ChangeValues(columns, value_format, options, on_unknown, registry)
