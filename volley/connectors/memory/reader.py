"""Runs a MemorySource: converts its rows to one Arrow table, which is sent to the executors with the reader."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa

from volley.columns.batches import conform
from volley.columns.exact import array_of
from volley.columns.unknown import unknown_columns, unknown_in_values
from volley.contracts.dimension import DimensionReader, Version
from volley.contracts.rows import BadRow, PositionedBatch, numbered
from volley.contracts.source import Offset, Reader
from volley.errors import ConfigError, SnapshotNotFoundError, SourceError, near
from volley.storage.durable import write_durably
from volley.storage.paths import filesystem
from volley.types.arrow import arrow_schema, canonical_schema, inferred_schema

__all__ = ["Markers", "MemoryDimensionReader", "MemoryReader", "table_from_frame", "to_table"]


_ROWS_PER_SPLIT = 10_000
_HASHED_ROWS = 1_000
_DIGEST_BYTES = 12


@dataclass
class _RunState:
    """Per-process state of a run."""

    stop: int | None = None  # the row where this run stops; set in the process that plans epochs
    # The ABORT markers that fired in this run; set in the process that plans splits.
    aborts: set[int] = field(default_factory=set)
    # The hashes of all rows before each whole block of rows; set in the process that plans epochs.
    hashes: list[bytes] = field(default_factory=lambda: [b""])


@dataclass(frozen=True)
class Markers:
    """The positions of a MemorySource's markers, as the number of rows before each."""

    ends: tuple[int, ...] = ()
    # The positions of ABORTs, each with True if a run ends right after it: it belongs to the row before.
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
    """Reads a table, of which an epoch has at most `limit` rows; the folder `state` records which ABORTs have fired."""

    table: pa.Table = field(repr=False)
    schema: pa.Schema
    markers: Markers
    name: str
    state: str
    limit: int | None
    run: _RunState = field(default_factory=_RunState)

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

    def size(self, split: tuple[int, int, bool]) -> int:
        return int(self.table.slice(split[0], split[1] - split[0]).nbytes)

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


def to_table(rows: Any, declared: Any) -> pa.Table:
    """Return rows, without markers, as one Arrow table of the declared schema; None = that of the rows.

    Raises:
        SourceError: If the rows don't fit one schema; names the column.
    """
    table = _table_of(rows, declared) if isinstance(rows, list) else _table(rows)
    schema = inferred_schema(table.schema) if declared is None else canonical_schema(arrow_schema(declared))
    if unknown := next(unknown_columns(table.schema, schema), None):
        raise _unknown_column(unknown, schema)
    return pa.Table.from_batches([conform(batch, schema) for batch in table.to_batches()], schema)


class MemoryDimensionReader(DimensionReader):
    """Reads the rows of a MemorySource as a table that is joined; its version is a digest of them."""

    is_fixed = True

    def __init__(self, table: pa.Table) -> None:
        self._table = table
        self.schema = table.schema

    def version(self) -> Version:
        return {"digest": self._digest}

    @cached_property
    def _digest(self) -> str:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self.schema) as stream:
            stream.write_table(self._table.combine_chunks())
        return hashlib.sha256(sink.getvalue()).hexdigest()

    def read(self, version: Version, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        if version != self.version():
            raise SnapshotNotFoundError("the program has other rows now")
        yield from self._table.select(columns).to_batches()


def table_from_frame(frame: Any) -> pa.Table:
    """Return the table of any object with Arrow's C stream interface; a pandas frame's named index is a column."""
    try:
        if hasattr(frame, "index") and hasattr(frame, "columns"):
            has_name = any(name is not None for name in frame.index.names)
            return pa.Table.from_pandas(frame, preserve_index=has_name).replace_schema_metadata()
        return pa.table(frame)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise ConfigError(
            f"a {type(frame).__name__} can't be read as columns: {error}",
            hint="give each column one type that Arrow has, or give a list of dicts",
        ) from error


def _table_of(rows: Sequence[Any], declared: Any) -> pa.Table:
    """Return dicts as a table of the declared or inferred schema; concatenate tables and batches."""
    if not rows and declared is None:
        raise SourceError("there are no rows to infer a schema from", hint="declare it: schema=…")
    if rows and isinstance(rows[0], pa.Table | pa.RecordBatch):
        return pa.concat_tables([_table(part) for part in rows], promote_options="permissive")
    names = list(dict.fromkeys(name for row in rows for name in row))
    if declared is None:
        return pa.table({name: _infer_array(name, [row.get(name) for row in rows]) for name in names})
    schema = canonical_schema(arrow_schema(declared))
    for name in names:
        if name not in schema.names:
            raise _unknown_column(name, schema)
    arrays = [_to_array(field, [row.get(field.name) for row in rows], schema) for field in schema]
    return pa.table(arrays, schema=schema)


def _table(data: Any) -> pa.Table:
    return pa.Table.from_batches([data]) if isinstance(data, pa.RecordBatch) else data


def _infer_array(name: str, values: list[Any]) -> pa.Array:
    try:
        return pa.array(values)
    except (pa.ArrowException, OverflowError) as error:
        raise SourceError(f"column {name!r} has no one type: {error}", hint="declare it: schema=…") from error


def _unknown_column(name: str, schema: pa.Schema) -> SourceError:
    return SourceError(f"a row has the column {name!r}, the schema has not", hint=near(name, schema.names))


def _to_array(field: pa.Field, values: list[Any], schema: pa.Schema) -> pa.Array:
    if unknown := unknown_in_values(values, field):
        raise _unknown_column(unknown, schema)
    try:
        return array_of(values, field.type)
    except (pa.ArrowException, TypeError, OverflowError) as error:
        raise SourceError(
            f"column {field.name!r} has a value that is no {field.type}: {error}", hint="mend the row or the schema"
        ) from error
