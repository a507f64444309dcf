"""Decodes Protobuf messages into Arrow batches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from volley.errors import ConfigError, SourceError, message_of
from volley.formats.cursors import FEW, Integers
from volley.formats.framing import head_of, indexes_of
from volley.formats.input_file import LARGEST_VALUE, megabytes
from volley.formats.joined_values import Joined
from volley.formats.messages import TooManyError, Values
from volley.formats.protobuf_batches import ProtobufBatches, UnsupportedError
from volley.formats.protobuf_bounds import Bounds
from volley.formats.protobuf_changes import check_readable
from volley.formats.protobuf_columns import Columns
from volley.formats.protobuf_schema import files_of_registered, message_at, message_named
from volley.formats.registered import Registered
from volley.formats.repeated_values import placed_rows
from volley.formats.rows import Sorted, sort_good
from volley.formats.schema_registry import Registry, name_of
from volley.types.arrow import canonical_schema

__all__ = ["ProtobufValues"]

# Messages that the library parses at once: as many as the cache of a processor holds; 10,000 take twice as long.
_AT_ONCE = 256


@dataclass(frozen=True)
class ProtobufValues:
    """Decodes values that are Protobuf messages; a tombstone becomes a row of nulls.

    Args:
        files: The schema to read by, a serialized FileDescriptorSet whose last file has the message.
        message: The message's full name.
        registry: The registry of the schemas that messages were written with; each message begins with its schema's
            id and its place in the file (Confluent's wire format). None = they begin with the message.
        nanoseconds: True: timestamps have nanoseconds; False: microseconds, rounded down.
    """

    format: ClassVar[str] = "text"
    rows_vary: ClassVar[bool] = False
    files: bytes
    message: str
    registry: Registry | None
    nanoseconds: bool = False

    @cached_property
    def schema(self) -> pa.Schema:
        return canonical_schema(self._columns.schema)

    def decode(self, values: Values, place: str = "") -> pa.RecordBatch:
        joined = Joined.of(values)
        starts = np.zeros(len(joined), np.int64)
        if self.registry is not None:
            for frame, rows in joined.by_head(self._frame).items():
                starts[rows] = len(frame)
        if self._bounds.most(len(joined), int((joined.lengths - starts).sum())) > LARGEST_VALUE:
            self._checked([*map(self._body, values)])
        return self._batch(joined, starts)

    def sort(self, values: Values, place: str = "") -> Sorted:
        faults: dict[int, str] = {}
        good: list[tuple[int, bytes | None]] = []
        for number, value in enumerate(values):
            try:
                (body,) = self._checked([self._body(value)])
                self._parsed([] if body is None else [body])
            except SourceError as error:
                faults[number] = error.message
            else:
                good.append((number, body))
        self._checked([body for _, body in good])

        def convert(start: int, end: int) -> Sorted:
            part = good[start:end]
            bodies = Joined.of([body for _, body in part])
            return Sorted([self._batch(bodies, np.zeros(len(part), np.int64))], [number for number, _ in part], {})

        numbers = [number for number, _ in good]
        return sort_good(faults, numbers, convert, lambda _, error: self.fault(None, error), (SourceError,))

    def fault(self, value: bytes | None, error: Exception) -> str:
        return message_of(error)

    def _body(self, value: bytes | None) -> bytes | None:
        """Return a message, without what stands in front of it."""
        return None if value is None else value[len(self._frame(value)) :]

    def _frame(self, value: bytes) -> bytes:
        """Return what stands in front of a message, once it is shown that it can be read."""
        if self.registry is None:
            return b""
        for length, frames in self._frames.items():
            if (frame := value[:length]) in frames:
                return frame
        return value[: self._start(value)]

    def _start(self, value: bytes) -> int:
        """Return where a message begins, once it is shown that it can be read."""
        assert self.registry is not None
        head = head_of(value)
        indexes, start = indexes_of(value, len(head))
        written = self.registry.registered(head, "PROTOBUF")
        if fault := _fault(written, indexes, self.files, self.message):
            raise SourceError(f"{name_of(head)}: {fault.message}", hint=fault.hint)
        self._frames.setdefault(start, set()).add(value[:start])
        return start

    def _checked(self, bodies: Sequence[bytes | None]) -> Sequence[bytes | None]:
        """Return messages that don't take too much memory together."""
        total = self._bounds.most(len(bodies), sum(map(len, filter(None, bodies))))
        if total <= LARGEST_VALUE:
            return bodies
        present = [body for body in bodies if body is not None]
        # A message's own bound is less than that of its length only if it is a long one.
        if present and self._bounds.most(1, max(map(len, present))) > LARGEST_VALUE:
            total = sum(map(self._bounds.size, present))
        if total > LARGEST_VALUE and len(bodies) > 1:
            raise TooManyError(f"{len(bodies):,} messages take more than {megabytes(LARGEST_VALUE)} in memory")
        return bodies

    def _batch(self, values: Joined, starts: Integers) -> pa.RecordBatch:
        """Return messages as rows.

        Args:
            starts: Where the message begins in each value.
        """
        batches = [batch for part in values.parts() for batch in self._part(values[part], starts[part])]
        rows = pa.concat_batches(batches) if batches else pa.RecordBatch.from_pylist([], self.schema)
        return placed_rows([(values.rows, rows.columns)], len(values), self.schema)

    def _part(self, values: Joined, starts: Integers) -> list[pa.RecordBatch]:
        """Return messages as rows; tombstones are left out."""
        arrays = self._at_once(values, starts)
        if arrays is not None:
            return [pa.RecordBatch.from_arrays(arrays, schema=self.schema)]
        pairs = zip(values, starts.tolist(), strict=True)
        bodies = [value[start:] for value, start in pairs if value is not None]
        return [self._rows(bodies[start : start + _AT_ONCE]) for start in range(0, len(bodies), _AT_ONCE)]

    def _at_once(self, values: Joined, starts: Integers) -> list[pa.Array] | None:
        """Return the columns of messages; None if the library must read them."""
        if self._batches is None or len(values.rows) < FEW:
            return None
        return self._batches.read(values, values.rows, starts[values.rows])

    def _rows(self, bodies: Iterable[bytes]) -> pa.RecordBatch:
        messages = self._parsed(bodies)
        try:
            arrays = self._columns.arrays(messages)
        except (pa.ArrowException, UnicodeDecodeError, OverflowError) as error:
            raise SourceError(f"a value does not fit its column: {error}") from error
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _parsed(self, bodies: Iterable[bytes]) -> list[Any]:
        from google.protobuf.message import DecodeError

        try:
            return [*map(self._class.FromString, bodies)]
        except DecodeError as error:
            raise SourceError(f"not Protobuf of {self.message}: {error}") from error

    @cached_property
    def _class(self) -> Any:
        from google.protobuf.message_factory import GetMessageClass

        return GetMessageClass(message_named(self.files, self.message))

    @cached_property
    def _columns(self) -> Columns:
        return Columns(message_named(self.files, self.message), self.nanoseconds)

    @cached_property
    def _batches(self) -> ProtobufBatches | None:
        """What reads many messages at once; None if the library must read them."""
        try:
            return ProtobufBatches(message_named(self.files, self.message), self._columns.schema)
        except UnsupportedError:
            return None

    @cached_property
    def _bounds(self) -> Bounds:
        return Bounds(message_named(self.files, self.message))

    @cached_property
    def _frames(self) -> dict[int, set[bytes]]:
        """What stands in front of messages that can be read, by its length; none is the beginning of another."""
        return {}

    def __getstate__(self) -> dict[str, Any]:
        settings = {"files": self.files, "message": self.message, "registry": self.registry}
        return {**settings, "nanoseconds": self.nanoseconds}


@lru_cache(maxsize=1_000)
def _fault(written: Registered, indexes: tuple[int, ...], files: bytes, message: str) -> SourceError | None:
    """Return why messages of a schema can't be read; None if they can."""
    try:
        writer, reader = message_at(files_of_registered(written), indexes), message_named(files, message)
        if writer.full_name != reader.full_name:
            raise SourceError(
                f"it is a message {writer.full_name}, and {reader.full_name} is read",
                hint="choose the message that is read: message=…",
            )
        check_readable(writer, reader)
    except (SourceError, ConfigError) as error:
        return SourceError(error.message, hint=error.hint)
    return None
