"""Reads the good ones of many JSON objects into columns with msgspec, and tells which others are to be looked at.

It does so in a pass at the speed of Arrow's reader, which stops at the first bad object. msgspec refuses what Arrow
refuses, and more: fields without a column, names of infinities. What it lets pass is found here: a name twice, since a
text then has more quotes than its names and strings account for, and a negative zero without a point, which is no
double for it. Types that it has not, such as decimals, are Arrow's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import compress
from operator import attrgetter, is_, not_
from typing import Annotated, Any, TypeAlias, TypeVar

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import UNSET, Struct, UnsetType

from volley.errors import SourceError

__all__ = ["ObjectReader", "reader_of"]

# Objects of so many bytes, and what is made of them, stay in the cache of the processor.
_PIECE = 256 << 10
_MINUS_ZERO = re.compile(rb"-0[ \t\r\n,\]}]")
_QUOTE = ord('"')
# So many rows are not divided further: each is looked at by itself.
_FEW = 4
_ERRORS = (
    *(msgspec.MsgspecError, pa.ArrowException, SourceError),
    *(ValueError, TypeError, AttributeError, OverflowError, RecursionError),
)

T = TypeVar("T")
Values: TypeAlias = Sequence[Any]
Read: TypeAlias = Callable[[Values], tuple[pa.Array, int]]
"""Returns values as an array, and the number of quotes that they have in JSON; raises one of `_ERRORS`."""


class _UnreadableError(Exception):
    """A type has values that are not read here."""


def reader_of(
    schema: pa.Schema, shapes: Mapping[str, str], convert: Callable[[pa.RecordBatch], pa.RecordBatch]
) -> ObjectReader | None:
    """Return the reader of objects with these columns; None if it can't read one of the types exactly.

    Args:
        schema: The columns, of the types that Arrow's reader is asked for.
        shapes: Regular expressions of what texts of columns look like, by the names of the columns.
        convert: Makes rows of them; raises SourceError or ArrowInvalid if a value does not fit.
    """
    try:
        return ObjectReader(schema, shapes, convert)
    except _UnreadableError:
        return None


class ObjectReader:
    """Reads objects as columns. Has the arguments of `reader_of`."""

    def __init__(
        self, schema: pa.Schema, shapes: Mapping[str, str], convert: Callable[[pa.RecordBatch], pa.RecordBatch]
    ) -> None:
        self._schema, self._convert = schema, convert
        self._shapes = {f"f{number}": shapes[name] for number, name in enumerate(schema.names) if name in shapes}
        row, self._members = self._struct(schema)
        self._decoder = msgspec.json.Decoder(row)
        self._has_unfit = False

    def sort(self, texts: Sequence[bytes]) -> tuple[list[pa.RecordBatch], list[int], list[int]]:
        """Read those of many texts that are one object each.

        Returns:
            Their rows and their numbers, ascending; and the numbers of the others, of which some may be good.
        """
        batches, good, others = list[pa.RecordBatch](), list[int](), list[int]()
        step = max(1, _PIECE * len(texts) // max(1, sum(map(len, texts))))
        for start in range(0, len(texts), step):
            piece = texts[start : start + step]
            rows, bad = self._decoded(piece)
            others += [start + number for number in bad]
            numbers, sources = _without([*range(start, start + len(piece))], bad), _without([*piece], bad)
            if self._has_unfit:
                # Where times are none, more are expected: to look first is faster than to read in vain.
                fits = self._seem_to_fit(rows)
                others += compress(numbers, map(not_, fits))
                rows, numbers, sources = _of(rows, fits), _of(numbers, fits), _of(sources, fits)
            for batch, known in self._batches(sources, rows, numbers):
                batches += [batch] if batch else []
                (good if batch else others).extend(known)
        return batches, good, sorted(others)

    def _decoded(self, texts: Sequence[bytes]) -> tuple[list[Struct], list[int]]:
        """Return the objects of texts, and the numbers of the texts that msgspec refuses."""
        rows, bad = list[Struct](), list[int]()
        objects = map(self._decoder.decode, texts)
        while len(rows) + len(bad) < len(texts):
            # What is read before a refusal is kept, and the text that is refused is passed.
            try:
                rows.extend(objects)
            except _ERRORS:
                bad.append(len(rows) + len(bad))
        return rows, bad

    def _batches(
        self, texts: Sequence[bytes], rows: list[Struct], numbers: list[int]
    ) -> Iterator[tuple[pa.RecordBatch | None, list[int]]]:
        """Yield rows as batches, with their numbers; without a batch if they are unsure."""
        try:
            yield self._batch(rows, b"\n".join(texts)), numbers
            return
        except _ERRORS:
            fits = self._seem_to_fit(rows)
        if len(rows) <= _FEW or not any(fits):
            yield None, numbers
        elif all(fits):
            middle = len(rows) // 2
            yield from self._batches(texts[:middle], rows[:middle], numbers[:middle])
            yield from self._batches(texts[middle:], rows[middle:], numbers[middle:])
        else:
            yield None, [*compress(numbers, map(not_, fits))]
            yield from self._batches(_of(texts, fits), _of(rows, fits), _of(numbers, fits))

    def _seem_to_fit(self, rows: Sequence[Struct]) -> list[bool]:
        """Return which rows have times that look like some: a time that is none is seldom a day that is in no month."""
        fits = np.ones(len(rows), bool)
        for column, shape in self._shapes.items():
            texts = _texts_or_null([*map(attrgetter(column), rows)])
            fits &= pc.match_substring_regex(texts, shape).fill_null(True).to_numpy(zero_copy_only=False)
        self._has_unfit = not fits.all()
        return fits.tolist()

    def _batch(self, rows: Sequence[Struct], text: bytes) -> pa.RecordBatch:
        """Return decoded rows as a batch; raise one of `_ERRORS` if they are not surely what Arrow would return."""
        columns, quotes = self._members(rows)
        there = _quotes_in(text)
        if quotes != there and quotes + _quotes_of(columns, text) != there:
            raise ValueError("a name is there twice")
        if any(map(_has_zero, columns)) and _MINUS_ZERO.search(text):
            raise ValueError("a negative zero may be no double")
        return self._convert(pa.RecordBatch.from_arrays(columns, schema=self._schema))

    def _struct(
        self, fields: Iterable[pa.Field]
    ) -> tuple[type[Struct], Callable[[Values], tuple[list[pa.Array], int]]]:
        """Return the class of an object, and what reads many objects as columns."""
        fields = list(fields)
        if any(_is_escaped(field.name) for field in fields) or len({field.name for field in fields}) < len(fields):
            raise _UnreadableError
        kinds = [self._kind(field.type) for field in fields]
        # One attribute of all objects at a time: tuples, of which Python looks for cycles, take four times as long.
        reads = [(attrgetter(f"f{number}"), read) for number, (_, read) in enumerate(kinds)]
        members = [
            (f"f{number}", kind | None | UnsetType, msgspec.field(default=UNSET, name=field.name))
            for number, (field, (kind, _)) in enumerate(zip(fields, kinds, strict=True))
        ]

        def read(objects: Values) -> tuple[list[pa.Array], int]:
            arrays, quotes = [], 0
            for member, of in reads:
                array, inner = _present([*map(member, objects)], of)
                arrays.append(array)
                quotes += inner
            return arrays, quotes

        return msgspec.defstruct("Object", members, gc=False, forbid_unknown_fields=True), read

    def _kind(self, data_type: pa.DataType) -> tuple[Any, Read]:
        """Return the type of Python's values for a column, and what makes an array of them."""
        t = pa.types
        if t.is_struct(data_type) and data_type.num_fields:
            return self._structs(data_type)
        if t.is_list(data_type):
            return self._lists(data_type)
        if t.is_null(data_type):
            return type(None), lambda values: (pa.array(values, data_type), 0)
        if t.is_int32(data_type) or t.is_int64(data_type):
            limit = 2 ** (data_type.bit_width - 1)
            kind = Annotated[int, msgspec.Meta(ge=-limit, le=limit - 1)]
            return kind, lambda values: (pa.array(values, data_type), 0)
        if t.is_float64(data_type):
            return float, lambda values: (pa.array(values, data_type), 0)
        if t.is_boolean(data_type):
            return bool, lambda values: (pa.array(values, data_type), 0)
        if t.is_string(data_type) or t.is_timestamp(data_type):
            return str, lambda values: _texts(values, data_type)
        raise _UnreadableError

    def _structs(self, data_type: pa.StructType) -> tuple[Any, Read]:
        kind, members = self._struct(data_type)
        empty = kind()

        def read(values: Values) -> tuple[pa.Array, int]:
            arrays, quotes = members([empty if value is None else value for value in values])
            mask = pa.array([value is None for value in values], pa.bool_())
            return pa.StructArray.from_arrays(arrays, fields=list(data_type), mask=mask), quotes

        return kind, read

    def _lists(self, data_type: pa.ListType) -> tuple[Any, Read]:
        kind, items = self._kind(data_type.value_type)

        def read(values: Values) -> tuple[pa.Array, int]:
            ends = np.cumsum([0, *(0 if value is None else len(value) for value in values)], dtype=np.int32)
            mask = np.array([*(value is None for value in values), False])
            array, quotes = items([item for value in values if value is not None for item in value])
            return pa.ListArray.from_arrays(pa.array(ends, mask=mask), array, type=data_type), quotes

        return list[kind | None], read  # type: ignore[valid-type]


def _without(items: list[T], places: Iterable[int]) -> list[T]:
    """Return a list without the items at a few places."""
    for place in sorted(places, reverse=True):
        del items[place]
    return items


def _of(items: Iterable[T], chosen: Iterable[bool]) -> list[T]:
    return [*compress(items, chosen)]


def _present(values: Values, read: Read) -> tuple[pa.Array, int]:
    """Return the values of a field as an array, null where it is missing, and its quotes, those of its name too."""
    try:
        array, quotes = read(values)
    except _ERRORS:
        # A value that is missing is seen by its refusal: to look for one first takes as long as to read all.
        present = len(values) - sum(map(is_, values, [UNSET] * len(values)))
        if present == len(values):
            raise
        array, quotes = read([None if value is UNSET else value for value in values])
        return array, quotes + 2 * present
    return array, quotes + 2 * len(values)


def _texts(values: Values, data_type: pa.DataType) -> tuple[pa.Array, int]:
    """Return texts as strings or timestamps; raise ArrowInvalid if one has or lacks an offset unlike the type."""
    array = pa.array(values, pa.string())
    quotes = 2 * (len(array) - array.null_count)
    return array if pa.types.is_string(data_type) else array.cast(data_type), quotes


def _texts_or_null(values: Values) -> pa.Array:
    """Return texts, and null for a value that is missing."""
    try:
        return pa.array(values, pa.string())
    except _ERRORS:
        return pa.array([value if isinstance(value, str) else None for value in values], pa.string())


def _quotes_in(text: Any) -> int:
    return int(np.count_nonzero(np.frombuffer(text, np.uint8) == _QUOTE))


def _is_escaped(name: str) -> bool:
    return '"' in name or "\\" in name


def _quotes_of(columns: Iterable[pa.Array], text: bytes) -> int:
    """Return the quotes within the strings of columns, which a text has too unless it writes them by their number."""
    return 0 if b"\\u0022" in text else sum(map(_quotes_within, columns))


def _quotes_within(array: pa.Array) -> int:
    if pa.types.is_string(array.type):
        return sum(_quotes_in(data) for data in array.buffers()[2:] if data is not None)
    if pa.types.is_list(array.type):
        return _quotes_within(array.values)
    return sum(map(_quotes_within, array.flatten())) if pa.types.is_struct(array.type) else 0


def _has_zero(array: pa.Array) -> bool:
    if pa.types.is_floating(array.type):
        return 0.0 in array.to_numpy(zero_copy_only=False)
    if pa.types.is_list(array.type):
        return _has_zero(array.values)
    return pa.types.is_struct(array.type) and any(map(_has_zero, array.flatten()))
