"""Decodes values of messages into rows: JSON objects, text, bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, cast

import numpy as np
import pyarrow as pa

from volley.errors import SourceError
from volley.formats.columns import Columns
from volley.formats.json import message_of
from volley.formats.json_parser import JsonParser
from volley.formats.sorted_rows import Sorted

__all__ = ["Decoder", "JsonValues", "PlainValues", "TooManyError"]

Values = Sequence[bytes | None]
_OPENED, _CLOSED = b"{}"


class TooManyError(SourceError):
    """Values take too much memory together; fewer can be decoded."""


class Decoder(Protocol):
    """Decodes values of messages into columns: one row per value, in order. Picklable."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows."""

    def decode(self, values: Values, place: str = "") -> pa.RecordBatch:
        """Return the values as rows.

        Args:
            values: The values.
            place: Where the first one is from, for warnings.

        Raises:
            TooManyError: If the rows take too much memory together.
            SourceError: If a value can't be decoded.
            pyarrow.ArrowInvalid: Likewise.
        """

    def sort(self, values: Values, place: str = "") -> Sorted:
        """Sort values of which some can't be decoded; the cost does not depend on how many.

        Args:
            values: The values.
            place: Where the first one is from, for warnings.
        """

    def fault(self, value: bytes | None, error: Exception) -> str:
        """Return the reason why a value can't be decoded by itself; decoding it raised `error`."""


@dataclass(frozen=True)
class JsonValues:
    """Decodes values that are JSON objects; a tombstone becomes a row of nulls.

    Args:
        columns: The schema of the declared fields.
        on_unknown: What to do with other fields: ``"warn"``, ``"keep"``, ``"fail"`` or ``"drop"``.
        unknown: The column that keeps other fields.
    """

    columns: pa.Schema
    on_unknown: str
    unknown: str = "unknown"

    @property
    def schema(self) -> pa.Schema:
        return self.columns.append(pa.field(self.unknown, pa.string())) if self.on_unknown == "keep" else self.columns

    def decode(self, values: Values, place: str = "") -> pa.RecordBatch:
        batches = self._parser.parse(_text_of(values), place)
        if sum(batch.num_rows for batch in batches) != len(values):
            raise SourceError("several JSON objects in one message")
        return _one(batches)

    def sort(self, values: Values, place: str = "") -> Sorted:
        texts = [b"{}" if value is None else value.strip() for value in values]
        return self._parser.sort(texts, place, alone=True)

    def fault(self, value: bytes | None, error: Exception) -> str:
        return self._parser.fault([value or b""]) or message_of(error)

    @cached_property
    def _parser(self) -> JsonParser:
        return JsonParser(Columns(self.columns, self.on_unknown, self.unknown), self.schema)


@dataclass(frozen=True)
class PlainValues:
    """Returns each value unchanged in the column ``value``; a tombstone becomes a null.

    Args:
        text: True: values are UTF-8 text; False: bytes.
    """

    text: bool

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([pa.field("value", pa.string() if self.text else pa.binary())])

    def decode(self, values: Values, place: str = "") -> pa.RecordBatch:
        # The cast to string checks that the bytes are UTF-8.
        column = pa.array(values, pa.binary()).cast(self.schema.field(0).type)
        return pa.RecordBatch.from_arrays([column], schema=self.schema)

    def sort(self, values: Values, place: str = "") -> Sorted:
        faults = {number: "not UTF-8" for number, value in enumerate(values) if self.text and not _is_text(value)}
        numbers = [number for number in range(len(values)) if number not in faults]
        return Sorted([self.decode([values[number] for number in numbers])], numbers, faults)

    def fault(self, value: bytes | None, error: Exception) -> str:
        return "not UTF-8" if self.text else message_of(error)


def _is_text(value: bytes | None) -> bool:
    try:
        (value or b"").decode()
    except UnicodeDecodeError:
        return False
    return True


def _text_of(values: Values) -> bytes:
    """Return the joined text of values, each of which starts with ``{`` and ends with ``}``.

    Two values can't be the halves of one object then.

    Raises:
        SourceError: If a value doesn't.
    """
    objects = cast(Sequence[bytes], values)
    try:
        text = b"\n".join(objects)
    except TypeError:  # a tombstone
        return _text_of([b"{}" if value is None else value for value in values])
    if not _are_objects(objects, text):
        objects = [value.strip() for value in objects]
        text = b"\n".join(objects)
        if not _are_objects(objects, text):
            raise SourceError("not a JSON object")
    return text


def _are_objects(values: Sequence[bytes], text: bytes) -> bool:
    """Return True if each value starts and ends as an object; in the joined text this costs a third of a loop."""
    ends = np.cumsum(np.fromiter(map(len, values), np.int64, len(values)) + 1)
    letters = np.frombuffer(text, np.uint8)
    try:
        opened = letters[np.concatenate(([0], ends[:-1]))] == _OPENED
    except IndexError:
        return False  # the last value is empty
    return bool(opened.all() and (letters[ends - 2] == _CLOSED).all())


def _one(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
