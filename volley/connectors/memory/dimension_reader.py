"""Reads the rows of a MemoryDimension."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

import pyarrow as pa

from volley.connectors.memory.reader import to_table
from volley.connectors.memory.source import MemorySource
from volley.contracts.dimension import DimensionReader, Version
from volley.errors import SnapshotNotFoundError

__all__ = ["MemoryDimensionReader"]


class MemoryDimensionReader(DimensionReader):
    """Reads the rows of a MemorySource, whose version is a digest of them.

    Args:
        source: The source.

    Raises:
        SourceError: If the rows don't fit one schema.
    """

    def __init__(self, source: MemorySource) -> None:
        self._table, _ = to_table(source.rows, source.schema)
        self.schema = self._table.schema

    def version(self) -> Version:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self.schema) as stream:
            stream.write_table(self._table.combine_chunks())
        return {"digest": hashlib.sha256(sink.getvalue()).hexdigest()}

    def read(self, version: Version, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        if version != self.version():
            raise SnapshotNotFoundError("the program has other rows now, or several joined tables have one name=")
        yield from self._table.select(columns).to_batches()
