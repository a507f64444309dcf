"""Adds the path of its file and its number in the file to each row of a FileSource."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from volley.contracts.rows import BadRow, PositionedBatch
from volley.errors import ConfigError

__all__ = ["FileColumns", "with_included"]

_FIELDS = {"file": pa.field("file_path", pa.string()), "row": pa.field("file_row", pa.int64())}


def with_included(schema: pa.Schema, include: Sequence[str]) -> pa.Schema:
    """Return the columns of files with those that are added.

    Raises:
        ConfigError: If the files have a column of that name.
    """
    for part in include:
        if (name := _FIELDS[part].name) in schema.names:
            raise ConfigError(
                f"the files have a column {name!r}, and include={part!r} adds one",
                hint="leave it out of the schema, or of include",
            )
    return pa.schema([*schema, *(_FIELDS[part] for part in include)])


@dataclass
class FileColumns:
    """Adds columns to the rows of one file, or of a part of it.

    Args:
        include: What to add: ``"file"``, ``"row"``.
        before: The number of the file's rows before those that come next; bad rows count.
        dictionaries: True: the path may be a dictionary array.
    """

    include: Sequence[str]
    path: str
    before: int
    dictionaries: bool

    def add(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches with the columns added."""
        for batch in batches:
            yield self._added(batch)

    def add_tolerant(self, items: Iterator[PositionedBatch | BadRow]) -> Iterator[PositionedBatch | BadRow]:
        """Yield the same items, the batches with the columns added."""
        for item in items:
            if isinstance(item, BadRow):
                self.before += 1
                yield item
            else:
                yield replace(item, batch=self._added(item.batch))

    def _added(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        count = batch.num_rows
        for part in self.include:
            batch = batch.append_column(_FIELDS[part].name, self._path(count) if part == "file" else self._rows(count))
        self.before += count
        return batch

    def _path(self, count: int) -> pa.Array:
        if self.dictionaries:
            return pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), count), pa.array([self.path]))
        return pa.repeat(self.path, count)

    def _rows(self, count: int) -> pa.Array:
        return pa.arange(self.before + 1, self.before + count + 1)
