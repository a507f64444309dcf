"""Rows in memory as a source and as a sink: for tests, examples and notebooks."""

from __future__ import annotations

import posixpath
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Any

from volley._checks import count, keep, optional, text
from volley._types import schema_setting
from volley.connectors._memory_table import checked, conformed, table_of
from volley.connectors._paths import filesystem
from volley.errors import ConfigError, SourceError
from volley.sink import Committer, Epoch, Sink, SinkContext, WriteResult
from volley.source import BadRow, Located, Offset, SplitSource, counted

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ABORT", "EOF", "MemorySink", "MemorySource"]

_ROWS_PER_SPLIT = 10_000


class Marker(Enum):
    """What may stand between the rows of a MemorySource, to test what happens there (after bytewax's TestingSource)."""

    ABORT = "ABORT"
    EOF = "EOF"

    def __repr__(self) -> str:
        return self.value


ABORT = Marker.ABORT
"""The epoch that has it fails, once, after its rows; later runs with the same checkpoint pass over it."""

EOF = Marker.EOF
"""The source ends here for this run; the next run with the same checkpoint goes on behind it."""


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


@dataclass(frozen=True, repr=False)
class MemorySource(SplitSource):
    """Rows given as Python values or Arrow data; bounded.

    Args:
        rows: Dicts (with ABORT and EOF between them, if wanted), a `pyarrow.Table`, one or more
            `pyarrow.RecordBatch`, or a frame of pandas (NaN is null, an index with a name a column) or polars.
        schema: Their columns; None = taken from the Arrow data or frame, or inferred from the dicts.
        rows_per_epoch: The most rows of one epoch; None = all.
        name: What tells it from other sources in memory: a checkpoint is bound to it.

    Raises:
        ConfigError: If `rows` are no rows, `schema` is no schema, or `rows_per_epoch` is not positive.

    Example:
        >>> MemorySource([{"id": 1}, {"id": 2}], rows_per_epoch=1)
        MemorySource(2 rows)
    """

    rows: Any = field(hash=False)
    schema: Any = None
    rows_per_epoch: int | None = None
    name: str = "memory"
    _markers: _Markers = field(default=_Markers(), compare=False)
    _state: str = field(default="", compare=False)
    _run: _Run = field(default_factory=_Run, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", checked(self.rows, Marker))
        keep(self, schema=optional(schema_setting), rows_per_epoch=optional(count), name=text)

    @property
    def bounded(self) -> bool:
        return True

    @property
    def identity(self) -> str:
        return f"memory:{self.name}"

    @property
    def limit(self) -> int | None:
        return self.rows_per_epoch

    def preview(self, state: str) -> pa.Schema | None:
        schema: pa.Schema = self.open(state).schema
        return schema

    def open(self, state: str, parallelism: int = 1) -> MemorySource:
        """The rows as one Arrow table, the markers beside it.

        Raises:
            SourceError: If the rows do not fit one schema; names the column.
        """
        table, markers = _parted(self.rows, self.schema) if isinstance(self.rows, tuple) else (self.rows, _Markers())
        table = conformed(table, self.schema)
        return replace(self, rows=table, schema=table.schema, _markers=markers, _state=state, _run=_Run())

    def initial_offset(self) -> Offset:
        return {"rows": 0}

    def latest_offset(self, start: Offset, limit: int | None, target: Offset | None) -> Offset:
        first, end = int(start["rows"]), int(self.rows.num_rows)
        if target is not None:
            # Only a bounded run has a target, and its first question tells where it begins.
            if self._run.stop is None:
                self._run.stop = self._markers.next_end(first, default=end)
            end = min(self._run.stop, target["rows"])
        return {"rows": max(first, end if limit is None else min(end, first + limit))}

    def splits(self, start: Offset, end: Offset) -> list[tuple[int, int, bool]]:
        first, last = start["rows"], end["rows"]
        # All of them are noted as met, so that one run aborts once.
        aborts = [position for position in self._markers.aborts_between(first, last) if self._aborts_at(position)]
        # The rows before the first ABORT are read; nobody would see those behind it.
        last = aborts[0] if aborts else last
        cuts = [(at, min(at + _ROWS_PER_SPLIT, last), False) for at in range(first, last, _ROWS_PER_SPLIT)]
        if aborts:
            begin = cuts.pop()[0] if cuts else first
            cuts.append((begin, last, True))
        return cuts

    def _aborts_at(self, position: int) -> bool:
        """True in the first run that comes to this ABORT; a file in the state folder tells the later ones."""
        files, path = filesystem(f"{self._state}/abort-{position}", {})
        if not files.exists(path):
            files.makedirs(posixpath.dirname(path), exist_ok=True)
            files.touch(path)
            self._run.aborts.add(position)
        return position in self._run.aborts

    def read(self, split: tuple[int, int, bool]) -> Iterator[pa.RecordBatch]:
        start, end, aborts = split
        yield from self.rows.slice(start, end - start).to_batches()
        if aborts:
            raise SourceError(f"aborted by the ABORT marker at row {end}", hint="start again: it aborts only once")

    def read_tolerant(self, split: tuple[int, int, bool]) -> Iterator[Located | BadRow]:
        yield from counted(self.read(split), self.identity, split[0])

    def __repr__(self) -> str:
        if isinstance(self.rows, tuple):
            count = sum(getattr(row, "num_rows", 1) for row in self.rows if not isinstance(row, Marker))
        else:
            count = self.rows.num_rows
        return f"MemorySource({count} row{'' if count == 1 else 's'})"


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


@dataclass(frozen=True)
class MemorySink(Sink):
    """Rows collected on the driver, where `rows` and `table` show them; they live as long as the sink.

    Args:
        name: What tells it from others; sinks of one name are equal but collect by themselves.

    Example:
        >>> MemorySink("out").rows()
        []
    """

    name: str = "memory"
    _epochs: dict[Epoch, pa.Table] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        keep(self, name=text)

    def open(self, context: SinkContext) -> Committer:
        return _MemoryCommitter(self._epochs, context.schema)

    def rows(self) -> list[dict[str, Any]]:
        """The rows of all epochs so far, epoch by epoch; a date beyond the years 1 to 9999 is text."""
        from volley._readable import readable_rows

        return [row for table in list(self._epochs.values()) for row in readable_rows(table)]

    def table(self) -> pa.Table:
        """The rows as an Arrow table; if jobs with different columns have filled it, with the columns of all.

        Raises:
            ConfigError: If there was no epoch yet, so that the schema is not known.
        """
        import pyarrow as pa

        tables = list(self._epochs.values())
        if not tables:
            raise ConfigError(f"{self!r} has no rows yet", hint="run the pipeline first")
        return pa.concat_tables(tables, promote_options="permissive")

    def clear(self) -> None:
        """Forget the rows, not which epochs there were."""
        for epoch, table in list(self._epochs.items()):
            self._epochs[epoch] = table.slice(0, 0)

    def __repr__(self) -> str:
        return f"MemorySink({self.name!r})"


class _MemoryCommitter(Committer):
    def __init__(self, epochs: dict[Epoch, pa.Table], schema: pa.Schema) -> None:
        self._epochs = epochs
        self._schema = schema

    def last_epoch(self, query_id: str) -> int | None:
        return max((epoch.number for epoch in self._epochs if epoch.query_id == query_id), default=None)

    def landed_offsets(self, epoch: Epoch) -> str | None:
        return next((landed.offsets for landed in self._epochs if landed == epoch), None)

    def clear(self) -> None:
        self._epochs.clear()

    def writer(self, epoch: Epoch) -> _MemoryWriter:
        return _MemoryWriter()

    def commit(self, epoch: Epoch, results: Sequence[WriteResult]) -> None:
        import pyarrow as pa

        streams = [stream for result in results for stream in result.committables]
        batches = [batch for stream in streams for batch in pa.ipc.open_stream(stream)]
        self._epochs[epoch] = pa.Table.from_batches(batches, self._schema)

    def abort(self, epoch: Epoch, results: Sequence[WriteResult]) -> None:
        """Nothing is left behind."""


class _MemoryWriter:
    def open(self, task: int) -> _MemoryTaskWriter:
        return _MemoryTaskWriter()


class _MemoryTaskWriter:
    """Collects batches; they travel to the driver as one Arrow stream."""

    def __init__(self) -> None:
        self._batches: list[pa.RecordBatch] = []
        self._result = WriteResult()
        self._began = time.perf_counter()

    def check(self, batch: pa.RecordBatch) -> None:
        """Every row of the stream's schema fits."""

    def write(self, batch: pa.RecordBatch) -> None:
        self._batches.append(batch)
        self._result = self._result.with_batch(batch.num_rows)

    def close(self) -> WriteResult:
        import pyarrow as pa

        if not self._batches:
            return WriteResult()
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self._batches[0].schema) as stream:
            for batch in self._batches:
                stream.write_batch(batch)
        data = sink.getvalue().to_pybytes()
        seconds = time.perf_counter() - self._began
        return replace(self._result, bytes=len(data), seconds=seconds, committables=(data,))

    def abort(self) -> None:
        """Nothing is left behind."""
