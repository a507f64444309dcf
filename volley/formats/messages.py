"""Decodes values of messages into rows: JSON objects, text, bytes."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, cast

import numpy as np
import pyarrow as pa

from volley.errors import SourceError
from volley.formats.json import fault, parsed

__all__ = ["Decoder", "JsonValues", "PlainValues"]

Values = Sequence[bytes | None]
_OPENED, _CLOSED = b"{}"


class Decoder(Protocol):
    """Decodes values of messages into columns: one row per value, in order. Picklable."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows."""

    def decode(self, values: Values) -> pa.RecordBatch:
        """Return the values as rows.

        Raises:
            SourceError: If a value can't be decoded.
            pyarrow.ArrowInvalid: Likewise.
        """

    def fault(self, value: bytes | None, error: Exception) -> str:
        """Return the reason why a value can't be decoded by itself; decoding it raised `error`."""


@dataclass(frozen=True)
class JsonValues:
    """Decodes values that are JSON objects; a tombstone becomes a row of nulls.

    Args:
        columns: The schema of the declared fields.
        on_unknown: What to do with other fields: ``"ignore"``, ``"keep"`` or ``"fail"``.
        unknown: The column that keeps other fields.
    """

    columns: pa.Schema
    on_unknown: str
    unknown: str = "unknown"

    @property
    def schema(self) -> pa.Schema:
        return self.columns.append(pa.field(self.unknown, pa.string())) if self.on_unknown == "keep" else self.columns

    def decode(self, values: Values) -> pa.RecordBatch:
        objects, text = _objects(values)
        if self.on_unknown == "keep":
            return self._with_unknown(objects, text)
        return self._batch(text, len(values), "ignore" if self.on_unknown == "ignore" else "error")

    def fault(self, value: bytes | None, error: Exception) -> str:
        unexpected = "error" if self.on_unknown == "fail" else "ignore"
        return fault([value or b""], self.columns, unexpected) or _message(error)

    def _batch(self, text: bytes, rows: int, unexpected: str) -> pa.RecordBatch:
        batches = parsed(text, self.columns, unexpected)
        if sum(batch.num_rows for batch in batches) != rows:
            raise SourceError("several JSON objects in one message")
        return _one(batches)

    def _with_unknown(self, objects: Sequence[bytes], text: bytes) -> pa.RecordBatch:
        try:
            # Most messages have no unknown field; this attempt costs nothing if so.
            batch, unknown = self._batch(text, len(objects), "error"), pa.nulls(len(objects), pa.string())
        except pa.ArrowInvalid:
            batch, unknown = self._batch(text, len(objects), "ignore"), self._unknown(objects)
        return pa.RecordBatch.from_arrays([*batch.columns, unknown], schema=self.schema)

    def _unknown(self, objects: Sequence[bytes]) -> pa.Array:
        known = set(self.columns.names)
        try:
            decode = json.JSONDecoder(parse_float=_finite).decode
            rests = [
                {name: field for name, field in decode(value.decode()).items() if name not in known}
                for value in objects
            ]
        except RecursionError as error:
            raise SourceError("nested too deep") from error
        except ValueError as error:
            # Arrow has parsed the text: Python rejects only integers of thousands of digits.
            raise SourceError(str(error).partition(":")[0]) from error
        return pa.array([json.dumps(rest, ensure_ascii=False) if rest else None for rest in rests], pa.string())


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

    def decode(self, values: Values) -> pa.RecordBatch:
        # The cast to string checks that the bytes are UTF-8.
        column = pa.array(values, pa.binary()).cast(self.schema.field(0).type)
        return pa.RecordBatch.from_arrays([column], schema=self.schema)

    def fault(self, value: bytes | None, error: Exception) -> str:
        return "not UTF-8" if self.text else _message(error)


def _objects(values: Values) -> tuple[Sequence[bytes], bytes]:
    """Return the values and their joined text; each value starts with ``{`` and ends with ``}``.

    Two values can't be the halves of one object then.

    Raises:
        SourceError: If a value doesn't.
    """
    objects = cast(Sequence[bytes], values)
    try:
        text = b"\n".join(objects)
    except TypeError:  # a tombstone
        return _objects([b"{}" if value is None else value for value in values])
    if not _are_objects(objects, text):
        objects = [value.strip() for value in objects]
        text = b"\n".join(objects)
        if not _are_objects(objects, text):
            raise SourceError("not a JSON object")
    return objects, text


def _are_objects(values: Sequence[bytes], text: bytes) -> bool:
    """Return True if each value starts and ends as an object; in the joined text this costs a third of a loop."""
    ends = np.cumsum(np.fromiter(map(len, values), np.int64, len(values)) + 1)
    letters = np.frombuffer(text, np.uint8)
    try:
        opened = letters[np.concatenate(([0], ends[:-1]))] == _OPENED
    except IndexError:
        return False  # the last value is empty
    return bool(opened.all() and (letters[ends - 2] == _CLOSED).all())


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise SourceError("a number is too large for a double")
    return value


def _one(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _message(error: Exception) -> str:
    return error.message if isinstance(error, SourceError) else str(error)
