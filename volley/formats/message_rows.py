"""Reads chunks of messages as rows, and finds the bad ones: shared by Kafka's messages and the requests of webhooks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Protocol, Self

import pyarrow as pa

from volley.columns.bisect import sort_failing
from volley.contracts.rows import BadRow, PositionedBatch
from volley.errors import SourceError
from volley.formats.messages import Decoder, TooManyError

__all__ = ["Chunk", "MessageRows", "decode_errors"]

decode_errors = (pa.ArrowInvalid, SourceError)
"""What a decoder raises if a value is bad."""

_HINT = "give the sink a dead_letter for such messages, or declare a schema that fits them"
_EXCERPT = 120
_REASON = 400


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
        decoder: Decodes values into columns.
        schema: All columns: the decoder's, then those of the metadata.
        metadata: Returns the columns of a chunk's metadata, for these fields.
    """

    decoder: Decoder
    schema: pa.Schema
    metadata: Callable[[Sequence[pa.Field], Any], list[pa.Array]]

    def read(self, chunks: Iterable[Chunk]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of each chunk.

        Raises:
            SourceError: If a message can't be decoded; names its position.
        """
        for item in self.read_tolerant(chunks):
            if isinstance(item, BadRow):
                raise SourceError(f"{item.position}: {item.error}: {item.payload[:_EXCERPT]}", hint=_HINT)
            yield item.batch

    def read_tolerant(self, chunks: Iterable[Chunk]) -> Iterator[PositionedBatch | BadRow]:
        """Yield the same rows with their positions, and a `BadRow` for each message that can't be decoded."""
        for chunk in chunks:
            yield from self._items(chunk)

    def _items(self, chunk: Chunk) -> Iterator[PositionedBatch | BadRow]:
        try:
            items = self._decoded(chunk)
        except TooManyError:
            items = chain.from_iterable(map(self._items, _halves(chunk)))
        except decode_errors:
            items = self._salvaged(chunk)
        yield from items

    def _decoded(self, chunk: Chunk) -> Iterator[PositionedBatch | BadRow]:
        values = self.decoder.decode(chunk.values, chunk.position(0) if chunk.values else "")
        return iter([PositionedBatch(self._with_metadata(values, self._metadata(chunk)), chunk.position)])

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
        if rows.numbers:
            metadata = [column.take(pa.array(rows.numbers)) for column in self._metadata(chunk)]
            rows = replace(rows, batches=[self._with_metadata(rows.batch, metadata)])

        def bad_row(number: int, fault: str) -> BadRow:
            value = chunk.values[number] or b""
            return BadRow(value.decode(errors="replace"), fault[:_REASON], chunk.position(number))

        return rows.items(chunk.position, bad_row), bool(rows.faults)

    def _metadata(self, chunk: Chunk) -> list[pa.Array]:
        return self.metadata(list(self.schema)[len(self.decoder.schema) :], chunk)

    def _with_metadata(self, values: pa.RecordBatch, metadata: list[pa.Array]) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([*values.columns, *metadata], schema=self.schema)


def _halves(chunk: Chunk) -> tuple[Chunk, Chunk]:
    count = len(chunk.values)
    return chunk.part(0, count // 2), chunk.part(count // 2, count)
