"""Finds CSV numbers too large for their column: Arrow reads them as infinite, like the text ``inf``."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["first_too_large", "texts_of"]

_INFINITY = r"(?i)^\s*[+-]?inf(inity)?\s*$"


def texts_of(schema: pa.Schema) -> pa.Schema:
    """Return a schema of the same columns as binary, which accepts any text."""
    return pa.schema([(name, pa.binary()) for name in schema.names])


def first_too_large(batch: pa.RecordBatch, texts: Callable[[], pa.RecordBatch]) -> tuple[int, str] | None:
    """Return the first row with a number too large for its column, and the reason; None if there is none.

    Args:
        batch: The rows.
        texts: Returns the same rows in the schema `texts_of`; called only if a value is infinite.
    """
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if not pa.types.is_floating(field.type) or not pc.any(pc.is_inf(column)).as_py():
            continue
        text = texts().column(field.name)
        says_infinity = pc.match_substring_regex(text, _INFINITY)
        row = pc.index(pc.and_not(pc.is_inf(column), says_infinity), True).as_py()
        if row >= 0:
            return row, f"column {field.name!r}: {text[row].as_py().decode():.80} is too large for {field.type}"
    return None
