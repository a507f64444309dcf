"""Finds out how data files shred their variants, so that files that are written in their place do the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import MappedField

from volley.formats.variant_shredding import is_shredded, with_values
from volley.iceberg.read.data_files import open_stored
from volley.iceberg.read.entries import FileEntry
from volley.iceberg.read.projection import FileField, children, identified
from volley.iceberg.schema.foreign_types import VariantType
from volley.iceberg.schema.types import fields_in, plain
from volley.iceberg.storage.errors import storage_errors

__all__ = ["shredding_of"]


def shredding_of(
    io: FileIO, files: Iterable[FileEntry], schema: Schema, names: Sequence[MappedField]
) -> Mapping[int, pa.DataType]:
    """Return the types of variants in files that replace others, by field id: that of most shredded rows of these.

    Only the footers are read, and these only if the schema has variants.

    Args:
        names: The table's name mapping, for files without field ids.

    Raises:
        SourceError: If a file is gone or damaged.
        StorageError: If the storage fails.
    """
    if not any(isinstance(field.field_type, VariantType) for _, field in fields_in(schema.as_struct())):
        return {}
    rows, types = 0, dict[int, Counter[pa.DataType]]()
    for file in files:
        rows += file.rows
        with storage_errors(file.path, "reading"), open_stored(io, file) as stored:
            for field_id, data_type in _shredded(stored.schema, identified(stored.schema, names, file.path)):
                types.setdefault(field_id, Counter())[data_type] += file.rows
    return {field_id: _commonest(counts, rows) for field_id, counts in types.items()}


def _commonest(counts: Counter[pa.DataType], rows: int) -> pa.DataType:
    ((data_type, count),) = counts.most_common(1)
    # Those of files that have it already stay as they are; that of others may not fit.
    return data_type if count == rows else with_values(data_type)


def _shredded(columns: Iterable[pa.Field], fields: Iterable[FileField]) -> Iterator[tuple[int, pa.DataType]]:
    for column, field in zip(columns, fields, strict=True):
        if field.field_id is not None and is_shredded(column.type) and plain(column.type) == column.type:
            yield field.field_id, column.type
        else:
            yield from _shredded((child for _, child in children(column.type)), field.fields)
