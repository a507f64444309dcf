"""Finds CSV numbers too large for their column: Arrow reads them as infinite, like the text ``inf``."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["first_too_large", "texts_of", "too_large"]

# A number of which a float, at least, can be infinite.
_LONG_NUMBER = r"^\s*[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)[eE]\+?[0-9]{2,}\s*$|^\s*[+-]?[0-9]{38,}(?:\.[0-9]*)?\s*$"
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
            return row, _fault(field, text[row].as_py().decode())
    return None


def too_large(field: pa.Field, texts: pa.Array) -> Iterator[tuple[int, str]]:
    """Yield the rows of numbers that are too large for their column, with the reason.

    Args:
        field: The column.
        texts: Its values as texts; some may be no number.
    """
    is_number = pc.match_substring_regex(texts, _LONG_NUMBER)
    rows = np.flatnonzero(pc.fill_null(is_number, False).to_numpy(zero_copy_only=False)).tolist()
    for row in rows:
        if pc.is_inf(pc.cast(pc.ascii_trim_whitespace(texts[row]), field.type)).as_py():
            yield row, _fault(field, texts[row].as_py())


def _fault(field: pa.Field, text: str) -> str:
    return f"column {field.name!r}: {text:.80} is too large for {field.type}"
