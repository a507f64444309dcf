"""Writes variants: of JSON texts, and of Arrow's values. See `volley.formats.variant`."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from volley.formats.variant import ARRAY, NULL, OBJECT, SHORT_TEXT, VERSION

__all__ = [
    *("DECIMALS", "Value", "array_of_values", "encoded", "metadata_of", "names_of", "object_of_values", "unscaled"),
    "variant_of_json",
]

_TRUE, _FALSE = b"\x04", b"\x08"
_INTEGERS = {1: 3, 2: 4, 4: 5, 8: 6}
DECIMALS = {4: 8, 8: 9, 16: 10}
"""The numbers of the types of decimals, by their size in bytes."""
_MOST_DIGITS = 38
_DOUBLE, _DATE, _INSTANT, _LOCAL, _FLOAT, _BYTES, _TEXT, _TIME, _INSTANT_NS, _LOCAL_NS, _UUID = 7, *range(11, 21)
_SHORTEST_LONG_TEXT = 64
_SORTED_NAMES = 16

Value = bytes | None
"""A value of a variant; None = there is none."""


def variant_of_json(text: str) -> tuple[bytes, bytes]:
    """Return the metadata and the value of a variant.

    Whole numbers are integers, others decimals if they have at most 38 digits and no exponent, as in Spark's
    ``parse_json``.

    Raises:
        ValueError: If it is not JSON, or an object has a name twice.
        RecursionError: If it is nested too deeply.

    Example:
        >>> from volley.formats.variant import json_text
        >>> json_text(*variant_of_json('{"b": 1.50, "a": [true, null]}'))
        '{"a":[true,null],"b":1.50}'
    """
    names = set[str]()

    def pairs(fields: list[tuple[str, Any]]) -> dict[str, Any]:
        known = dict(fields)
        if len(known) < len(fields):
            raise ValueError("an object has a name twice")
        names.update(known)
        return known

    parsed = json.loads(
        text, parse_float=_number, parse_int=_whole, parse_constant=_refuse_constant, object_pairs_hook=pairs
    )
    ordered = sorted(names, key=str.encode)
    ids = {name: number for number, name in enumerate(ordered)}
    return metadata_of(ordered), _of_json(parsed, ids)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no value of JSON")


def _of_json(value: Any, ids: Mapping[str, int]) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, dict):
        return object_of_values({name: _of_json(inner, ids) for name, inner in value.items()}, ids)
    if isinstance(value, list):
        return array_of_values([_of_json(inner, ids) for inner in value])
    return NULL if value is None else _TRUE if value else _FALSE


def _whole(text: str) -> bytes:
    # A longer one is a number of a size that no integer or decimal has.
    return _integer(int(text)) if len(text.lstrip("-")) <= _MOST_DIGITS else _number(text)


def _number(text: str) -> bytes:
    digits, point, fraction = text.lstrip("-").partition(".")
    significant = (digits + fraction).lstrip("0")
    is_decimal = (digits + fraction).isdecimal() and max(len(significant), len(fraction)) <= _MOST_DIGITS
    if not point or not is_decimal or (not significant and text.startswith("-")):
        value = float(text)
        if abs(value) == float("inf"):
            raise ValueError(f"{text} is beyond all numbers of 64 bits")
        return _head(_DOUBLE) + struct.pack("<d", value)
    return _decimal(int(digits + fraction) * (-1 if text.startswith("-") else 1), len(fraction))


def _integer(value: int) -> bytes:
    for size, kind in _INTEGERS.items():
        if -(1 << 8 * size - 1) <= value < 1 << 8 * size - 1:
            return _head(kind) + value.to_bytes(size, "little", signed=True)
    return _decimal(value, 0)


def _decimal(unscaled: int, scale: int) -> bytes:
    digits = max(len(str(abs(unscaled))), scale)
    size = 4 if digits <= 9 else 8 if digits <= 18 else 16
    return _head(DECIMALS[size]) + bytes([scale]) + unscaled.to_bytes(size, "little", signed=True)


def _text(text: str) -> bytes:
    encoded = text.encode()
    if len(encoded) < _SHORTEST_LONG_TEXT:
        return bytes([len(encoded) << 2 | SHORT_TEXT]) + encoded
    return _long(_TEXT, encoded)


def _long(kind: int, data: bytes) -> bytes:
    return _head(kind) + len(data).to_bytes(4, "little") + data


def _head(kind: int) -> bytes:
    return bytes([kind << 2])


def metadata_of(names: Sequence[str]) -> bytes:
    """Return the metadata of variants whose fields have these names, which are in the order of their UTF-8 bytes."""
    texts = [name.encode() for name in names]
    size = _width(max(sum(map(len, texts)), len(texts)))
    head = VERSION | _SORTED_NAMES | size - 1 << 6
    return bytes([head]) + len(texts).to_bytes(size, "little") + _offsets(texts, size) + b"".join(texts)


def object_of_values(values: Mapping[str, bytes], ids: Mapping[str, int]) -> bytes:
    """Return an object.

    Args:
        values: The values of its fields, by name.
        ids: The numbers of names in the metadata.
    """
    names = sorted(values, key=str.encode)
    numbers, inner = [ids[name] for name in names], [values[name] for name in names]
    id_size, size = _width(max(numbers, default=0)), _width(sum(map(len, inner)))
    is_large, count = _count(len(names))
    head = (is_large << 4 | id_size - 1 << 2 | size - 1) << 2 | OBJECT
    listed = b"".join(number.to_bytes(id_size, "little") for number in numbers)
    return bytes([head]) + count + listed + _offsets(inner, size) + b"".join(inner)


def array_of_values(values: Sequence[bytes]) -> bytes:
    """Return an array of values."""
    size = _width(sum(map(len, values)))
    is_large, count = _count(len(values))
    return bytes([(is_large << 2 | size - 1) << 2 | ARRAY]) + count + _offsets(values, size) + b"".join(values)


def _count(count: int) -> tuple[int, bytes]:
    return (0, bytes([count])) if count < 256 else (1, count.to_bytes(4, "little"))


def _width(number: int) -> int:
    return max(1, (number.bit_length() + 7) // 8)


def _offsets(parts: Iterable[bytes], size: int) -> bytes:
    offsets = [0]
    for part in parts:
        offsets.append(offsets[-1] + len(part))
    return b"".join(offset.to_bytes(size, "little") for offset in offsets)


def names_of(array: pa.Array) -> set[str]:
    """Return the names of fields in Arrow's values: of structs at every level, and the keys of maps."""
    if pa.types.is_struct(array.type):
        inner = (names_of(array.field(number)) for number in range(array.type.num_fields))
        return {field.name for field in array.type}.union(*inner)
    if pa.types.is_map(array.type):
        return {str(key) for key in array.keys.unique().to_pylist()} | names_of(array.items)
    return names_of(array.values) if pa.types.is_nested(array.type) else set()


def encoded(array: pa.Array, ids: Mapping[str, int]) -> list[Value]:
    """Return Arrow's values as values of variants, with their own types; None where they are null.

    Args:
        ids: The numbers of names in the metadata.

    Raises:
        ValueError: If a variant has no such type, or a map has a key twice.
    """
    data_type = array.type
    if isinstance(data_type, pa.BaseExtensionType):
        array = array.storage
    if pa.types.is_struct(array.type):
        return [value if valid else None for value, valid in zip(_objects(array, ids), _valid(array), strict=True)]
    if pa.types.is_map(array.type):
        return [None if fields is None else object_of_values(fields, ids) for fields in _maps(array, ids)]
    if pa.types.is_nested(array.type):
        return [None if items is None else array_of_values(items) for items in _lists(array, array.flatten(), ids)]
    write, plain = _writer(data_type)
    return [None if value is None else write(value) for value in plain(array).to_pylist()]


def _valid(array: pa.Array) -> list[bool]:
    valid: list[bool] = array.is_valid().to_pylist()
    return valid


def _objects(array: pa.StructArray, ids: Mapping[str, int]) -> Iterator[bytes]:
    columns = {field.name: encoded(array.field(number), ids) for number, field in enumerate(array.type)}
    for number in range(len(array)):
        yield object_of_values({name: column[number] or NULL for name, column in columns.items()}, ids)


def _maps(array: pa.MapArray, ids: Mapping[str, int]) -> Iterator[dict[str, bytes] | None]:
    entries = array.cast(pa.list_(pa.struct([array.type.key_field, array.type.item_field])))
    flat = entries.flatten()
    keys, values = flat.field(0).to_pylist(), encoded(flat.field(1), ids)
    pairs = [(str(key), value or NULL) for key, value in zip(keys, values, strict=True)]
    for part in _parts(entries, pairs):
        if part is not None and len(dict(part)) < len(part):
            raise ValueError("a map has a key twice")
        yield None if part is None else dict(part)


def _lists(array: pa.Array, flat: pa.Array, ids: Mapping[str, int]) -> Iterator[list[bytes] | None]:
    return _parts(array, [value or NULL for value in encoded(flat, ids)])


def _parts(array: pa.Array, items: Sequence[Any]) -> Iterator[list[Any] | None]:
    """Yield the items of each list; None for one that is null."""
    at = 0
    for length in array.value_lengths().to_pylist():
        yield None if length is None else list(items[at : at + length])
        at += length or 0


_Writer = tuple[Callable[[Any], bytes], Callable[[pa.Array], pa.Array]]


def _writer(data_type: pa.DataType) -> _Writer:
    """Return what writes a value of a type, and what prepares values for that."""
    t = pa.types
    if t.is_boolean(data_type):
        return (lambda value: _TRUE if value else _FALSE), _same
    if t.is_integer(data_type):
        return _integer, _same
    if t.is_floating(data_type):
        form, kind = ("<d", _DOUBLE) if data_type == pa.float64() else ("<f", _FLOAT)
        return (lambda value: _head(kind) + struct.pack(form, value)), _same
    if t.is_decimal(data_type):
        scale = data_type.scale
        return (lambda value: _decimal(unscaled(value, scale), scale)), _same
    if t.is_string(data_type) or t.is_large_string(data_type):
        return _text, _same
    if data_type == pa.uuid():
        return (lambda value: _head(_UUID) + value), _same
    if t.is_binary(data_type) or t.is_large_binary(data_type) or t.is_fixed_size_binary(data_type):
        return (lambda value: _long(_BYTES, value)), _same
    return _time_writer(data_type)


def _time_writer(data_type: pa.DataType) -> _Writer:
    t = pa.types
    if t.is_date32(data_type):
        return (lambda value: _head(_DATE) + struct.pack("<i", value)), lambda array: array.cast(pa.int32())
    if t.is_time64(data_type):
        return _of_long(_TIME), lambda array: array.cast(pa.time64("us")).cast(pa.int64())
    if t.is_timestamp(data_type):
        finer = data_type.unit == "ns"
        kind = (_INSTANT_NS if finer else _INSTANT) if data_type.tz else (_LOCAL_NS if finer else _LOCAL)
        unit = "ns" if finer else "us"
        return _of_long(kind), lambda array: array.cast(pa.timestamp(unit, data_type.tz)).cast(pa.int64())
    raise ValueError(f"a variant can't have a value of the type {data_type}")


def _of_long(kind: int) -> Callable[[int], bytes]:
    return lambda value: _head(kind) + struct.pack("<q", value)


def _same(array: pa.Array) -> pa.Array:
    return array


def unscaled(value: Any, scale: int) -> int:
    """Return a decimal times ten to the power of a scale."""
    sign, digits, exponent = value.as_tuple()
    number: int = int("".join(map(str, digits))) * 10 ** (exponent + scale)
    return -number if sign else number
