"""Reads ORC files as Arrow batches, one stripe after the other; memory holds a stripe."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from pyarrow import orc

from volley.contracts.rows import BadRow, PositionedBatch
from volley.errors import SourceError
from volley.formats.files import FormatReader
from volley.formats.input_file import InputFile, WholeFile
from volley.formats.options import NoOptions
from volley.formats.rows import fitting

__all__ = ["FORMAT", "OpenOrc", "opened"]

_BATCH_ROWS = 65_536


def infer(file: InputFile, options: NoOptions) -> pa.Schema:
    """Return the schema of the file."""
    with opened(file) as orc_file:
        return orc_file.schema


def rows(
    file: InputFile, schema: pa.Schema, part: tuple[int, int], options: NoOptions
) -> Iterator[PositionedBatch | BadRow]:
    """Yield the rows of a part with their places, and a `BadRow` for each row that doesn't fit the schema."""
    number, parts = part
    with opened(file) as orc_file:
        source = orc_file.source
        file.check_columns(source.schema, schema)
        # At least one column: batches without columns have lost their number of rows.
        columns = [name for name in schema.names if name in source.schema.names] or source.schema.names[:1]
        for stripe in range(number * source.nstripes // parts, (number + 1) * source.nstripes // parts):
            batch = orc_file.stripe(stripe, columns)
            yield from fitting(file, batch, schema, partial(_position, file, stripe))


def _position(file: InputFile, stripe: int, row: int) -> str:
    return f"{file.name}, stripe {stripe + 1}, row {row + 1}"


@contextmanager
def opened(file: InputFile) -> Iterator[OpenOrc]:
    """Open an ORC file for as long as the context lasts.

    Raises:
        SourceError: If it is damaged, or has a value that Arrow can't hold.
    """
    try:
        with file.open() as stream:
            yield OpenOrc(file, orc.ORCFile(stream))
    except (pa.ArrowException, OSError) as error:
        raise SourceError(
            f"{file.name} can't be read as ORC: {error}", hint="was it cut, or is it another format?"
        ) from error


@dataclass(frozen=True)
class OpenOrc:
    """An open ORC file; like an open Parquet file with one row group.

    Args:
        file: The file, for its name in errors.
    """

    file: InputFile
    source: orc.ORCFile

    @property
    def schema(self) -> pa.Schema:
        """Its columns, as Arrow reads them."""
        schema: pa.Schema = self.source.schema
        return schema

    @property
    def groups(self) -> Sequence[WholeFile]:
        """The whole file: how many rows each stripe has is not known before it is read."""
        return [WholeFile(self.source.nrows)]

    def stripe(self, number: int, names: Collection[str]) -> pa.RecordBatch:
        """Return columns of a stripe: all with these names, even if two have the same."""
        own = self.schema.names
        counts = Counter(own)
        if not any("." in name or counts[name] > 1 for name in names):
            return self.source.read_stripe(number, [*names])
        # Arrow may take such a name for another column: one with a dot for the path of a field.
        batch = self.source.read_stripe(number)
        return batch.select([index for index, name in enumerate(own) if name in names])

    def part(self, number: int, parts: int) -> range:
        """Return the groups of one of several parts: the first one has all rows."""
        return range(0 if number else 1)

    def batches(
        self, columns: Sequence[str], groups: Iterable[int], encoded: pa.Schema | None = None, rows: int = _BATCH_ROWS
    ) -> Iterator[tuple[pa.RecordBatch, int]]:
        """Yield the rows, each batch with the number of the file's rows before it; see `OpenParquet.batches`."""
        # Batches without columns have lost their number of rows.
        names, before = list(columns) or self.schema.names[:1], 0
        for stripe in range(self.source.nstripes if list(groups) else 0):
            batch = self.stripe(stripe, names)
            for start in range(0, batch.num_rows, rows):
                yield batch.slice(start, rows), before + start
            before += batch.num_rows


FORMAT = FormatReader(infer, rows)
"""The reader of ORC files."""
