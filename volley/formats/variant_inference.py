"""Finds columns of types for variants: by the fields and types that a sample of the values has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from volley.formats.variant import ARRAY, OBJECT, Malformed, fields_of, items_of
from volley.formats.variant_columns import METADATA, TYPED, VALUE
from volley.formats.variant_typed import type_of

__all__ = ["inferred"]

# Those of Iceberg's Java library 1.12 (VariantShreddingAnalyzer).
_LEAST_PART = 0.1
_MOST_FIELDS = 300
_DEEPEST = 16

_Pair = tuple[bytes, bytes]
"""The metadata and a value of a variant."""


def inferred(sample: pa.StructArray) -> pa.DataType | None:
    """Return a type of shredded variants for values like those of a sample; None if none of them has a type.

    A value has the type that most values in its place have; a field has a column if a tenth of the objects have it.

    Args:
        sample: Whole variants.
    """
    rows = (row for row in sample.to_pylist() if row is not None)
    typed = _Analysis().type_of([(row[METADATA], row[VALUE]) for row in rows])
    return None if typed is None else pa.struct([pa.field(METADATA, pa.binary(), False), *_pair(typed)])


def _pair(typed: pa.DataType) -> pa.StructType:
    return pa.struct([(VALUE, pa.binary()), (TYPED, typed)])


class _Analysis:
    """Counts the columns that it gives to fields."""

    def __init__(self) -> None:
        self._fields = 0

    def type_of(self, values: Sequence[_Pair], depth: int = 0) -> pa.DataType | None:
        """Return the type of a column for some values; None if there is no such type."""
        kinds = Counter(kind for pair in values if (kind := _kind(pair[1])) is not None)
        if not kinds or depth > _DEEPEST:
            return None
        ((kind, _),) = kinds.most_common(1)
        if isinstance(kind, pa.DataType):
            return kind
        return self._list(values, depth) if kind == ARRAY else self._struct(values, depth)

    def _list(self, values: Sequence[_Pair], depth: int) -> pa.DataType | None:
        typed = self.type_of([(metadata, item) for metadata, value in values for item in _items(value)], depth + 1)
        return None if typed is None else pa.list_(pa.field("element", _pair(typed), False))

    def _struct(self, values: Sequence[_Pair], depth: int) -> pa.DataType | None:
        objects = [(metadata, fields) for metadata, value in values if (fields := _fields(metadata, value)) is not None]
        counts = Counter(name for _, fields in objects for name in fields)
        lower = Counter(name.lower() for name in counts)
        columns = []
        for name, count in counts.most_common():
            # Some readers can't tell columns apart whose names have dots, or differ in upper case.
            is_plain = bool(name) and "." not in name and lower[name.lower()] == 1
            if count < _LEAST_PART * len(objects) or self._fields == _MOST_FIELDS or not is_plain:
                continue
            self._fields += 1
            typed = self.type_of(
                [(metadata, fields[name]) for metadata, fields in objects if name in fields], depth + 1
            )
            if typed is not None:
                columns.append(pa.field(name, _pair(typed), False))
        return pa.struct(sorted(columns, key=lambda field: field.name)) if columns else None


def _kind(value: bytes) -> Any:
    """Return the type of a plain value, or `OBJECT` or `ARRAY`; None for null, and for what is damaged."""
    if not value:
        return None
    basic = value[0] & 3
    return basic if basic in (OBJECT, ARRAY) else type_of(value)


def _fields(metadata: bytes, value: bytes) -> dict[str, bytes] | None:
    try:
        return fields_of(metadata, value) if _kind(value) == OBJECT else None
    except Malformed:
        return None


def _items(value: bytes) -> list[bytes]:
    try:
        return items_of(value) if _kind(value) == ARRAY else []
    except Malformed:
        return []
