"""Reads splits of Kafka offsets as rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from volley.connectors.kafka.client import Client
from volley.connectors.kafka.metadata import metadata_columns
from volley.connectors.kafka.offsets import OffsetRange
from volley.connectors.kafka.ranges import Messages, RangeReader
from volley.contracts.bad_rows import BadRow, PositionedBatch
from volley.formats.message_rows import MessageRows
from volley.formats.messages import Decoder

__all__ = ["RowReader"]


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
        return self._rows.read(self._messages(split))

    def read_tolerant(self, split: Sequence[OffsetRange]) -> Iterator[PositionedBatch | BadRow]:
        """Yield the same rows with their positions, and a `BadRow` for each message that can't be decoded."""
        return self._rows.read_tolerant(self._messages(split))

    @property
    def _rows(self) -> MessageRows:
        return MessageRows(self.decoder, self.schema, metadata_columns)

    def _messages(self, split: Sequence[OffsetRange]) -> Iterator[Messages]:
        metadata: list[str] = self.schema.names[len(self.decoder.schema) :]
        names = frozenset(metadata) & {"kafka_key", "kafka_headers", "kafka_timestamp"}
        reader = RangeReader(self.client, self.skip_lost, frozenset(name.removeprefix("kafka_") for name in names))
        try:
            for offset_range in split:
                yield from reader.read(offset_range)
        finally:
            reader.close()
