"""Messages of a topic whose schema a registry has: both are files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.fuzz.target import Target
from volley.contracts.rows import BadRow
from volley.formats.messages import Decoder, MessageRows
from volley.formats.newer_schemas import KINDS
from volley.formats.registered import Registered

__all__ = ["Messages"]


_SCHEMA = "schema.json"


@dataclass(frozen=True)
class OneSchema:
    """A registry of one schema.

    Args:
        text: The schema.
        kind: Its kind.
    """

    text: str
    kind: str

    def schema(self, number: int) -> str:
        return self.text

    def avro(self, head: bytes) -> str:
        return self.text

    def registered(self, head: bytes, kind: str) -> Registered:
        return Registered(self.kind, self.text)


@dataclass(frozen=True)
class _Chunk:
    values: list[bytes]

    def part(self, start: int, end: int) -> _Chunk:
        return _Chunk(self.values[start:end])

    def position(self, row: int) -> str:
        return f"message {row}"


@dataclass(frozen=True)
class Messages(Target):
    """Messages with the id of their schema in front.

    Args:
        name: The target's name.
        pattern: The files to mutate: those of messages, or that of the schema.
        format: Their format, out of `KINDS`.
    """

    name: str
    pattern: str
    format: str

    def schema(self) -> bytes:
        """Return the schema that messages are written with."""
        raise NotImplementedError

    def text(self, schema: bytes) -> str:
        """Return the text that a registry has of a schema."""
        return schema.decode(errors="replace")

    def values(self) -> list[bytes]:
        """Return the messages, with what stands in front of them."""
        raise NotImplementedError

    def kept(self) -> bytes:
        """Return the schema to read by, as it is kept."""
        raise NotImplementedError

    def decoder(self, registry: Any) -> Decoder:
        """Return what decodes messages."""
        raise NotImplementedError

    def make(self, folder: Path) -> list[Path]:
        (folder / _SCHEMA).write_bytes(self.schema())
        for number, value in enumerate(self.values()):
            (folder / f"{number:02}.message").write_bytes(value)
        return sorted(folder.glob(self.pattern))

    def read(self, folder: Path) -> Any:
        kind = KINDS[self.format]
        registry = OneSchema(self.text((folder / _SCHEMA).read_bytes()), kind.name)
        decoder = self.decoder(registry)
        chunk: Any = _Chunk([file.read_bytes() for file in sorted(folder.glob("*.message"))])
        rows = MessageRows(decoder, decoder.schema, lambda fields, part: [])
        # Each message is a row or a bad one.
        each = [1 if isinstance(item, BadRow) else item.batch.num_rows for item in rows.read_tolerant([chunk])]
        if sum(each) != len(chunk.values):
            raise AssertionError(f"{sum(each)} rows of {len(chunk.values)} messages")
        # What a job reads by once this is the latest schema.
        latest = kind.text(registry.registered(b"", kind.name))
        merged = kind.merged(self.kept(), latest)
        if kind.merged(merged, latest) != merged:
            raise AssertionError("merged twice, the schema is another one")
        return pa.Table.from_batches(rows.read([chunk]), decoder.schema), merged
