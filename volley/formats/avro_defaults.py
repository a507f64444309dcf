"""Turns defaults in Avro schemas, which are JSON, into the values that fastavro reads from bytes."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from fractions import Fraction
from math import floor
from typing import Any

__all__ = ["NUMBERS", "READ_AS", "converted", "in_nanoseconds", "logical"]

_DIGITS = Context(prec=1_000)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LOCAL_EPOCH = datetime(1970, 1, 1)
_MICROSECONDS = {"millis": Fraction(1_000), "micros": Fraction(1), "nanos": Fraction(1, 1_000)}
_KINDS = ("timestamp", "local-timestamp")
_WITH_NANOSECONDS = {f"{kind}-nanos": f"{kind}-volley" for kind in _KINDS}
_LOGICAL = {
    ("int", "date"),
    ("int", "time-millis"),
    ("long", "time-micros"),
    *(("long", f"{kind}-{unit}") for kind in _KINDS for unit in (*_MICROSECONDS, "volley")),
    ("bytes", "decimal"),
    ("fixed", "decimal"),
}

READ_AS = {
    **{f"{kind}-{unit}": f"volley-{unit}" for kind in _KINDS for unit in ("millis", "nanos")},
    **{f"{kind}-volley-{unit}": f"volley-{unit}-volley" for kind in _KINDS for unit in ("millis", "micros")},
    **{f"{kind}-{unit}": "" for kind in _KINDS for unit in ("micros", "volley", "volley-nanos", "volley-volley")},
    "date": "",
}
"""The names under which fastavro reads dates and timestamps as numbers, as columns have them; empty = as they are.

Its own readers make objects, which know no year above 9999, and take longer. The unit ``volley`` is that of
`in_nanoseconds`; behind it stands the unit of the values.
"""

NUMBERS: dict[str, Callable[..., int]] = {
    "volley-millis": lambda value, writer=None, reader=None: value * 1_000,
    "volley-nanos": lambda value, writer=None, reader=None: value // 1_000,
    "volley-millis-volley": lambda value, writer=None, reader=None: value * 1_000_000,
    "volley-micros-volley": lambda value, writer=None, reader=None: value * 1_000,
}
"""The functions by which fastavro reads these: as microseconds, rounded down, or as nanoseconds."""


def in_nanoseconds(text: str) -> str:
    """Return a schema, as JSON, whose timestamps with nanoseconds are read with all digits; others as they are.

    Example:
        >>> in_nanoseconds('{"type": "long", "logicalType": "timestamp-nanos"}')
        '{"type": "long", "logicalType": "timestamp-volley"}'
    """
    if not any(f'"{name}"' in text for name in _WITH_NANOSECONDS):
        return text
    return json.dumps(_renamed(json.loads(text)))


def _renamed(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_renamed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    # A default is no type, whatever names it has.
    parts = {key: part if key == "default" else _renamed(part) for key, part in schema.items()}
    name = schema.get("logicalType")
    return {**parts, "logicalType": _WITH_NANOSECONDS[name]} if name in _WITH_NANOSECONDS else parts


def logical(schema: Any) -> str | None:
    """Return the logical type of a schema; None if it has none, or one that Volley reads as its plain type.

    Example:
        >>> logical({"type": "long", "logicalType": "time-micros"}), logical({"type": "int", "logicalType": "decimal"})
        ('time-micros', None)
    """
    if not isinstance(schema, dict) or (schema["type"], schema.get("logicalType")) not in _LOGICAL:
        return None
    return None if schema["logicalType"] == "decimal" and "precision" not in schema else str(schema["logicalType"])


def converted(value: Any, schema: Any, names: Mapping[str, Any]) -> Any:
    """Return a field's default as a value.

    Args:
        value: The default, as JSON.
        schema: The field's type.

    Raises:
        ValueError: If it is no value of the type.
        TypeError, LookupError, OverflowError, AttributeError: Likewise.
    """
    schema = names.get(schema, schema) if isinstance(schema, str) else schema
    if isinstance(schema, list):
        return _of_union(value, schema, names)
    kind = logical(schema)
    if kind is not None:
        return _of_logical(kind, value, schema)
    match schema["type"] if isinstance(schema, dict) else schema:
        case "record":
            return {field["name"]: _of_field(value, field, names) for field in schema["fields"]}
        case "array":
            return [converted(item, schema["items"], names) for item in value]
        case "map":
            return {key: converted(item, schema["values"], names) for key, item in value.items()}
        case "enum" if value not in schema["symbols"]:
            raise ValueError(f"{value!r} is none of its symbols")
        case "bytes":
            return value.encode("latin-1")
        case "fixed":
            return _of_size(value.encode("latin-1"), schema["size"])
        case "float" | "double" as name:
            return _of_format(name[0], float(value))
        case "int" | "long" as name:
            return _of_format({"int": "i", "long": "q"}[name], value)
    return value


def _of_union(value: Any, members: list[Any], names: Mapping[str, Any]) -> Any:
    """Return a default of a union: that of the first type which it is a value of."""
    numbered = [(number, member) for number, member in enumerate(members) if member != "null"]
    if value is None or len(numbered) == 1:
        return None if value is None else converted(value, numbered[0][1], names)
    for number, member in numbered:
        try:
            inner = converted(value, member, names)
        except (ValueError, TypeError, LookupError, OverflowError, AttributeError):
            continue
        return {"tag": number, f"field{number}": inner}
    raise ValueError(f"{value!r} is of none of its types")


def _of_format(format: str, number: Any) -> Any:
    """Return a number that `struct` has room for; raise ValueError for another."""
    try:
        struct.pack(f"<{format}", number)
    except (struct.error, OverflowError) as error:
        raise ValueError(f"{number} is too large") from error
    return number


def _of_field(value: Mapping[str, Any], field: Mapping[str, Any], names: Mapping[str, Any]) -> Any:
    """Return the value of an inner record's field: a default may leave it out if it has one of its own."""
    name = field["name"]
    return converted(value[name] if name in value else field["default"], field["type"], names)


def _of_size(data: bytes, size: int) -> bytes:
    if len(data) != size:
        raise ValueError(f"it has {len(data)} bytes, not {size}")
    return data


def _of_logical(name: str, value: Any, schema: Mapping[str, Any]) -> Any:
    if name == "decimal":
        data = value.encode("latin-1")
        number = int.from_bytes(data if schema["type"] == "bytes" else _of_size(data, schema["size"]), signed=True)
        return Decimal(number).scaleb(-schema.get("scale", 0), _DIGITS)
    if name == "date":
        return date(1970, 1, 1) + timedelta(days=value)
    family, _, unit = name.rpartition("-")
    if unit == "volley":
        return _of_format("q", value)
    return _FAMILIES[family](timedelta(microseconds=floor(value * _MICROSECONDS[unit])))


def _time(since: timedelta) -> Any:
    if not timedelta(0) <= since < timedelta(days=1):
        raise ValueError(f"{since} is no time of a day")
    return (_LOCAL_EPOCH + since).time()


_FAMILIES: dict[str, Callable[[timedelta], Any]] = {
    "timestamp": _EPOCH.__add__,
    "local-timestamp": _LOCAL_EPOCH.__add__,
    "time": _time,
}
