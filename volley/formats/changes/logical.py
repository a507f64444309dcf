"""Turns values as they are written into those of a column: Debezium's logical types and those of Kafka Connect."""

from __future__ import annotations

import binascii
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from volley.columns.calendar import parsed
from volley.columns.exact import exact_cast
from volley.errors import SourceError
from volley.formats.changes.wire import PLAIN, Wire, is_bytes
from volley.types.arrow import is_any_list, type_name

__all__ = ["Values"]

_DAY_US = 86_400_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# The years 1 to 9999, which Iceberg's readers know.
_FIRST_DAY = (datetime(1, 1, 1, tzinfo=UTC) - _EPOCH).days
_LAST_DAY = (datetime(9999, 12, 31, tzinfo=UTC) - _EPOCH).days
_FIRST_US, _LAST_US = _FIRST_DAY * _DAY_US, (_LAST_DAY + 1) * _DAY_US - 1
_MILLIS, _MICROS, _NANOS = -1_000, 1, 1_000
_PER_US = {
    **{"Timestamp": _MILLIS, "MicroTimestamp": _MICROS, "NanoTimestamp": _NANOS},
    **{"Time": _MILLIS, "MicroTime": _MICROS, "NanoTime": _NANOS},
}
# Infinite times, and years that ISO 8601 writes with a sign.
_FAR = "(?i)^[+-]?inf(inity)?$|^[+-][0-9]+-|^[0-9]{5,}-"
# Dates of MySQL that are none as a whole or in part: 0000-00-00, 2026-02-00.
_NO_DATE = "^(0000-|[0-9]{4}-00-|[0-9]{4}-[0-9]{2}-00)"
_DAY_END = "^24:00|^23:59:60"
# How texts tell numbers that no decimal has: PostgreSQL's "NAN" too.
_NO_NUMBER = "(?i)^[+-]?(nan|inf|infinity)$"
# What NanoTimestamp has for infinite times: the ends of 64 bits.
_ENDS = pa.array([-(1 << 63), (1 << 63) - 1])
_BYTES_OF_DECIMAL = 16
_ERRORS = (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, ValueError, ArithmeticError)


@dataclass(frozen=True)
class Values:
    """Converts the values of columns.

    Args:
        nulls: True: values that Iceberg does not have become null; False: they are an error.
    """

    nulls: bool

    def of(self, name: str, values: pa.Array, wire: Wire, target: pa.DataType) -> pa.Array:
        """Return the values of a column in its type.

        Args:
            values: What was written: as JSON has it, or as Avro has it.

        Raises:
            SourceError: If a value does not fit; names the column.
        """
        if values.null_count == len(values):
            return pa.nulls(len(values), target)
        try:
            return exact_cast(self._converted(values, wire, target), target)
        except SourceError as error:
            raise error.within(f"column {name!r}") from error
        except _ERRORS as error:
            reason = str(error).partition("\n")[0]
            raise SourceError(f"column {name!r} does not fit {type_name(target)}: {reason}") from error

    def _converted(self, values: pa.Array, wire: Wire, target: pa.DataType) -> pa.Array:
        if wire.logical in _PER_US and pa.types.is_integer(values.type):
            return self._of_numbers(values, wire.logical, target)
        if convert := _CONVERSIONS.get(wire.logical):
            return convert(self, values, wire, target)
        if wire.kind == "array" and is_any_list(values.type) and pa.types.is_list(target):
            return self._list(values, wire, target)
        if wire.kind == "map" and pa.types.is_map(values.type) and pa.types.is_map(target):
            return self._map(values, wire, target)
        if wire.kind == "struct" and pa.types.is_struct(values.type) and pa.types.is_struct(target):
            return self._struct(values, wire, target)
        if wire.kind == "bytes":
            return _of_base64(self, values, wire, target)
        if wire.kind == "string" and not wire.logical and is_bytes(target):
            raise SourceError(
                "bytes are written as texts in several ways, and the messages' schema does not tell which",
                hint='wire: "base64", "base64url", "hex", or "plain" (the bytes of the text itself)',
            )
        return self._plain(values, target)

    def _plain(self, values: pa.Array, target: pa.DataType) -> pa.Array:
        """Return what JSON has in its own way."""
        if pa.types.is_decimal(target):
            return self._numbers(values)
        if not pa.types.is_string(values.type):
            return values
        if target == pa.uuid():
            return _uuids(values)
        if pa.types.is_timestamp(target):
            return self._moments(values, target)
        if pa.types.is_time(target):
            return self._clock(values)
        return self._iso_days(values, PLAIN, target)

    def _numbers(self, values: pa.Array) -> pa.Array:
        """Return numbers, or texts of numbers, that decimals may have."""
        if pa.types.is_string(values.type):
            fits = pc.invert(pc.match_substring_regex(values, _NO_NUMBER))
        elif pa.types.is_floating(values.type):
            fits = pc.is_finite(values)
        else:
            return values
        return self._fit(values, fits, "no number of a decimal")

    def _list(self, values: pa.Array, wire: Wire, target: pa.DataType) -> pa.Array:
        items = exact_cast(self._converted(values.values, wire.item, target.value_type), target.value_type)
        return pa.ListArray.from_arrays(_offsets(values), items, mask=values.is_null() if values.null_count else None)

    def _map(self, values: pa.Array, wire: Wire, target: pa.DataType) -> pa.Array:
        items = exact_cast(self._converted(values.items, wire.item, target.item_type), target.item_type)
        return pa.MapArray.from_arrays(
            _offsets(values), values.keys, items, mask=values.is_null() if values.null_count else None
        )

    def _struct(self, values: pa.Array, wire: Wire, target: pa.DataType) -> pa.Array:
        written = dict(zip([part.name for part in values.type], values.flatten(), strict=True))
        columns = [
            exact_cast(self._converted(written[part.name], wire.fields.get(part.name, PLAIN), part.type), part.type)
            if part.name in written
            else pa.nulls(len(values), part.type)
            for part in target
        ]
        return pa.StructArray.from_arrays(columns, fields=list(target), mask=values.is_null())

    def _fit(self, values: pa.Array, fits: pa.Array, what: str) -> pa.Array:
        """Return values of which those that don't fit are null.

        Raises:
            SourceError: If there is one, and it must not be null.
        """
        fits = fits.fill_null(True)
        if pc.all(fits).as_py() is not False:
            return values
        if not self.nulls:
            wrong = values.filter(pc.invert(fits))[0].as_py()
            raise SourceError(
                f"{str(wrong)[:100]} is {what}, which Iceberg does not have",
                hint='unrepresentable="null" writes a null',
            )
        return pc.if_else(fits, values, pa.scalar(None, values.type))

    def _of_numbers(self, values: pa.Array, logical: str, target: pa.DataType) -> pa.Array:
        is_time, numbers = logical.endswith("Time"), values.cast(pa.int64())
        scale = _PER_US[logical]
        if logical == "NanoTimestamp":
            numbers = self._fit(numbers, pc.invert(pc.is_in(numbers, _ENDS)), "an infinite time")
            if pa.types.is_timestamp(target) and target.unit == "ns":
                return numbers.cast(target)
        limit = 1 if scale > 0 else -scale
        if not is_time:
            fits = _between(numbers, _scaled(_FIRST_US, scale, limit), _scaled(_LAST_US, scale, limit))
            numbers = self._fit(numbers, fits, "a time before year 1 or after 9999")
        micros = pc.multiply_checked(numbers, limit) if scale < 0 else _floor(numbers, scale)
        if pa.types.is_integer(target):
            return micros
        if is_time:
            micros = self._fit(micros, _between(micros, 0, _DAY_US - 1), "no time of a day")
            return micros.cast(pa.time64("us"))
        return micros.cast(pa.timestamp("us"))

    def _days(self, values: pa.Array, wire: Wire, target: pa.DataType) -> pa.Array:
        if not pa.types.is_integer(values.type) or pa.types.is_integer(target):
            return values
        days = self._fit(values, _between(values, _FIRST_DAY, _LAST_DAY), "a date before year 1 or after 9999")
        return days.cast(pa.int32()).cast(pa.date32())

    def _zoned(self, values: pa.Array, wire: Wire, target: pa.DataType) -> pa.Array:
        return self._moments(values, target) if pa.types.is_timestamp(target) else values

    def _iso_moments(self, values: pa.Array, wire: Wire, target: pa.DataType) -> pa.Array:
        return (
            self._moments(_without_zone(values), pa.timestamp(target.unit)) if pa.types.is_timestamp(target) else values
        )

    def _iso_days(self, values: pa.Array, wire: Wire, target: pa.DataType) -> pa.Array:
        if not pa.types.is_date(target):
            return values
        return self._dates(_without_zone(values), "a date before year 1 or after 9999")

    def _iso_times(self, values: pa.Array, wire: Wire, target: pa.DataType) -> pa.Array:
        return self._clock(_without_zone(values)) if pa.types.is_time(target) else values

    def _moments(self, texts: pa.Array, target: pa.DataType) -> pa.Array:
        texts = self._dates(texts, "a time before year 1 or after 9999")
        has_zone = pc.any(pc.match_substring_regex(texts, "Z$|[T ].*[+-][0-9]{2}(:?[0-9]{2})?$")).as_py()
        moments = parsed(texts, pa.timestamp(target.unit, "UTC" if has_zone else None))
        return moments.cast(pa.int64()).cast(pa.timestamp(target.unit, target.tz))

    def _dates(self, texts: pa.Array, what: str) -> pa.Array:
        texts = self._fit(texts, pc.invert(pc.match_substring_regex(texts, _FAR)), what)
        return self._fit(texts, pc.invert(pc.match_substring_regex(texts, _NO_DATE)), "no date")

    def _clock(self, texts: pa.Array) -> pa.Array:
        texts = self._fit(texts, pc.invert(pc.match_substring_regex(texts, _DAY_END)), "no time of a day")
        return parsed(pc.binary_join_element_wise("1970-01-01T", texts, ""), pa.timestamp("us")).cast(pa.time64("us"))


def _scaled(micros: int, scale: int, limit: int) -> int:
    """Return a number of microseconds in the unit of a logical type, within 64 bits."""
    return max(-(1 << 63), min((1 << 63) - 1, micros // limit if scale < 0 else micros * scale))


def _between(values: pa.Array, first: int, last: int) -> pa.Array:
    return pc.and_(pc.greater_equal(values, first), pc.less_equal(values, last))


def _floor(numbers: pa.Array, divisor: int) -> pa.Array:
    if divisor == 1:
        return numbers
    cut = pc.divide(numbers, divisor)
    return pc.subtract(cut, pc.greater(pc.multiply(cut, divisor), numbers).cast(pa.int64()))


def _without_zone(texts: pa.Array) -> pa.Array:
    """Return texts of `IsoTimestamp` and the like without their Z, which is no zone: the columns have none."""
    return pc.replace_substring_regex(texts, pattern="Z$", replacement="")


def _offsets(values: pa.Array) -> pa.Array:
    return values.offsets.cast(pa.int32())


def _bytes(values: pa.Array, decode: Callable[[Any], bytes]) -> pa.Array:
    if pa.types.is_binary(values.type):
        return values
    return pa.array([None if text is None else decode(text) for text in values.to_pylist()], pa.binary())


def _uuids(texts: pa.Array) -> pa.Array:
    digits = _bytes(pc.replace_substring(texts, pattern="-", replacement=""), bytes.fromhex)
    return pa.ExtensionArray.from_storage(pa.uuid(), digits.cast(pa.binary(16)))


def _from_base64(text: str) -> bytes:
    return binascii.a2b_base64(text, strict_mode=True)


def _from_base64url(text: str) -> bytes:
    return _from_base64(text.replace("-", "+").replace("_", "/") + "=" * (-len(text) % 4))


def _of_base64(values: Values, array: pa.Array, wire: Wire, target: pa.DataType) -> pa.Array:
    decoded = _bytes(array, _from_base64url if wire.logical == "base64url" else _from_base64)
    return _padded(decoded, target)


def _of_hex(values: Values, array: pa.Array, wire: Wire, target: pa.DataType) -> pa.Array:
    return _padded(_bytes(array, bytes.fromhex), target)


def _padded(values: pa.Array, target: pa.DataType) -> pa.Array:
    return values.cast(target) if pa.types.is_fixed_size_binary(target) else values


def _bits(values: Values, array: pa.Array, wire: Wire, target: pa.DataType) -> pa.Array:
    """Return bits, which are little-endian bytes, as bytes or as a text of zeros and ones, the first bit last."""
    little = _bytes(array, _from_base64)
    if not pa.types.is_string(target):
        return little
    count = int(wire.parameters.get("length", 0))
    count = count if count < 1 << 20 else 0  # varbit without a length has the largest number

    def text(value: bytes) -> str:
        digits = f"{int.from_bytes(value, 'little'):b}"
        return digits.zfill(count or 8 * len(value))

    return pa.array([None if value is None else text(value) for value in little.to_pylist()], pa.string())


def _decimals(values: Values, array: pa.Array, wire: Wire, target: pa.DataType) -> pa.Array:
    if pa.types.is_decimal(array.type):
        return array
    scale = int(wire.parameters.get("scale", target.scale if pa.types.is_decimal(target) else 0))
    raw = _bytes(array, _from_base64)
    longest = pc.max(pc.binary_length(raw)).as_py() or 0
    if not 0 <= scale <= 38 or longest >= _BYTES_OF_DECIMAL:
        return _long_decimals(raw, scale, target)
    return _decimal_array(raw, scale)


def _decimal_array(raw: pa.Array, scale: int) -> pa.Array:
    """Return big-endian numbers of less than 16 bytes as decimals, without a Python number for each."""
    chunks = [value or b"\0" for value in raw.to_pylist()]
    lengths = np.fromiter(map(len, chunks), np.int64, len(chunks))
    data = np.frombuffer(b"".join(chunks), np.uint8)
    starts = np.cumsum(lengths) - lengths
    rows = np.repeat(np.arange(len(chunks)), lengths)
    words = np.where(data[starts] > 127, 255, 0).astype(np.uint8)[:, None].repeat(_BYTES_OF_DECIMAL, axis=1)
    # The last byte of a number is the first one of Arrow's.
    words[rows, (lengths[rows] - 1) - (np.arange(len(data)) - starts[rows])] = data
    validity = None if not raw.null_count else pc.is_valid(raw).buffers()[1]
    buffers = [validity, pa.py_buffer(np.ascontiguousarray(words))]
    return pa.Array.from_buffers(pa.decimal128(38, scale), len(chunks), buffers)


def _long_decimals(raw: pa.Array, scale: int, target: pa.DataType) -> pa.Array:
    """Return numbers of any size: as texts, or, if they must be decimals, one by one."""
    numbers = [None if value is None else _plain_decimal(value, scale) for value in raw.to_pylist()]
    return pa.array(numbers, pa.string())


def _plain_decimal(value: bytes, scale: int) -> str:
    digits = int.from_bytes(value, "big", signed=True)
    return f"{Decimal((int(digits < 0), tuple(map(int, str(abs(digits)))), -scale)):f}"


def _variable(values: Values, array: pa.Array, wire: Wire, target: pa.DataType) -> pa.Array:
    if not pa.types.is_struct(array.type):
        return array
    scales, raw = array.field("scale"), _bytes(array.field("value"), _from_base64)
    pairs = zip(pc.if_else(array.is_valid(), scales, None).to_pylist(), raw.to_pylist(), strict=True)
    texts = [None if scale is None or value is None else _plain_decimal(value, scale) for scale, value in pairs]
    return pa.array(texts, pa.string())


def _unsigned(values: Values, array: pa.Array, wire: Wire, target: pa.DataType) -> pa.Array:
    numbers = array.cast(pa.int64())
    wide, wrapped = numbers.cast(pa.decimal128(21, 0)), pa.scalar(Decimal(1 << 64), pa.decimal128(21, 0))
    return pc.if_else(pc.less(numbers, 0), pc.add(wide, wrapped), wide.cast(pa.decimal128(22, 0)))


def _unescaped(values: Values, array: pa.Array, wire: Wire, target: pa.DataType) -> pa.Array:
    """Return members of enums and sets: a comma in one is escaped where it is streamed, not in a snapshot."""
    return pc.replace_substring(array, pattern="\\,", replacement=",") if pa.types.is_string(array.type) else array


def _geometry(values: Values, array: pa.Array, wire: Wire, target: pa.DataType) -> pa.Array:
    if not pa.types.is_binary(target):
        return values._struct(array, wire, target) if pa.types.is_struct(target) else array
    inner = array.field("wkb")
    return pc.if_else(array.is_valid(), _bytes(inner, _from_base64), pa.scalar(None, pa.binary()))


def _truths(texts: pa.Array) -> pa.Array:
    lower = pc.utf8_lower(texts)
    is_true, is_false = (pc.is_in(lower, pa.array(names)) for names in (["1", "true", "t"], ["0", "false", "f"]))
    others = texts.filter(pc.invert(pc.or_(is_true, pc.or_(is_false, texts.is_null()))))
    if len(others):
        raise pa.ArrowInvalid(f"{others[0].as_py()[:40]!r} is neither 0 nor 1")
    return pc.if_else(texts.is_valid(), is_true, pa.scalar(None, pa.bool_()))


def _of_characters(values: Values, array: pa.Array, wire: Wire, target: pa.DataType) -> pa.Array:
    return _padded(_bytes(array, lambda text: bytes(text.encode("latin-1"))), target)


def _texts(values: Values, array: pa.Array, wire: Wire, target: pa.DataType) -> pa.Array:
    """Return what was written as JSON strings whatever the type is."""
    if pa.types.is_boolean(target):
        return _truths(array)
    if pa.types.is_list(target) or pa.types.is_struct(target):
        return pa.array([None if text is None else json.loads(text) for text in array.to_pylist()], target)
    return values._plain(array, target)


_CONVERSIONS: dict[str, Callable[[Values, pa.Array, Wire, pa.DataType], pa.Array]] = {
    "Date": Values._days,
    "ZonedTimestamp": Values._zoned,
    "IsoTimestamp": Values._iso_moments,
    "IsoDate": Values._iso_days,
    "IsoTime": Values._iso_times,
    "Decimal": _decimals,
    "VariableScaleDecimal": _variable,
    "Bits": _bits,
    "base64": _of_base64,
    "base64url": _of_base64,
    "hex": _of_hex,
    "unsigned": _unsigned,
    "Enum": _unescaped,
    "EnumSet": _unescaped,
    "Geometry": _geometry,
    "Geography": _geometry,
    "Point": _geometry,
    "text": _texts,
    "characters": _of_characters,
}
