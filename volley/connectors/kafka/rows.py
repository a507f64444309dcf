"""Reads splits of Kafka offsets as rows: fetches messages, decodes them, and finds the bad ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from volley.arrow.bisect import first_failing, process_or_bisect
from volley.bad_rows import BadRow, PositionedBatch
from volley.connectors.kafka.client import Client
from volley.connectors.kafka.metadata import metadata_columns
from volley.connectors.kafka.offsets import OffsetRange
from volley.connectors.kafka.ranges import Messages, RangeReader
from volley.errors import SourceError
from volley.formats.messages import Decoder

__all__ = ["RowReader"]

_EXCERPT = 120
_REASON = 400


@dataclass(frozen=True)
class RowReader:
    """Reads splits on an executor.

    Args:
        client: Creates the consumer.
        decoder: Decodes values into columns.
        schema: All columns: the decoder's, then those of the messages' metadata.
        skip_lost: True: skip messages that retention has deleted; False: raise.
    """

    client: Client
    decoder: Decoder
    schema: pa.Schema
    skip_lost: bool

    def read(self, split: Sequence[OffsetRange]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a split.

        Raises:
            SourceError: If a message can't be read; names topic, partition and offset.
        """
        for messages in self._messages(split):
            try:
                batch = self._batch(messages)
            except (pa.ArrowInvalid, SourceError) as error:
                raise self._error_of(messages, error) from error
            yield batch

    def read_tolerant(self, split: Sequence[OffsetRange]) -> Iterator[PositionedBatch | BadRow]:
        """Yield the same rows with their positions, and a `BadRow` for each message that can't be decoded."""
        for messages in self._messages(split):

            def attempt(start: int, end: int, within: Messages = messages) -> PositionedBatch | BadRow:
                part = within.part(start, end)
                return PositionedBatch(self._batch(part), part.position)

            def single(row: int, error: Exception, within: Messages = messages) -> PositionedBatch | BadRow:
                value = within.values[row] or b""
                return BadRow(value.decode(errors="replace"), self._reason(within, row, error), within.position(row))

            yield from process_or_bisect(len(messages.values), attempt, single, (pa.ArrowInvalid, SourceError))

    def _messages(self, split: Sequence[OffsetRange]) -> Iterator[Messages]:
        names = frozenset(self._metadata_names) & {"kafka_key", "kafka_headers", "kafka_timestamp"}
        reader = RangeReader(self.client, self.skip_lost, frozenset(name.removeprefix("kafka_") for name in names))
        try:
            for offset_range in split:
                yield from reader.read(offset_range)
        finally:
            reader.close()

    @property
    def _metadata_names(self) -> list[str]:
        names: list[str] = self.schema.names
        return names[len(self.decoder.schema) :]

    def _batch(self, messages: Messages) -> pa.RecordBatch:
        values = self.decoder.decode(messages.values)
        added = metadata_columns([self.schema.field(name) for name in self._metadata_names], messages)
        return pa.RecordBatch.from_arrays([*values.columns, *added], schema=self.schema)

    def _error_of(self, messages: Messages, error: Exception) -> SourceError:
        """Return the error for the first bad message."""

        def fails(start: int, end: int) -> bool:
            try:
                self.decoder.decode(messages.values[start:end])
            except (pa.ArrowInvalid, SourceError):
                return True
            return False

        row = first_failing(len(messages.values), fails)
        excerpt = (messages.values[row] or b"")[:_EXCERPT].decode(errors="replace")
        return SourceError(
            f"{messages.position(row)}: {self._reason(messages, row, error)}: {excerpt}",
            hint="give the sink a dead_letter for such messages, or declare a schema that fits them",
        )

    def _reason(self, messages: Messages, row: int, error: Exception) -> str:
        return self.decoder.fault(messages.values[row], error)[:_REASON]
