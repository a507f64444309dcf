"""From splits of Kafka's offsets to rows: messages are read, decoded, and where one is bad it is found and named."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from volley.arrow.bisect import first_failing, process_or_bisect
from volley.bad_rows import BadRow, PositionedBatch
from volley.connectors.kafka.client import Client
from volley.connectors.kafka.metadata import metadata_columns
from volley.connectors.kafka.offsets import Range
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
        client: How to reach the cluster.
        decoder: Makes columns of values.
        schema: All columns; behind the decoder's come those about the message.
        skip_lost: Whether to pass over messages that are gone.
    """

    client: Client
    decoder: Decoder
    schema: pa.Schema
    skip_lost: bool

    def read(self, split: Sequence[Range]) -> Iterator[pa.RecordBatch]:
        """The rows of a split.

        Raises:
            SourceError: If a message can't be read; names topic, partition and offset.
        """
        for messages in self._messages(split):
            try:
                batch = self._batch(messages)
            except (pa.ArrowInvalid, SourceError) as error:
                raise self._located(messages, error) from error
            yield batch

    def read_tolerant(self, split: Sequence[Range]) -> Iterator[PositionedBatch | BadRow]:
        """The same rows, with their places, and in between the messages that can't be read."""
        for messages in self._messages(split):

            def attempt(start: int, end: int, within: Messages = messages) -> PositionedBatch | BadRow:
                part = within.part(start, end)
                return PositionedBatch(self._batch(part), part.position)

            def single(row: int, error: Exception, within: Messages = messages) -> PositionedBatch | BadRow:
                value = within.values[row] or b""
                return BadRow(value.decode(errors="replace"), self._reason(within, row, error), within.position(row))

            yield from process_or_bisect(len(messages.values), attempt, single, (pa.ArrowInvalid, SourceError))

    def _messages(self, split: Sequence[Range]) -> Iterator[Messages]:
        wanted = frozenset(self._added) & {"kafka_key", "kafka_headers", "kafka_timestamp"}
        reader = RangeReader(self.client, self.skip_lost, frozenset(each.removeprefix("kafka_") for each in wanted))
        try:
            for each in split:
                yield from reader.read(each)
        finally:
            reader.close()

    @property
    def _added(self) -> list[str]:
        names: list[str] = self.schema.names
        return names[len(self.decoder.schema) :]

    def _batch(self, messages: Messages) -> pa.RecordBatch:
        values = self.decoder.decode(messages.values)
        added = metadata_columns([self.schema.field(name) for name in self._added], messages)
        return pa.RecordBatch.from_arrays([*values.columns, *added], schema=self.schema)

    def _located(self, messages: Messages, error: Exception) -> SourceError:
        """The error that names the first message that is bad."""

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
