"""Reads the rows of a table of dead letters that were not replayed yet, and decodes their payloads."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from volley.columns.batches import conform
from volley.columns.letters import LEFT, SCHEMA, column_in
from volley.contracts.rows import BadLetter, BadRow, LetterRows, PositionedBatch, tally
from volley.contracts.source import Offset, PayloadDecoder, Reader, Source, SourceContext, SplitReader
from volley.errors import ConfigError
from volley.formats import json as json_format
from volley.formats.messages import JsonValues
from volley.formats.rows import strict
from volley.iceberg.read.reader import IcebergReader, IcebergSplit, SplitRows, reader_of
from volley.iceberg.read.scope import Position, TableLoader, head_snapshot
from volley.iceberg.source_config import IcebergSourceConfig

__all__ = ["open_letters"]

_LOST = "\ufffd"
_HINT = "replay writes such rows back to the dead letter"


@dataclass(frozen=True)
class Letters:
    """Which letters are read, and how.

    Args:
        job: The job whose letters they are.
        source: Decodes them.
        schema: The schema of its rows.
        sinks: The labels of the sinks.
        is_only: True if letters that name no source are this one's.
    """

    job: str
    source: Source
    schema: pa.Schema
    sinks: frozenset[str]
    is_only: bool

    def pending(self, letters: pa.RecordBatch) -> pa.RecordBatch:
        """Return the letters of the source that were not replayed."""
        is_own = pc.equal(letters.column("source"), self.source.identity)
        if self.is_only:
            # Letters of 0.2.0 tell neither their source nor a format.
            is_own = pc.or_(pc.fill_null(is_own, False), letters.column("format").is_null())
        of_job = pc.equal(letters.column("job"), self.job)
        return letters.filter(pc.and_(pc.and_(letters.column("replayed").is_null(), of_job), is_own))

    def sinks_of(self, letter: dict[str, Any]) -> frozenset[str] | None:
        """Return the sinks that lack the row; None if the job does not have all of them, or they are not known."""
        if letter["sinks"] is None:
            return self.sinks if len(self.sinks) == 1 else None
        names = frozenset(json.loads(letter["sinks"]))
        return names if names and names <= self.sinks else None

    def decoder(self, format: str) -> PayloadDecoder | None:
        """Return what decodes payloads of a format; None = nothing does."""
        return self._rows if format == "row" else self.source.payload_decoder(format, self.schema)

    @cached_property
    def _rows(self) -> JsonValues | None:
        try:
            json_format.check(self.schema)
        except ConfigError:
            return None
        return JsonValues(self.schema, "drop")


def _format_of(letter: dict[str, Any]) -> str | None:
    """Return the format of a payload; None if it is not known, or bytes of it may be lost."""
    if letter["format"] is not None:
        return str(letter["format"])
    text = letter["payload"].lstrip()
    return "row" if text.startswith("{") and _LOST not in text else None


@dataclass(frozen=True)
class LetterSplits(SplitReader):
    """Reads splits of the table on executors."""

    rows: SplitRows
    letters: Letters

    def read(self, split: IcebergSplit) -> Iterator[pa.RecordBatch]:
        return strict(self.read_tolerant(split), _HINT)

    def read_tolerant(self, split: IcebergSplit) -> Iterator[PositionedBatch | BadRow]:
        for batch in self.rows.read(split):
            letters = self.letters.pending(conform(batch, SCHEMA))
            told = [(_format_of(letter), self.letters.sinks_of(letter)) for letter in letters.to_pylist()]
            start = 0
            for (format, sinks), run in groupby(told):
                count = len(list(run))
                yield from self._decoded(letters.slice(start, count), format, sinks)
                start += count

    def _decoded(
        self, letters: pa.RecordBatch, format: str | None, sinks: frozenset[str] | None
    ) -> Iterator[PositionedBatch | BadRow]:
        decoder = None if format is None else self.letters.decoder(format)
        if decoder is None or sinks is None:
            tally(LEFT, letters.num_rows)
            return
        positions = letters.column("position").to_pylist()
        rows = decoder.sort([payload.encode() for payload in letters.column("payload").to_pylist()])
        if rows.numbers:
            good = letters.take(pa.array(rows.numbers, pa.int64()))
            batch = conform(rows.batch, self.letters.schema)
            yield LetterRows(batch, lambda row: str(positions[rows.numbers[row]]), good, sinks)
        for number, fault in rows.faults.items():
            (letter,) = letters.slice(number, 1).to_pylist()
            yield BadLetter(letter["payload"], fault, letter["position"], str(format), column_in(fault), letter)


@dataclass(frozen=True)
class LetterReader(Reader):
    """Reads all pending letters of a snapshot: the end of each epoch names its own."""

    inner: IcebergReader
    letters: Letters
    _initial: Offset = field(default_factory=dict)

    @property
    def schema(self) -> pa.Schema:
        return self.letters.schema

    def initial_offset(self) -> Offset:
        return self._initial

    def latest_offset(self, start: Offset, limit: int | None, target: Offset | None) -> Offset:
        if target is not None:
            return target
        table = self.inner.loader.load()
        head = head_snapshot(table, self.inner.config)
        return start if head is None else Position.at_end(table, head).scanning(None).to_offset()

    def splits(self, start: Offset, end: Offset) -> list[IcebergSplit]:
        table = self.inner.loader.load()
        return self.inner.splits_of(table, Position.from_offset(self._initial), Position.from_offset(end))

    def size(self, split: IcebergSplit) -> int | None:
        return sum(part.size if hasattr(part, "size") else part.file.size for part in split.parts)

    def split_reader(self) -> SplitReader:
        return LetterSplits(self.inner.rows, self.letters)

    def read(self, split: IcebergSplit) -> Iterator[pa.RecordBatch]:
        return self.split_reader().read(split)

    def read_tolerant(self, split: IcebergSplit) -> Iterator[PositionedBatch | BadRow]:
        return self.split_reader().read_tolerant(split)


def open_letters(
    config: IcebergSourceConfig,
    context: SourceContext,
    job: str,
    source: Source,
    schema: pa.Schema,
    sinks: frozenset[str],
    is_only: bool,
) -> Reader:
    """Return the reader of a table of dead letters; `Letters` has the arguments.

    Raises:
        CatalogError: If the table does not exist, or the catalog can't be reached.
    """
    loader = TableLoader(config.ref)
    table = loader.load()
    initial = Position.at_end(table, None).to_offset()
    letters = SourceContext(context.state, context.parallelism)
    inner = reader_of(loader, table, config, initial, letters)
    return LetterReader(inner, Letters(job, source, schema, sinks, is_only), initial)
