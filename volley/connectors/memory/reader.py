"""Reads rows in memory: they travel to the executors with the reader."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from volley.bad_rows import BadRow, PositionedBatch, numbered
from volley.connectors.memory.rows import ABORT, EOF, Marker
from volley.connectors.memory.table import conformed, table_of
from volley.errors import SourceError
from volley.source import Offset, Reader
from volley.storage.paths import filesystem

__all__ = ["MemoryReader", "tabled"]

_ROWS_PER_SPLIT = 10_000


@dataclass
class _Run:
    """What a process remembers of this run: the planner its stop, who plans splits the aborts."""

    stop: int | None = None
    aborts: set[int] = field(default_factory=set)


@dataclass(frozen=True)
class _Markers:
    """Where the markers stand, as the number of rows before them.

    Args:
        ends: The EOFs.
        aborts: The ABORTs, each with True if a run ends behind it, so that it belongs to the row before it.
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
        markers: What stands between them.
        name: What errors call the source.
        state: The fsspec URL of the folder that tells which ABORTs were met.
        limit: The most rows of one epoch; None = all.
        run: What this process remembers of this run.
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
            # Only a bounded run has a target, and its first question tells where it begins.
            if self.run.stop is None:
                self.run.stop = self.markers.next_end(first, default=end)
            end = min(self.run.stop, target["rows"])
        return {"rows": max(first, end if limit is None else min(end, first + limit))}

    def splits(self, start: Offset, end: Offset) -> list[tuple[int, int, bool]]:
        first, last = start["rows"], end["rows"]
        # All of them are noted as met, so that one run aborts once.
        aborts = [position for position in self.markers.aborts_between(first, last) if self._aborts_at(position)]
        # The rows before the first ABORT are read; nobody would see those behind it.
        last = aborts[0] if aborts else last
        cuts = [(at, min(at + _ROWS_PER_SPLIT, last), False) for at in range(first, last, _ROWS_PER_SPLIT)]
        if aborts:
            begin = cuts.pop()[0] if cuts else first
            cuts.append((begin, last, True))
        return cuts

    def _aborts_at(self, position: int) -> bool:
        """True in the first run that comes to this ABORT; a file in the state folder tells the later ones."""
        files, path = filesystem(f"{self.state}/abort-{position}", {})
        if not files.exists(path):
            files.makedirs(posixpath.dirname(path), exist_ok=True)
            files.touch(path)
            self.run.aborts.add(position)
        return position in self.run.aborts

    def read(self, split: tuple[int, int, bool]) -> Iterator[pa.RecordBatch]:
        start, end, aborts = split
        yield from self.table.slice(start, end - start).to_batches()
        if aborts:
            raise SourceError(f"aborted by the ABORT marker at row {end}", hint="start again: it aborts only once")

    def read_tolerant(self, split: tuple[int, int, bool]) -> Iterator[PositionedBatch | BadRow]:
        yield from numbered(self.read(split), self.name, split[0])


def tabled(rows: Any, schema: Any) -> tuple[pa.Table, _Markers]:
    """The rows of a MemorySource as one Arrow table, the markers beside it.

    Args:
        rows: The rows.
        schema: The declared schema; None = their own.

    Raises:
        SourceError: If the rows do not fit one schema; names the column.
    """
    table, markers = _parted(rows, schema) if isinstance(rows, tuple) else (rows, _Markers())
    return conformed(table, schema), markers


def _parted(rows: tuple[Any, ...], schema: Any) -> tuple[pa.Table, _Markers]:
    """Rows and markers, each for itself."""
    plain = [row for row in rows if not isinstance(row, Marker)]
    ends: list[int] = []
    aborts: list[tuple[int, bool]] = []
    position = len(plain)
    ends_behind = True
    # From the end, so that it is known what comes behind an ABORT.
    for row in reversed(rows):
        if row is EOF:
            ends.append(position)
            ends_behind = True
        elif row is ABORT:
            aborts.insert(0, (position, ends_behind))
        else:
            position -= 1
            ends_behind = False
    return table_of(plain, schema), _Markers(tuple(ends), tuple(aborts))
