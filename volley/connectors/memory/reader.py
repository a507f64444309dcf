"""Runs a MemorySource: the rows are sent to the executors with the reader."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from volley.connectors.memory.rows import ABORT, EOF, Marker
from volley.connectors.memory.table import conformed, table_of
from volley.contracts.bad_rows import BadRow, PositionedBatch, numbered
from volley.contracts.source import Offset, Reader
from volley.errors import SourceError
from volley.storage.durable import write_durably
from volley.storage.paths import filesystem

__all__ = ["MemoryReader", "to_table"]

_ROWS_PER_SPLIT = 10_000
_HASHED_ROWS = 1_000
_DIGEST_BYTES = 12


@dataclass
class _Run:
    """Per-process state of a run.

    Attributes:
        stop: The row where this run stops; set in the process that plans epochs.
        aborts: The ABORT markers that fired in this run; set in the process that plans splits.
        hashes: The hashes of all rows before each whole block of rows; set in the process that plans epochs.
    """

    stop: int | None = None
    aborts: set[int] = field(default_factory=set)
    hashes: list[bytes] = field(default_factory=lambda: [b""])


@dataclass(frozen=True)
class _Markers:
    """The positions of the markers, as the number of rows before each.

    Args:
        ends: The positions of EOFs.
        aborts: The positions of ABORTs, each with True if a run ends right after it: it belongs to the row before.
    """

    ends: tuple[int, ...] = ()
    aborts: tuple[tuple[int, bool], ...] = ()

    def next_end(self, start: int, default: int) -> int:
        return min((position for position in self.ends if position > start), default=default)

    def aborts_between(self, first: int, last: int) -> list[int]:
        return [
            position
            for position, is_last in self.aborts
            if (first < position <= last if is_last else first <= position < last)
        ]


@dataclass(frozen=True)
class MemoryReader(Reader):
    """Reads a table.

    Args:
        table: The rows.
        schema: Their columns.
        markers: The markers between them.
        name: The source's name in errors.
        state: The fsspec URL of the folder that records which ABORTs have fired.
        limit: The maximum number of rows per epoch; None = all.
        run: The state of this run in this process.
    """

    table: pa.Table = field(repr=False)
    schema: pa.Schema
    markers: _Markers
    name: str
    state: str
    limit: int | None
    run: _Run = field(default_factory=_Run)

    def initial_offset(self) -> Offset:
        return {"rows": 0}

    def latest_offset(self, start: Offset, limit: int | None, target: Offset | None) -> Offset:
        first, end = int(start["rows"]), int(self.table.num_rows)
        if target is not None:
            # Only a bounded run has a target; the first call has the run's start.
            if self.run.stop is None:
                self.run.stop = self.markers.next_end(first, default=end)
            end = min(self.run.stop, target["rows"])
        last = end if limit is None else min(end, first + limit)
        return {"rows": last, "hash": self._hash(last)} if last > first else start

    def _hash(self, rows: int) -> str:
        """Return a hash of the first rows: other rows that the next run has must not pass for those that were read."""
        hashes = self.run.hashes
        for begin in range((len(hashes) - 1) * _HASHED_ROWS, rows - _HASHED_ROWS + 1, _HASHED_ROWS):
            hashes.append(_chained(hashes[-1], self.table.slice(begin, _HASHED_ROWS)))
        blocks, rest = divmod(rows, _HASHED_ROWS)
        return _chained(hashes[blocks], self.table.slice(rows - rest, rest)).hex()

    def splits(self, start: Offset, end: Offset) -> list[tuple[int, int, bool]]:
        first, last = start["rows"], end["rows"]
        # Record all of them as fired, so that a run aborts only once.
        aborts = [position for position in self.markers.aborts_between(first, last) if self._aborts_at(position)]
        # Rows after the first ABORT are not read: the epoch fails before they are written.
        last = aborts[0] if aborts else last
        starts = range(first, last, _ROWS_PER_SPLIT)
        splits = [(begin, min(begin + _ROWS_PER_SPLIT, last), False) for begin in starts]
        if aborts:
            begin = splits.pop()[0] if splits else first
            splits.append((begin, last, True))
        return splits

    def _aborts_at(self, position: int) -> bool:
        """Return True in the first run that reaches this ABORT; a file in the state folder records that it fired."""
        files, path = filesystem(f"{self.state}/abort-{position}", {})
        if not files.exists(path):
            write_durably(files, path, b"")
            self.run.aborts.add(position)
        return position in self.run.aborts

    def read(self, split: tuple[int, int, bool]) -> Iterator[pa.RecordBatch]:
        start, end, aborts = split
        yield from self.table.slice(start, end - start).to_batches()
        if aborts:
            raise SourceError(f"aborted by the ABORT marker at row {end}", hint="start again: it aborts only once")

    def read_tolerant(self, split: tuple[int, int, bool]) -> Iterator[PositionedBatch | BadRow]:
        yield from numbered(self.read(split), self.name, split[0])


def _chained(before: bytes, rows: pa.Table) -> bytes:
    """Return the hash of rows and all rows before them, given theirs."""
    # Copy them: a slice of Arrow's IPC format may have bytes of the rows behind it.
    copy = rows.take(pa.arange(0, rows.num_rows)).combine_chunks()
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, rows.schema) as writer:
        writer.write_table(copy)
    digest = hashlib.blake2b(before, digest_size=_DIGEST_BYTES)
    digest.update(stream.getvalue())
    return digest.digest()


def to_table(rows: Any, schema: Any) -> tuple[pa.Table, _Markers]:
    """Return the rows of a MemorySource as one Arrow table, and the markers.

    Args:
        rows: The rows, with markers between them.
        schema: The declared schema; None = the schema of the rows.

    Raises:
        SourceError: If the rows don't fit one schema; names the column.
    """
    table, markers = _separate(rows, schema) if isinstance(rows, tuple) else (rows, _Markers())
    return conformed(table, schema), markers


def _separate(rows: tuple[Any, ...], schema: Any) -> tuple[pa.Table, _Markers]:
    """Separate rows and markers."""
    data = [row for row in rows if not isinstance(row, Marker)]
    ends: list[int] = []
    aborts: list[tuple[int, bool]] = []
    position = len(data)
    is_last = True
    # In reverse order, so that what follows an ABORT is known.
    for row in reversed(rows):
        if row is EOF:
            ends.append(position)
            is_last = True
        elif row is ABORT:
            aborts.insert(0, (position, is_last))
        else:
            position -= 1
            is_last = False
    return table_of(data, schema), _Markers(tuple(ends), tuple(aborts))
