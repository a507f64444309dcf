"""Reads chunks of messages as rows, and finds the bad ones: shared by Kafka's messages and the requests of webhooks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

import pyarrow as pa

from volley.arrow.bisect import first_failing, process_or_bisect
from volley.bad_rows import BadRow, PositionedBatch
from volley.errors import SourceError
from volley.formats.messages import Decoder, TooManyError

__all__ = ["Chunk", "MessageRows", "decode_errors"]

decode_errors = (pa.ArrowInvalid, SourceError)
"""What a decoder raises if a value is bad."""

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
        for chunk in chunks:
            yield from self._batches(chunk)

    def read_tolerant(self, chunks: Iterable[Chunk]) -> Iterator[PositionedBatch | BadRow]:
        """Yield the same rows with their positions, and a `BadRow` for each message that can't be decoded."""
        for chunk in chunks:

            def attempt(start: int, end: int, within: Chunk = chunk) -> PositionedBatch | BadRow:
                part = within.part(start, end)
                return PositionedBatch(self._batch(part), part.position)

            def single(row: int, error: Exception, within: Chunk = chunk) -> PositionedBatch | BadRow:
                value = within.values[row] or b""
                return BadRow(value.decode(errors="replace"), self._reason(within, row, error), within.position(row))

            yield from process_or_bisect(len(chunk.values), attempt, single, decode_errors)

    def _batches(self, chunk: Chunk) -> Iterator[pa.RecordBatch]:
        try:
            batch = self._batch(chunk)
        except TooManyError:
            count = len(chunk.values)
            yield from self._batches(chunk.part(0, count // 2))
            yield from self._batches(chunk.part(count // 2, count))
            return
        except decode_errors as error:
            raise self._error_of(chunk, error) from error
        yield batch

    def _batch(self, chunk: Chunk) -> pa.RecordBatch:
        values = self.decoder.decode(chunk.values, chunk.position(0) if chunk.values else "")
        added = self.metadata(list(self.schema)[len(self.decoder.schema) :], chunk)
        return pa.RecordBatch.from_arrays([*values.columns, *added], schema=self.schema)

    def _error_of(self, chunk: Chunk, error: Exception) -> SourceError:
        """Return the error for the first bad message."""

        def fails(start: int, end: int) -> bool:
            try:
                self.decoder.decode(chunk.values[start:end])
            except TooManyError:
                middle = (start + end) // 2
                return fails(start, middle) or fails(middle, end)
            except decode_errors:
                return True
            return False

        row = first_failing(len(chunk.values), fails)
        excerpt = (chunk.values[row] or b"")[:_EXCERPT].decode(errors="replace")
        return SourceError(
            f"{chunk.position(row)}: {self._reason(chunk, row, error)}: {excerpt}",
            hint="give the sink a dead_letter for such messages, or declare a schema that fits them",
        )

    def _reason(self, chunk: Chunk, row: int, error: Exception) -> str:
        return self.decoder.fault(chunk.values[row], error)[:_REASON]
