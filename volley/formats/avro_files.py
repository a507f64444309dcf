"""Reads Avro object container files as Arrow batches, one block after the other."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import pyarrow as pa

from volley.columns.exact import array_of
from volley.contracts.rows import BadRow, PositionedBatch
from volley.errors import SourceError, VolleyError
from volley.formats.avro import Resolution, avro_columns, resolution_of
from volley.formats.avro_blocks import AvroContainer, Block
from volley.formats.avro_bounds import LARGEST_VALUE, Bounds
from volley.formats.avro_defaults import in_nanoseconds
from volley.formats.files import FormatReader
from volley.formats.input_file import InputFile, WholeFile
from volley.formats.options import NoOptions
from volley.formats.rows import fitting

__all__ = ["FORMAT", "OpenAvro", "opened"]

_BATCH_ROWS = 10_000

_Row = dict[str, Any]


def infer(file: InputFile, options: NoOptions) -> pa.Schema:
    """Return the schema of the file."""
    with _opened(file) as (_, schema):
        return schema


def rows(
    file: InputFile, schema: pa.Schema, part: tuple[int, int], options: NoOptions
) -> Iterator[PositionedBatch | BadRow]:
    """Yield the rows of a part with their places, and a `BadRow` for each row that doesn't fit the schema."""
    with _opened(file) as (batches, own):
        file.check_columns(own, schema)
        # At least one column: batches without columns have lost their number of rows.
        fields, before = [field for field in own if field.name in schema.names] or [*own][:1], 0
        for records in batches:
            yield from fitting(file, _batch(records, fields), schema, partial(_position, file, before))
            before += len(records)


def _position(file: InputFile, before: int, row: int) -> str:
    return f"{file.name}, row {before + row + 1}"


@contextmanager
def _opened(file: InputFile) -> Iterator[tuple[Iterator[list[_Row]], pa.Schema]]:
    """Open a file as batches of its records, and their columns."""
    with _source(file) as source:
        yield _batches(_records(source)), avro_columns(in_nanoseconds(source.schema))


@contextmanager
def _source(file: InputFile) -> Iterator[AvroContainer]:
    try:
        with file.open() as stream:
            yield AvroContainer(file, stream)
    except VolleyError:
        raise
    except Exception as error:
        # fastavro raises any type of exception on broken bytes.
        raise SourceError(
            f"{file.name} is not a whole Avro file: {type(error).__name__}: {error}",
            hint="was it cut, or is it another format?",
        ) from error


@contextmanager
def opened(file: InputFile) -> Iterator[OpenAvro]:
    """Open an Avro file of an Iceberg table for as long as the context lasts.

    Raises:
        SourceError: If it is damaged.
    """
    with _source(file) as source:
        columns = avro_columns(in_nanoseconds(source.schema))
        fields = json.loads(source.schema)["fields"]
    yield OpenAvro(file, pa.schema([_identified(*pair, "field-id") for pair in zip(columns, fields, strict=True)]))


@dataclass(frozen=True)
class OpenAvro:
    """An Avro file that can be read several times; like an open Parquet file with one row group.

    Args:
        schema: Its columns; the metadata of fields have Iceberg's field ids.
    """

    file: InputFile
    schema: pa.Schema

    @cached_property
    def groups(self) -> Sequence[WholeFile]:
        """The whole file."""
        with _source(self.file) as source:
            return [WholeFile(sum(block.count for block in source.blocks()))]

    def part(self, number: int, parts: int) -> range:
        """Return the groups of one of several parts: the first one has all rows."""
        return range(0 if number else 1)

    def batches(
        self, columns: Sequence[str], groups: Iterable[int], encoded: pa.Schema | None = None, rows: int = _BATCH_ROWS
    ) -> Iterator[tuple[pa.RecordBatch, int]]:
        """Yield the rows, each batch with the number of the file's rows before it; see `OpenParquet.batches`."""
        if not list(groups):
            return
        before = 0
        with _opened(self.file) as (batches, own):
            # Batches without columns have lost their number of rows.
            fields = [field for field in own if field.name in columns] or [*own][:1]
            for records in batches:
                batch = _batch(records, fields)
                for start in range(0, batch.num_rows, rows):
                    yield batch.slice(start, rows), before + start
                before += batch.num_rows


def _identified(field: pa.Field, attributes: dict[str, Any], name: str) -> pa.Field:
    """Return a field with its id, which an attribute of this name has, and with those of the fields in it."""
    metadata = {"iceberg.id": str(attributes[name])} if name in attributes else None
    return pa.field(field.name, _with_ids(field.type, attributes), field.nullable, metadata)


def _with_ids(data_type: pa.DataType, schema: Any) -> pa.DataType:
    while isinstance(inner := schema.get("type"), dict | list):
        schema = next(branch for branch in inner if branch != "null") if isinstance(inner, list) else inner
        schema = schema if isinstance(schema, dict) else {"type": schema}
    if pa.types.is_struct(data_type) and "fields" in schema:
        pairs = zip(data_type, schema["fields"], strict=True)
        return pa.struct([_identified(field, attributes, "field-id") for field, attributes in pairs])
    if pa.types.is_list(data_type):
        return pa.list_(_identified(data_type.value_field, {**schema, "type": schema["items"]}, "element-id"))
    if pa.types.is_map(data_type):
        key = _identified(data_type.key_field, {**schema, "type": "string"}, "key-id")
        return pa.map_(key, _identified(data_type.item_field, {**schema, "type": schema["values"]}, "value-id"))
    return data_type


def _batch(records: list[_Row], fields: Sequence[pa.Field]) -> pa.RecordBatch:
    columns = [array_of([record[field.name] for record in records], field.type) for field in fields]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def _batches(pieces: Iterable[tuple[list[_Row], float]]) -> Iterator[list[_Row]]:
    """Yield batches of limited numbers and sizes of rows."""
    rows: list[_Row] = []
    size = 0.0
    for piece, more in pieces:
        if rows and (len(rows) + len(piece) > _BATCH_ROWS or size + more > LARGEST_VALUE):
            yield rows
            rows, size = [], 0.0
        rows += piece
        size += more
    if rows:
        yield rows


def _records(source: AvroContainer) -> Iterator[tuple[list[_Row], float]]:
    """Yield the records of a file's blocks, some at a time, with what they take in memory."""
    # Without what Volley does not read, such as the logical type uuid.
    schema = in_nanoseconds(source.schema)
    resolution, empty = resolution_of(schema, schema), 0
    for block in source.blocks():
        try:
            empty += _check_count(block, resolution.bounds, empty)
            yield from _records_of(block, resolution)
        except SourceError as error:
            raise error.within(source.place(block.number)) from error


def _check_count(block: Block, bounds: Bounds, empty: int) -> int:
    """Check that a block can have its records; return the number of those that have no bytes."""
    if bounds.width and block.count > len(block.data) // bounds.width:
        raise ValueError(f"block {block.number} has {block.count:,} records in {len(block.data):,} bytes")
    if bounds.width or not block.count:
        return 0
    if empty + block.count > (most := LARGEST_VALUE // max(1, bounds.fixed)):
        raise SourceError(f"more than {most:,} records without a byte", hint="that is the limit of a file")
    return block.count


def _records_of(block: Block, resolution: Resolution) -> Iterator[tuple[list[_Row], float]]:
    stream = io.BytesIO(block.data)
    within = resolution.bounds.most(len(block.data))
    yield from (_together if within <= LARGEST_VALUE else _walked)(block, resolution, stream)
    if rest := len(block.data) - stream.tell():
        raise ValueError(f"block {block.number} of {block.count:,} records has {rest:,} bytes left over")


def _together(block: Block, resolution: Resolution, stream: io.BytesIO) -> Iterator[tuple[list[_Row], float]]:
    """Yield records of which none can take too much: what the block takes is shared out evenly."""
    bounds = resolution.bounds
    size = bounds.fixed + (bounds.most(len(block.data)) - bounds.fixed) / max(1, block.count)
    most = max(1, min(_BATCH_ROWS, int(LARGEST_VALUE / size)))
    for first in range(0, block.count, most):
        count = min(most, block.count - first)
        yield resolution.rows(stream, count), count * size


def _walked(block: Block, resolution: Resolution, stream: io.BytesIO) -> Iterator[tuple[list[_Row], float]]:
    """Yield records one after the other, each after a look at its lengths and counts."""
    for _ in range(block.count):
        size, _ = resolution.bounds.walk(block.data, stream.tell())
        yield resolution.rows(stream, 1), size


FORMAT = FormatReader(infer, rows)
"""The reader of Avro files."""
