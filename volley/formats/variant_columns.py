"""Columns of variants: as JSON text, from JSON text or Arrow's values, and put together where a file has them shredded.

Shredded ones have values of one type in columns of their own:
https://github.com/apache/parquet-format/blob/master/VariantShredding.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

import pyarrow as pa

from volley.errors import SourceError
from volley.formats.variant import NULL, Malformed, fields_of, json_text, names_in
from volley.formats.variant_typed import values_of
from volley.formats.variant_writer import (
    Value,
    array_of_values,
    encoded,
    metadata_of,
    names_of,
    object_of_values,
    variant_of_json,
)

__all__ = ["METADATA", "STORED", "TYPED", "VALUE", "is_stored", "is_writable", "texts_of", "variants_of", "whole"]

STORED = pa.struct([pa.field("metadata", pa.binary(), False), pa.field("value", pa.binary(), False)])
"""The type of variants that are not shredded."""

METADATA, VALUE, TYPED = "metadata", "value", "typed_value"
"""The columns of variants in a file."""
_NAMES = {METADATA, VALUE, TYPED}


def is_stored(data_type: pa.DataType) -> bool:
    """Return True for the type of variants in a file, shredded or not."""
    names = {field.name for field in data_type} if pa.types.is_struct(data_type) else set()
    return METADATA in names and names <= _NAMES and len(names) > 1


def is_writable(data_type: pa.DataType) -> bool:
    """Return True if values of a type can become variants: JSON texts, and what has parts."""
    return bool(pa.types.is_string(data_type) or pa.types.is_nested(data_type))


def whole(array: pa.StructArray) -> pa.StructArray:
    """Return variants that a file may have shredded as `STORED`.

    Raises:
        Malformed: If one is damaged.
    """
    if array.type.equals(STORED):
        return array
    metadatas, values = _metadatas(array), _values(array)
    return _column(zip(metadatas, values, strict=True), len(array))


def texts_of(array: pa.StructArray) -> pa.Array:
    """Return the variants of a file as JSON text; raise Malformed if one is damaged."""
    pairs = zip(_metadatas(array), _values(array), strict=True)
    texts = (None if metadata is None or value is None else json_text(metadata, value) for metadata, value in pairs)
    return pa.array(texts, pa.string(), size=len(array))


def variants_of(array: pa.Array, column: str) -> pa.StructArray:
    """Return JSON texts, or Arrow's values, as variants; those that are stored ones stay as they are.

    Args:
        column: The column's name, for errors.

    Raises:
        SourceError: If a text is not JSON, or a value is of a type that variants lack.
    """
    if array.type.equals(STORED):
        return array
    if pa.types.is_string(array.type):
        return _column((None if text is None else _of_text(text, column) for text in array.to_pylist()), len(array))
    try:
        names = sorted(names_of(array), key=str.encode)
        metadata = metadata_of(names)
        values = encoded(array, {name: number for number, name in enumerate(names)})
    except ValueError as error:
        raise SourceError(f"column {column!r}: {error}", hint="cast it before, or write JSON text") from error
    return _column((None if value is None else (metadata, value) for value in values), len(array))


def _of_text(text: str, column: str) -> tuple[bytes, bytes]:
    try:
        return variant_of_json(text)
    except (ValueError, RecursionError) as error:
        shown = text if len(text) < 60 else f"{text[:60]}…"
        raise SourceError(
            f"column {column!r}: {shown!r} is no JSON for a variant: {error}",
            hint="a text in it needs quotes as in JSON; null is the variant's own null, and a missing value none",
        ) from error


def _column(pairs: Iterable[tuple[Value, Value] | None], count: int) -> pa.StructArray:
    known = [pair if pair is not None and pair[0] is not None else None for pair in pairs]
    # A part of a null is required, too.
    columns = [pa.array([b"" if pair is None else pair[number] for pair in known], pa.binary()) for number in (0, 1)]
    nulls = pa.array([pair is None for pair in known], pa.bool_())
    return pa.StructArray.from_arrays(columns, fields=list(STORED), mask=nulls)


def _child(array: pa.StructArray, name: str) -> pa.Array | None:
    number = array.type.get_field_index(name)
    return None if number < 0 else array.field(number)


def _metadatas(array: pa.StructArray) -> list[Value]:
    metadata = _child(array, METADATA)
    assert metadata is not None
    pairs = zip(metadata.to_pylist(), array.is_valid().to_pylist(), strict=True)
    return [value if valid else None for value, valid in pairs]


def _values(array: pa.StructArray) -> list[Value]:
    """Return the value of each row; one that is in no column is a variant that is null."""
    metadatas = _metadatas(array)
    pairs = zip(_together(array, metadatas), metadatas, strict=True)
    return [None if metadata is None else value or NULL for value, metadata in pairs]


def _together(array: pa.StructArray, metadatas: Sequence[Value]) -> list[Value]:
    """Return the values in a pair of columns: one for values of a type, one for the others; None if neither has one."""
    value, typed = _child(array, VALUE), _child(array, TYPED)
    others: list[Value] = [None] * len(array) if value is None else value.to_pylist()
    if typed is None:
        return others
    if pa.types.is_struct(typed.type):
        return _objects(typed, others, metadatas)
    values = _lists(typed, metadatas) if pa.types.is_nested(typed.type) else values_of(typed)
    return [other if value is None else value for value, other in zip(values, others, strict=True)]


def _objects(typed: pa.StructArray, others: Sequence[Value], metadatas: Sequence[Value]) -> list[Value]:
    """Return objects: the fields of each that have columns, and those that are in a value beside them."""
    columns = {field.name: _together(typed.field(number), metadatas) for number, field in enumerate(typed.type)}
    values: list[Value] = []
    for row, (valid, other, metadata) in enumerate(zip(typed.is_valid().to_pylist(), others, metadatas, strict=True)):
        if metadata is None or not valid:
            values.append(other)
            continue
        fields = {} if other is None else fields_of(metadata, other)
        fields |= {name: value for name, column in columns.items() if (value := column[row]) is not None}
        values.append(object_of_values(fields, _ids(metadata, fields)))
    return values


def _ids(metadata: bytes, fields: Mapping[str, bytes]) -> dict[str, int]:
    ids = {name: number for number, name in enumerate(names_in(metadata))}
    if lacking := fields.keys() - ids.keys():
        raise Malformed(f"the metadata of a shredded variant lack the name {min(lacking)!r}")
    return ids


def _lists(typed: pa.Array, metadatas: Sequence[Value]) -> list[Value]:
    # Not flattened: pyarrow can't flatten empty lists of UUIDs.
    offsets, valid = typed.offsets.to_pylist(), typed.is_valid().to_pylist()
    rows = zip(metadatas, pairwise(offsets), strict=True)
    repeated = [metadata for metadata, (start, end) in rows for _ in range(start, end)]
    items = _together(typed.values.slice(offsets[0], len(repeated)), repeated)
    parts = [items[start - offsets[0] : end - offsets[0]] for start, end in pairwise(offsets)]
    return [
        array_of_values([item or NULL for item in part]) if is_valid else None
        for part, is_valid in zip(parts, valid, strict=True)
    ]
