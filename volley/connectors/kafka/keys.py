"""Decodes the keys of Kafka's messages into columns: those of a record by name, another one in one column."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from volley.columns.letters import payload_of
from volley.connectors.kafka.ranges import Messages
from volley.contracts.rows import BadRow, PositionedBatch
from volley.formats.framing import framed
from volley.formats.joined_values import Joined
from volley.formats.messages import Chunk, Decoder, MessageRows, TooManyError, Values, decode_errors
from volley.formats.newer_schemas import NewerSchemas

__all__ = ["KeyDecoder", "KeyedRows"]


_KEY = "kafka_key"


@dataclass(frozen=True)
class KeyDecoder:
    """Decodes keys.

    Args:
        is_alone: True: a key is one value; False: a record.
        decoder: What decodes them.
        framed: True: they name their schema, in front or in a header.
        newer: Notices keys with fields that their schema lacks; None: it is not a registry's.
    """

    is_alone: bool
    decoder: Decoder
    framed: bool
    newer: NewerSchemas | None

    @property
    def fields(self) -> list[pa.Field]:
        """The columns of keys: those of a record by name, behind ``kafka_key_``; of another one ``kafka_key``."""
        schema = self.decoder.schema
        if self.is_alone:
            return [pa.field(_KEY, schema.field(0).type)]
        return [pa.field(f"{_KEY}_{field.name}", field.type) for field in schema]

    def decoded(self, chunk: Messages) -> tuple[Messages, dict[int, str]]:
        """Return the messages with their keys as columns, without those whose key is bad, and why they are.

        Raises:
            SchemaChangedError: If a job that starts now reads more of the keys.
        """
        keys: Values = chunk.kept["key"]
        if self.framed:
            keys = [*map(partial(framed, "key"), keys, chunk.kept["headers"])]
        if self.newer is not None:
            self.newer.check(keys := Joined.of(keys))
        try:
            return replace(chunk, keys=self._decoded(keys)), {}
        except decode_errors:
            rows = self.decoder.sort(keys)
        batch = rows.batch if rows.numbers else self.decoder.decode([])
        return replace(chunk.take(rows.numbers), keys=batch), dict(rows.faults)

    def _decoded(self, keys: Values) -> pa.RecordBatch:
        try:
            return self.decoder.decode(keys)
        except TooManyError:
            half = len(keys) // 2
            return pa.concat_batches([self._decoded(keys[:half]), self._decoded(keys[half:])])


@dataclass(frozen=True)
class KeyedRows(MessageRows):
    """Decodes messages with their keys; one whose key is bad is a bad row."""

    keys: KeyDecoder

    def read_tolerant(self, chunks: Iterable[Messages]) -> Iterator[PositionedBatch | BadRow]:  # type: ignore[override]
        bad = deque[BadRow]()

        def good() -> Iterator[Chunk]:
            for chunk in chunks:
                messages, faults = self.keys.decoded(chunk)
                bad.extend(self._bad_row(chunk, number, fault) for number, fault in faults.items())
                if messages.values:
                    yield messages

        for item in super().read_tolerant(good()):
            while bad:
                yield bad.popleft()
            yield item
        yield from bad

    def _bad_row(self, chunk: Messages, number: int, fault: str) -> BadRow:
        payload, format = payload_of(chunk.values[number] or b"", self.decoder.format)
        return BadRow(payload, f"its key: {fault}"[:400], chunk.position(number), format, None)
