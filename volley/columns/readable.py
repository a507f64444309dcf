"""Converts Arrow rows to Python, also values Python lacks: years outside 1 to 9999, strings that are not UTF-8."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from volley.contracts.rows import BadRow

__all__ = ["bad_row", "bytes_as_text", "json_of", "readable_rows", "row_payloads"]

_UNITS_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


def readable_rows(data: pa.RecordBatch | pa.Table, maps_as_pydicts: Any = None) -> list[dict[str, Any]]:
    """Return the rows as `to_pylist` does, with text for a value that Python can't represent.

    Times become ISO text; bytes that are not UTF-8 are escaped in strings, as ``\\xff``.

    Example:
        >>> readable_rows(pa.record_batch({"day": pa.array([2932897], pa.int32()).view(pa.date32())}))
        [{'day': '10000-01-01'}]
    """
    try:
        rows: list[dict[str, Any]] = data.to_pylist(maps_as_pydicts=maps_as_pydicts)
    except (ValueError, OverflowError):
        columns = [_values(column, maps_as_pydicts) for column in data.columns]
        return [dict(zip(data.schema.names, row, strict=True)) for row in zip(*columns, strict=True)]
    return rows


def bytes_as_text(column: pa.ChunkedArray) -> pa.Array:
    """Return bytes as text, if all are UTF-8, else in hexadecimal digits.

    Example:
        >>> bytes_as_text(pa.chunked_array([[b"a", None]])).to_pylist()
        ['a', None]
    """
    values = column.to_pylist()
    try:
        texts = [None if value is None else value.decode() for value in values]
    except UnicodeDecodeError:
        texts = [None if value is None else value.hex() for value in values]
    return pa.array(texts, pa.string())


def bad_row(batch: pa.RecordBatch, row: int, error: str, position: str) -> BadRow:
    """Return a row of a batch as a BadRow, its values as JSON."""
    ((text, format),) = row_payloads(batch.slice(row, 1))
    return BadRow(text, error, position, format)


def row_payloads(batch: pa.RecordBatch) -> list[tuple[str, str]]:
    """Return each row of a batch as the payload of a `BadRow`, its values as JSON, and the payload's format.

    That is ``row``, or ``text`` if a value can't be told from another one by its text.
    """
    try:
        rows = batch.to_pylist()
    except (ValueError, OverflowError):
        return [(json_of(row), "text") for row in readable_rows(batch)]
    return [(json_of(row), "text" if _has_other_bytes(row) else "row") for row in rows]


def _has_other_bytes(value: Any) -> bool:
    """Return True if there are bytes in a value that are not UTF-8."""
    if isinstance(value, bytes):
        try:
            value.decode()
        except UnicodeDecodeError:
            return True
        return False
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return any(map(_has_other_bytes, inner))


def _json_text(value: object) -> str:
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)


def json_of(value: Any) -> str:
    """Return a value as JSON: what JSON lacks, such as times and NaN, as text.

    Example:
        >>> json_of({"x": [0.5, float("nan"), float("-inf")]})
        '{"x": [0.5, "NaN", "-Infinity"]}'
    """
    try:
        return _encode(value)
    except ValueError:
        return _encode(_with_named_numbers(value))


_encode = json.JSONEncoder(default=_json_text, ensure_ascii=False, allow_nan=False).encode


def _with_named_numbers(value: Any) -> Any:
    """Return a value with infinities and NaN by the names that Java's programs give them in JSON."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {key: _with_named_numbers(item) for key, item in value.items()}
    return [*map(_with_named_numbers, value)] if isinstance(value, list | tuple) else value


def _values(column: pa.Array | pa.ChunkedArray, maps_as_pydicts: Any) -> list[Any]:
    try:
        values: list[Any] = column.to_pylist(maps_as_pydicts=maps_as_pydicts)
    except (ValueError, OverflowError):
        return [_readable(value, maps_as_pydicts) for value in column]
    return values


def _readable(value: pa.Scalar, maps_as_pydicts: Any) -> Any:
    with suppress(ValueError, OverflowError):
        return value.as_py(maps_as_pydicts=maps_as_pydicts)
    data_type, t = value.type, pa.types
    if t.is_dictionary(data_type):
        return _readable(value.dictionary[value.index.as_py()], maps_as_pydicts)
    if t.is_date(data_type):
        return str(np.datetime64(value.value // (86_400_000 if t.is_date64(data_type) else 1), "D"))
    if t.is_timestamp(data_type):
        return _time_text(value)
    if t.is_struct(data_type):
        return {field.name: _readable(value[number], maps_as_pydicts) for number, field in enumerate(data_type)}
    if t.is_map(data_type):
        keys, items = (_values(value.values.field(number), maps_as_pydicts) for number in (0, 1))
        pairs = zip(keys, items, strict=True)
        return dict(pairs) if maps_as_pydicts else list(pairs)
    if t.is_nested(data_type):
        return _values(value.values, maps_as_pydicts)
    return str(value.as_buffer().to_pybytes().decode(errors="backslashreplace"))


def _time_text(value: Any) -> str:
    second = _UNITS_PER_SECOND[value.type.unit]
    days, rest = divmod(value.value, 86_400 * second)
    clock = (datetime.min + timedelta(microseconds=rest * 1_000_000 // second)).time()
    return f"{np.datetime64(days, 'D')} {clock}{'+00:00' if value.type.tz else ''}"
