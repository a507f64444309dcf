"""CSV numbers too large for their column: Arrow makes them infinite, as it does the texts that mean infinity."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["first_too_large", "texts_of"]

_INFINITY = r"(?i)^\s*[+-]?inf(inity)?\s*$"


def texts_of(schema: pa.Schema) -> pa.Schema:
    """The same columns as bytes: any text can be read into it."""
    return pa.schema([(name, pa.binary()) for name in schema.names])


def first_too_large(batch: pa.RecordBatch, texts: Callable[[], pa.RecordBatch]) -> tuple[int, str] | None:
    """The first row with a number too large for its column, and what is wrong with it; None if there is none.

    Args:
        batch: The rows.
        texts: The same rows in the schema `texts_of`; asked only if a value is infinite.
    """
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if not pa.types.is_floating(field.type) or not pc.any(pc.is_inf(column)).as_py():
            continue
        text = texts().column(field.name)
        meant = pc.match_substring_regex(text, _INFINITY)
        row = pc.index(pc.and_not(pc.is_inf(column), meant), True).as_py()
        if row >= 0:
            return row, f"column {field.name!r}: {text[row].as_py().decode():.80} is too large for {field.type}"
    return None
