"""Decodes values of messages into rows, and finds the bad ones: shared by Kafka's messages and webhooks' requests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any, ClassVar, Protocol, Self, runtime_checkable

import pyarrow as pa

from volley.columns.bisect import sort_failing
from volley.columns.letters import column_in, payload_of
from volley.contracts.rows import BadRow, PositionedBatch, undoing
from volley.errors import SourceError, message_of
from volley.formats.inferred import Inferred
from volley.formats.input_file import Columns
from volley.formats.joined_values import Joined
from volley.formats.json_contract import parser_of
from volley.formats.json_parser import JsonParser
from volley.formats.json_seen import Sight
from volley.formats.options import KEEPING
from volley.formats.rows import Sorted, strict

__all__ = ["Decoder", "JsonValues", "MessageRows", "PlainValues", "TooManyError", "decode_errors"]

Values = Sequence[bytes | None]
decode_errors = (pa.ArrowInvalid, SourceError)
"""What a decoder raises if a value is bad."""


class TooManyError(SourceError):
    """Values take too much memory together; fewer can be decoded."""


class Decoder(Protocol):
    """Decodes values of messages into columns: one row per value, in order. Picklable."""

    @property
    def format(self) -> str:
        """What a bad value is as a payload, see `BadRow`."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows."""

    @property
    def rows_vary(self) -> bool:
        """True if a value may be no row, or several; `sort` then reads all."""

    def decode(self, values: Values, place: str = "") -> pa.RecordBatch:
        """Return the values as rows.

        Args:
            place: Where the first one is from, for warnings.

        Raises:
            TooManyError: If the rows take too much memory together.
            SourceError: If a value can't be decoded.
            pyarrow.ArrowInvalid: Likewise.
        """

    def sort(self, values: Values, place: str = "") -> Sorted:
        """Sort values of which some can't be decoded; the cost does not depend on how many.

        Args:
            place: Where the first one is from, for warnings.
        """

    def fault(self, value: bytes | None, error: Exception) -> str:
        """Return the reason why a value can't be decoded by itself; decoding it raised `error`."""


@runtime_checkable
class SortsMany(Protocol):
    """A decoder that can sort many values at once."""

    def sort_many(self, values: Values, place: str = "") -> Sorted | None:
        """Sort at least one value as `sort` does, in little more time than `decode` takes; None if it can't."""


@runtime_checkable
class Infers(Protocol):
    """A decoder whose columns rows may change."""

    @property
    def inferred(self) -> Inferred | None:
        """The columns; None if they are declared."""


@dataclass(frozen=True)
class JsonValues:
    """Decodes values that are JSON objects; a tombstone becomes a row of nulls.

    Args:
        on_unknown: What to do with other fields: ``"warn"``, ``"keep"``, ``"rescue"``, ``"fail"`` or ``"drop"``.
        epoch: The unit of numbers that are timestamps; None = there are none.
        sight: What was seen of columns that are inferred; None = none is.
    """

    format: ClassVar[str] = "json"
    rows_vary: ClassVar[bool] = False
    columns: pa.Schema
    on_unknown: str
    unknown: str = "unknown"
    epoch: str | None = None
    sight: Sight | None = None

    @property
    def schema(self) -> pa.Schema:
        return self.columns.append(pa.field(self.unknown, pa.string())) if self.on_unknown in KEEPING else self.columns

    @property
    def inferred(self) -> Inferred | None:
        return None if self.sight is None else self.sight.columns

    def decode(self, values: Values, place: str = "") -> pa.RecordBatch:
        try:
            batches = self._parser.parse(_text_of(values), place)
        except decode_errors:
            if self.sight is None:
                raise
            return self._settled(values, place)
        if sum(batch.num_rows for batch in batches) != len(values):
            raise SourceError("several JSON objects in one message")
        return _one(batches)

    def _settled(self, values: Values, place: str) -> pa.RecordBatch:
        """Return the rows of values that have more than their columns; raise if one is bad."""
        with undoing():
            rows = self.sort(values, place)
            if rows.faults:
                raise SourceError(next(iter(rows.faults.values())))
            return rows.batch

    def sort(self, values: Values, place: str = "") -> Sorted:
        return self._parser.sort(_stripped(values), place, alone=True)

    def sort_many(self, values: Values, place: str = "") -> Sorted | None:
        objects = _objects(values)
        text = objects.lines
        if objects[-1] and text.count(b"\n") == len(objects) - 1:
            found = self._parser.sort_likely(text, place, lambda number, line: [(number, line.strip())], alone=True)
            if found:
                return found.rows
        return self._parser.sort_quickly(_stripped(values), place, alone=True)

    def fault(self, value: bytes | None, error: Exception) -> str:
        return self._parser.fault([value or b""]) or message_of(error)

    @cached_property
    def _parser(self) -> JsonParser:
        columns = Columns(self.columns, self.on_unknown, self.unknown, sight=self.sight)
        return parser_of(columns, self.schema, self.epoch)


@dataclass(frozen=True)
class PlainValues:
    """Returns each value unchanged in the column ``value``; a tombstone becomes a null.

    Args:
        text: True: values are UTF-8 text; False: bytes.
    """

    format: ClassVar[str] = "text"
    rows_vary: ClassVar[bool] = False
    text: bool

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([pa.field("value", pa.string() if self.text else pa.binary())])

    def decode(self, values: Values, place: str = "") -> pa.RecordBatch:
        # The cast to string checks that the bytes are UTF-8.
        column = Joined.of(values).column.cast(self.schema.field(0).type)
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


def _stripped(values: Values) -> list[bytes]:
    return [b"{}" if value is None else value.strip() for value in values]


def _text_of(values: Values) -> bytes:
    """Return the joined text of values, each of which starts with ``{`` and ends with ``}``.

    Two values can't be the halves of one object then.

    Raises:
        SourceError: If a value doesn't.
    """
    objects = _objects(values)
    if not objects.enclosed_in(b"{", b"}"):
        objects = Joined.of(_stripped(values))
        if not objects.enclosed_in(b"{", b"}"):
            raise SourceError("not a JSON object")
    return objects.lines


def _objects(values: Values) -> Joined:
    """Return values with an object in the place of a tombstone."""
    joined = Joined.of(values)
    return Joined.of([b"{}" if value is None else value for value in joined]) if joined.has_tombstones else joined


def _one(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


_HINT = "give the sink a dead_letter for such messages, or declare a schema that fits them"
_REASON = 400
_FIRST = 1_024


class Chunk(Protocol):
    """Consecutive messages of a source."""

    @property
    def values(self) -> Sequence[bytes | None]:
        """Their values."""

    def part(self, start: int, end: int) -> Self:
        """Return the messages from `start` (inclusive) to `end` (exclusive)."""

    def position(self, row: int) -> str:
        """Return the position of a message in its source."""


@dataclass(frozen=True)
class MessageRows:
    """Decodes chunks into batches: the columns of the values, then those of the messages' metadata.

    Args:
        schema: All columns: the decoder's, then those of the metadata.
        metadata: Returns the columns of a chunk's metadata, for these fields.
    """

    decoder: Decoder
    schema: pa.Schema
    metadata: Callable[[Sequence[pa.Field], Any], list[pa.Array]]

    @property
    def inferred(self) -> Inferred | None:
        """The columns of the values, if rows may change them."""
        return self.decoder.inferred if isinstance(self.decoder, Infers) else None

    def read(self, chunks: Iterable[Chunk]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of each chunk.

        Raises:
            SourceError: If a message can't be decoded; names its position.
        """
        return strict(self.read_tolerant(chunks), _HINT)

    def read_tolerant(self, chunks: Iterable[Chunk]) -> Iterator[PositionedBatch | BadRow]:
        """Yield the same rows with their positions, and a `BadRow` for each message that can't be decoded."""
        has_bad = False
        for chunk in chunks:
            # Behind a chunk with bad rows, more are expected.
            items, has_bad = (self._sorted_at_once(chunk) if has_bad else None) or self._items(chunk), False
            for item in items:
                has_bad |= isinstance(item, BadRow)
                yield item

    def _items(self, chunk: Chunk) -> Iterator[PositionedBatch | BadRow]:
        if self.decoder.rows_vary:
            yield from self._sorted(chunk)[0]
            return
        try:
            items = self._decoded(chunk)
        except TooManyError:
            items = chain.from_iterable(map(self._items, _halves(chunk)))
        except decode_errors:
            # What is bad among the first ones tells what to look for.
            first = min(_FIRST, len(chunk.values))
            parts = chunk.part(0, first), chunk.part(first, len(chunk.values))
            items = self._sorted_at_once(*parts) or self._salvaged(chunk)
        yield from items

    def _decoded(self, chunk: Chunk) -> Iterator[PositionedBatch | BadRow]:
        values = self.decoder.decode(chunk.values, chunk.position(0) if chunk.values else "")
        return iter([PositionedBatch(self._with_metadata(values, self._metadata(chunk)), chunk.position)])

    def _sorted_at_once(self, *chunks: Chunk) -> Iterator[PositionedBatch | BadRow] | None:
        """Return the items of chunks; None if they are to be sorted in pieces."""
        if not isinstance(self.decoder, SortsMany):
            return None
        items = list[Iterator[PositionedBatch | BadRow]]()
        for chunk in chunks:
            if chunk.values:
                rows = self.decoder.sort_many(chunk.values, chunk.position(0))
                if rows is None:
                    return None
                items.append(self._items_of(chunk, rows))
        return chain.from_iterable(items)

    def _salvaged(self, chunk: Chunk) -> Iterator[PositionedBatch | BadRow]:
        def attempt(start: int, end: int) -> Iterator[PositionedBatch | BadRow]:
            return self._decoded(chunk.part(start, end))

        def few(start: int, end: int) -> tuple[Iterator[PositionedBatch | BadRow], bool]:
            return self._sorted(chunk.part(start, end))

        return chain.from_iterable(sort_failing(len(chunk.values), attempt, few, decode_errors))

    def _sorted(self, chunk: Chunk) -> tuple[Iterator[PositionedBatch | BadRow], bool]:
        """Return the items of a chunk, and whether one is bad."""
        try:
            rows = self.decoder.sort(chunk.values, chunk.position(0))
        except TooManyError:
            return (item for half in _halves(chunk) for item in self._sorted(half)[0]), True
        return self._items_of(chunk, rows), bool(rows.faults)

    def _items_of(self, chunk: Chunk, rows: Sorted) -> Iterator[PositionedBatch | BadRow]:
        if rows.numbers:
            metadata = [column.take(pa.array(rows.numbers)) for column in self._metadata(chunk)]
            rows = replace(rows, batches=[self._with_metadata(rows.batch, metadata)])

        def bad_row(number: int, fault: str) -> BadRow:
            payload, format = payload_of(chunk.values[number] or b"", self.decoder.format)
            return BadRow(payload, fault[:_REASON], chunk.position(number), format, column_in(fault))

        return rows.items(chunk.position, bad_row)

    def _metadata(self, chunk: Chunk) -> list[pa.Array]:
        return self.metadata(list(self.schema)[len(self.decoder.schema) :], chunk)

    def _with_metadata(self, values: pa.RecordBatch, metadata: list[pa.Array]) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([*values.columns, *metadata], schema=self.schema)


def _halves(chunk: Chunk) -> tuple[Chunk, Chunk]:
    count = len(chunk.values)
    return chunk.part(0, count // 2), chunk.part(count // 2, count)
