"""Values out of JSON texts."""

from __future__ import annotations

import json
from typing import Any, NoReturn

import pyarrow as pa

from volley.columns.compiled import Datum
from volley.columns.functions.distinct import of_distinct
from volley.plan.json_paths import steps_of

__all__ = ["json_value"]


class _Number(str):
    """A number as it is written."""


def _no_number(text: str) -> NoReturn:
    raise ValueError(text)


# NaN and Infinity are no JSON, but Python's reader takes them.
_AS_WRITTEN = json.JSONDecoder(parse_int=_Number, parse_float=_Number, parse_constant=_no_number)
_ENCODER = json.JSONEncoder(ensure_ascii=False)


def json_value(values: Datum, path: str) -> Datum:
    """Return the values that a path names in JSON texts, as texts; null where there is none, or no JSON."""
    steps = steps_of(path)
    return of_distinct(values, lambda text: _value(text, steps), pa.string())


def _value(text: str, steps: tuple[str | int, ...]) -> str | None:
    try:
        value = _walk(_AS_WRITTEN.decode(text), steps)
        if value is None:
            return None
        # A half of a surrogate pair is JSON, but no text: it can't be encoded.
        return (value if isinstance(value, str) else _json(value)).encode().decode()
    except (ValueError, RecursionError):
        return None


def _json(value: Any) -> str:
    """Return a value as JSON, its numbers as they are written."""
    if isinstance(value, _Number):
        return value
    if isinstance(value, list):
        return f"[{','.join(map(_json, value))}]"
    if isinstance(value, dict):
        return f"{{{','.join(map('{}:{}'.format, map(_json, value), map(_json, value.values())))}}}"
    return _ENCODER.encode(value)


def _walk(value: Any, steps: tuple[str | int, ...]) -> Any:
    for step in steps:
        if isinstance(step, str) and isinstance(value, dict):
            value = value.get(step)
        elif isinstance(step, int) and isinstance(value, list) and step < len(value):
            value = value[step]
        else:
            return None
    return value
