"""Values in Arrow: from the bytes of the binary log, a whole column at a time, and from a load."""

from __future__ import annotations

import ipaddress
import uuid
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from volley.capture.changes import Numbers
from volley.columns.decimals import decimals_of
from volley.connectors.mariadb.binaryjson import decimal_groups, json_text
from volley.connectors.mariadb.tables import python_charset
from volley.connectors.mariadb.types import TableColumn, unfit
from volley.errors import SourceError
from volley.formats.cursors import spans

__all__ = ["Fields", "loaded", "set_bytes"]

_DAY = np.int64(86_400_000_000)
_WORD = 8
_MICROSECOND = timedelta(microseconds=1)


class Fields:
    """The bytes of one column of several rows, within a buffer.

    Args:
        data: The buffer, as an array of bytes.
        starts: For each row, where its value begins.
        ends: For each row, where it ends.
        missing: For each row, whether it has no value.
    """

    def __init__(self, data: Numbers, starts: Numbers, ends: Numbers, missing: Numbers) -> None:
        self.data = data
        self.starts = np.where(missing, 0, starts)
        self.sizes = np.where(missing, 0, ends - starts)
        self.missing = missing

    def values(self, column: TableColumn, nulls: bool) -> pa.Array:
        """Return the values of a column.

        Args:
            nulls: True: a value that Arrow does not have becomes null; False: it is an error.

        Raises:
            SourceError: If a value has no counterpart.
        """
        if len(self.starts) == 0 or self.missing.all():
            return pa.nulls(len(self.starts), column.data_type)
        if column.integer_bytes:
            return self._integers(column)
        if column.type in ("char", "varchar", "text"):
            return _texts(self._binary(), column.charset)
        if column.type in ("varbinary", "blob", "geometry"):
            return self._binary()
        return _READERS[column.type](self, column, nulls)

    def bytes_of(self, size: int) -> Numbers:
        """Return some bytes of each value; those of missing ones mean nothing."""
        last = max(len(self.data) - 1, 0)
        return self.data[np.minimum(self.starts[:, None] + np.arange(size), last)]

    def little(self, size: int, offset: int = 0) -> Numbers:
        """Return the little-endian numbers without sign of some bytes, at most 8."""
        # A word of eight bytes is read for each, the last one before the end of the data.
        data = self.data if len(self.data) >= _WORD else np.pad(self.data, (0, _WORD - len(self.data)))
        words = np.ndarray((len(data) - _WORD + 1,), "<u8", np.ascontiguousarray(data), strides=(1,))
        at = self.starts + offset
        read = np.minimum(at, len(words) - 1)
        unused = np.uint64(8 * (_WORD - size))
        return np.asarray(words[read] >> (8 * (at - read)).astype(np.uint64) << unused >> unused)

    def big(self, size: int, offset: int = 0) -> Numbers:
        """Return the big-endian numbers without sign of some bytes, fewer than 8."""
        if not size:
            return np.zeros(len(self.starts), np.int64)
        return np.asarray((self.little(size, offset).byteswap() >> np.uint64(8 * (_WORD - size))).astype(np.int64))

    def array(self, values: Numbers, data_type: pa.DataType) -> pa.Array:
        """Return numbers as an array, with the nulls of the rows."""
        return pa.array(values, mask=self.missing).cast(data_type)

    def _integers(self, column: TableColumn) -> pa.Array:
        size = column.integer_bytes
        numbers = self.little(size)
        if not column.unsigned:
            shift = np.uint64(64 - 8 * size)
            numbers = (numbers << shift).view(np.int64) >> np.int64(shift)
        if column.data_type == pa.decimal128(20, 0):
            words = np.zeros((len(numbers), 2), np.uint64)
            words[:, 0] = numbers
            return self._decimals(words, column.data_type)
        return self.array(numbers, column.data_type)

    def _decimals(self, words: Numbers, data_type: pa.DataType) -> pa.Array:
        """Return decimals of their little-endian words of 64 bits."""
        valid = pa.array(~self.missing)
        array = pa.Array.from_buffers(data_type, len(words), [None, pa.py_buffer(np.ascontiguousarray(words))])
        return pc.if_else(valid, array, pa.scalar(None, data_type))

    def _binary(self) -> pa.Array:
        """Return the values as they are."""
        # Those that are missing take no bytes behind the values before them.
        begin = np.maximum.accumulate(self.starts)
        return spans(self.data, begin, begin + self.sizes, self.missing)

    def floats(self, column: TableColumn, nulls: bool) -> pa.Array:
        size = 4 if column.type == "float" else 8
        return self.array(np.ascontiguousarray(self.bytes_of(size)).view(f"<f{size}")[:, 0], column.data_type)

    def years(self, column: TableColumn, nulls: bool) -> pa.Array:
        years = self.little(1).astype(np.int64)
        return self.array(np.where(years == 0, 0, years + 1900), column.data_type)

    def decimals(self, column: TableColumn, nulls: bool) -> pa.Array:
        """Return decimals of groups of nine digits in big-endian bytes, negative ones inverted."""
        parts = decimal_groups(column.length, column.scale)
        size = sum(size for size, _ in parts)
        data = self.bytes_of(size).copy()
        negative = data[:, 0] < 0x80
        data[:, 0] ^= 0x80
        data[negative] ^= 0xFF
        # Python's whole numbers where 18 digits are not enough.
        total = np.zeros(len(data), np.int64 if column.length <= 18 else object)
        at = 0
        for width, digits in parts:
            group = np.zeros(len(data), np.int64)
            for byte in range(width):
                group = group << 8 | data[:, at + byte]
            total, at = total * 10**digits + group, at + width
        total = np.where(negative, -total, total)
        if column.length > 38:
            return _printed(total, column.scale, self.missing)
        if column.length <= 18:
            return self._decimals(np.stack([total, total >> 63], axis=1), column.data_type)
        words = b"".join(
            (0 if gone else int(value)).to_bytes(16, "little", signed=True)
            for value, gone in zip(total, self.missing, strict=True)
        )
        return self._decimals(np.frombuffer(words, np.int64).reshape(-1, 2), column.data_type)

    def bits(self, column: TableColumn, nulls: bool) -> pa.Array:
        return pc.equal(self.array(self.little(1), pa.int64()), 1) if column.length == 1 else self._binary()

    def padded(self, column: TableColumn, nulls: bool) -> pa.Array:
        """Return binary values of a fixed length, without whose last zeros they are logged."""
        filled = [None if value is None else value.ljust(column.length, b"\0") for value in self._binary().to_pylist()]
        return pa.array(filled, pa.binary())

    def dates(self, column: TableColumn, nulls: bool) -> pa.Array:
        packed = self.little(3).astype(np.int64)
        days, fits = _days(packed >> 9, packed >> 5 & 15, packed & 31)
        zero = lambda row: f"{packed[row] >> 9:04}-{packed[row] >> 5 & 15:02}-{packed[row] & 31:02}"  # noqa: E731
        return self._fitting(column, nulls, days.astype(np.int32), fits, zero)

    def datetimes(self, column: TableColumn, nulls: bool) -> pa.Array:
        packed = self.big(5) - 0x8000000000
        months, day, time = packed >> 22, packed >> 17 & 31, packed & 0x1FFFF
        days, fits = _days(months // 13, months % 13, day)
        seconds = (time >> 12) * 3600 + (time >> 6 & 63) * 60 + (time & 63)
        moments = days * _DAY + seconds * 1_000_000 + self._fraction(5, column.length)
        zero = lambda row: f"{months[row] // 13:04}-{months[row] % 13:02}-{day[row]:02}"  # noqa: E731
        return self._fitting(column, nulls, moments, fits, zero)

    def timestamps(self, column: TableColumn, nulls: bool) -> pa.Array:
        seconds = self.big(4)
        moments = seconds * 1_000_000 + self._fraction(4, column.length)
        return self._fitting(column, nulls, moments, moments != 0, lambda row: "0000-00-00 00:00:00")

    def durations(self, column: TableColumn, nulls: bool) -> pa.Array:
        width = (column.length + 1) // 2
        packed = self.big(3 + width) - (0x800000 << 8 * width)
        size = np.abs(packed)
        whole, fraction = size >> 8 * width, (size & ((1 << 8 * width) - 1)) * 10 ** (6 - 2 * width)
        seconds = (whole >> 12 & 0x3FF) * 3600 + (whole >> 6 & 63) * 60 + (whole & 63)
        return self.array(np.sign(packed) * (seconds * 1_000_000 + fraction), column.data_type)

    def _fraction(self, offset: int, digits: int) -> Numbers:
        width = (digits + 1) // 2
        return np.asarray(self.big(width, offset) * 10 ** (6 - 2 * width))

    def _fitting(
        self, column: TableColumn, nulls: bool, values: Numbers, fits: Numbers, shown: Callable[[int], str]
    ) -> pa.Array:
        wrong = ~fits & ~self.missing
        if wrong.any() and not nulls:
            raise unfit(column, shown(int(np.flatnonzero(wrong)[0])))
        return pa.array(values, mask=self.missing | wrong).cast(column.data_type)

    def enums(self, column: TableColumn, nulls: bool) -> pa.Array:
        # An invalid value is the number 0, and prints as an empty text.
        labels = pa.array(["", *column.labels])
        return labels.take(
            pa.array(self.little(1 if len(column.labels) < 256 else 2).astype(np.int64), mask=self.missing)
        )

    def sets(self, column: TableColumn, nulls: bool) -> pa.Array:
        numbers = self.little(set_bytes(len(column.labels)))
        distinct, places = np.unique(numbers, return_inverse=True)
        texts = pa.array(
            [
                ",".join(label for bit, label in enumerate(column.labels) if int(number) >> bit & 1)
                for number in distinct
            ]
        )
        return texts.take(pa.array(places, mask=self.missing))

    def documents(self, column: TableColumn, nulls: bool) -> pa.Array:
        """Return the texts of MySQL's JSON values."""
        values = self._binary().to_pylist()
        return pa.array([None if value is None else json_text(value) for value in values], pa.string())

    def vectors(self, column: TableColumn, nulls: bool) -> pa.Array:
        return _vectors(self._binary().to_pylist(), column)

    def uuids(self, column: TableColumn, nulls: bool) -> pa.Array:
        return self._named(16, lambda value: str(uuid.UUID(bytes=value)))

    def addresses(self, column: TableColumn, nulls: bool) -> pa.Array:
        if column.type == "inet4":
            return self._named(4, lambda value: str(ipaddress.IPv4Address(value)))
        return self._named(16, _inet6)

    def _named(self, size: int, shown: Callable[[bytes], str]) -> pa.Array:
        values = self._binary().to_pylist()
        return pa.array([None if value is None else shown(value.ljust(size, b"\0")) for value in values], pa.string())


def _inet6(value: bytes) -> str:
    """Return an address as MariaDB prints it: one of IPv4 that is mapped or compatible has its dots."""
    address = ipaddress.IPv6Address(value)
    for prefix in (bytes(10) + b"\xff\xff", bytes(12)):
        if value.startswith(prefix) and value[12:14] != b"\0\0":
            return f"{'::ffff:' if prefix[-1] else '::'}{ipaddress.IPv4Address(value[12:])}"
    return str(address)


_READERS: dict[str, Callable[[Fields, TableColumn, bool], pa.Array]] = {
    **{"float": Fields.floats, "double": Fields.floats, "decimal": Fields.decimals, "bit": Fields.bits},
    **{"binary": Fields.padded, "date": Fields.dates, "datetime": Fields.datetimes, "timestamp": Fields.timestamps},
    **{"time": Fields.durations, "year": Fields.years, "enum": Fields.enums, "set": Fields.sets},
    **{"json": Fields.documents, "vector": Fields.vectors},
    **{"uuid": Fields.uuids, "inet4": Fields.addresses, "inet6": Fields.addresses},
}


def set_bytes(labels: int) -> int:
    """Return the bytes of a set of so many labels."""
    size = (labels + 7) // 8
    return 8 if size > 4 else size


def _days(years: Numbers, months: Numbers, days: Numbers) -> tuple[Numbers, Numbers]:
    """Return the days since 1970 of dates, and which are dates."""
    fits = (years > 0) & (months > 0) & (days > 0)
    month = ((years - 1970) * 12 + np.where(fits, months, 1) - 1).astype("M8[M]")
    since = month.astype("M8[D]") + (days - 1).astype("m8[D]")
    fits &= since.astype("M8[M]") == month
    return since.astype(np.int64), fits


def _vectors(values: Sequence[bytes | None], column: TableColumn) -> pa.Array:
    lists = [None if value is None else np.frombuffer(value, "<f4") for value in values]
    return pa.array(lists, column.data_type)


def _printed(numbers: Numbers, scale: int, missing: Numbers) -> pa.Array:
    texts = []
    for number, gone in zip(numbers, missing, strict=True):
        digits = str(abs(int(number))).rjust(scale + 1, "0")
        text = f"{digits[:-scale]}.{digits[-scale:]}" if scale else digits
        texts.append(None if gone else f"-{text}" if number < 0 else text)
    return pa.array(texts, pa.string())


def _texts(values: pa.Array, charset: str) -> pa.Array:
    """Return the texts of bytes in a character set."""
    codec = python_charset(charset)
    try:
        if codec in ("utf_8", "ascii"):
            return values.cast(pa.string())
        decode = _latin1 if codec == "cp1252" else lambda value: str(value, codec)
        return pa.array([None if value is None else decode(value) for value in values.to_pylist()], pa.string())
    except (pa.ArrowInvalid, UnicodeDecodeError) as error:
        raise SourceError(f"a text is not valid in its character set {charset}: {error}") from error


def _latin1(value: bytes) -> str:
    """Return a text in MariaDB's latin1: that of Windows, whose five holes are control characters."""
    try:
        return value.decode("cp1252")
    except UnicodeDecodeError:
        return "".join(bytes([byte]).decode("cp1252", "ignore") or chr(byte) for byte in value)


def loaded(column: TableColumn, values: Sequence[Any], nulls: bool) -> pa.Array:
    """Return the values of a column that a load has read by `TableColumn.selected`, as PyMySQL returns them.

    Raises:
        SourceError: If a value has no counterpart.
    """
    data_type = column.data_type
    if column.type in ("date", "datetime", "timestamp"):
        return _loaded_times(column, values, nulls)
    if column.type == "bit" and column.length == 1:
        return pa.array([None if value is None else bool(value) for value in values], data_type)
    if pa.types.is_decimal(data_type):
        return decimals_of(
            pa.array([None if value is None else str(value) for value in values], pa.string()), data_type
        )
    if column.type == "decimal":
        return pa.array([None if value is None else f"{value:f}" for value in values], pa.string())
    if column.type == "vector":
        return _vectors(values, column)
    if column.type == "time":
        return pa.array([None if value is None else value // _MICROSECOND for value in values], data_type)
    if pa.types.is_binary(data_type):
        return pa.array([None if value is None else bytes(value) for value in values], data_type)
    if column.type == "float":
        return pa.array(values, pa.float64()).cast(data_type)
    return pa.array(values, data_type)


def _loaded_times(column: TableColumn, values: Sequence[str | None], nulls: bool) -> pa.Array:
    texts = pa.array(values, pa.string())
    naive = pa.timestamp("us") if column.type != "date" else pa.date32()
    try:
        moments = texts.cast(naive)
        if column.type != "date" and not nulls:
            _check_years(column, texts)
        return moments.cast(column.data_type) if column.type != "timestamp" else pc.assume_timezone(moments, "UTC")
    except pa.ArrowInvalid:
        fitting = [value if _fits(value, naive) else None for value in values]
    for value, other in zip(values, fitting, strict=True):
        if value is not None and other is None and not nulls:
            raise unfit(column, value)
    return _loaded_times(column, fitting, True)


def _check_years(column: TableColumn, texts: pa.Array) -> None:
    wrong = texts.filter(pc.starts_with(texts, "0000-"))
    if len(wrong):
        raise unfit(column, wrong[0].as_py())


def _fits(value: str | None, data_type: pa.DataType) -> bool:
    if value is None or value.startswith("0000-"):
        return False
    try:
        pa.array([value]).cast(data_type)
    except pa.ArrowInvalid:
        return False
    return True
