"""Rows in memory as a source and as a sink: for tests, examples and notebooks."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Any

from volley._types import arrow_schema, canonical_schema, check_schema, conform
from volley.errors import ConfigError, SourceError, near
from volley.sink import Committer, Epoch, Sink, SinkContext, WriteResult
from volley.source import Offset, SplitSource

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
    """What the planner process remembers of this run."""

    stop: int | None = None
    aborts: set[int] = field(default_factory=set)


@dataclass(frozen=True, repr=False)
class MemorySource(SplitSource):
    """Rows given as Python values or Arrow data; bounded.

    Args:
        rows: Dicts (with ABORT and EOF between them, if wanted), a `pyarrow.Table` or a `pyarrow.RecordBatch`.
        schema: Their columns; None = taken from the Arrow data, or inferred from the dicts.
        rows_per_epoch: The most rows of one epoch; None = all.
        name: What tells it from other sources in memory: a checkpoint is bound to it.

    Raises:
        ConfigError: If `schema` is no schema, or `rows_per_epoch` is not positive.

    Example:
        >>> MemorySource([{"id": 1}, {"id": 2}], rows_per_epoch=1)
        MemorySource(2 rows)
    """

    rows: Any
    schema: Any = None
    rows_per_epoch: int | None = None
    name: str = "memory"
    _markers: tuple[tuple[int, Marker], ...] = field(default=(), compare=False)
    _state: str = field(default="", compare=False)
    _run: _Run = field(default_factory=_Run, compare=False)

    def __post_init__(self) -> None:
        if self.rows_per_epoch is not None and self.rows_per_epoch < 1:
            raise ConfigError(f"rows_per_epoch is {self.rows_per_epoch}", hint="at least 1, or None for all rows")
        if self.schema is not None:
            object.__setattr__(self, "schema", check_schema(self.schema))

    @property
    def bounded(self) -> bool:
        return True

    @property
    def identity(self) -> str:
        return f"memory:{self.name}"

    @property
    def limit(self) -> int | None:
        return self.rows_per_epoch

    def open(self, state: str) -> MemorySource:
        """The rows as one Arrow table, the markers beside it.

        Raises:
            SourceError: If the rows do not fit one schema; names the column.
        """
        markers: list[tuple[int, Marker]] = []
        plain: list[Mapping[str, Any]] = []
        if isinstance(self.rows, Sequence):
            for row in self.rows:
                if isinstance(row, Marker):
                    markers.append((len(plain), row))
                else:
                    plain.append(row)
            table = _table_of(plain, self.schema)
        else:
            table = _table_of_arrow(self.rows, self.schema)
        return replace(self, rows=table, schema=table.schema, _markers=tuple(markers), _state=state)

    def initial_offset(self) -> Offset:
        return {"rows": 0}

    def latest_offset(self, start: Offset, limit: int | None, target: Offset | None) -> Offset:
        end: int = self.rows.num_rows
        if target is not None:
            # Only a bounded run has a target, and its first question tells where it begins.
            if self._run.stop is None:
                self._run.stop = self._next_stop(start["rows"])
            end = self._run.stop
        return {"rows": end if limit is None else min(end, start["rows"] + limit)}

    def _next_stop(self, start: int) -> int:
        ends = [position for position, marker in self._markers if marker is EOF and position > start]
        return min(ends, default=self.rows.num_rows)

    def splits(self, start: Offset, end: Offset) -> list[tuple[int, int, bool]]:
        first, last = start["rows"], end["rows"]
        cuts = [(at, min(at + _ROWS_PER_SPLIT, last), False) for at in range(first, last, _ROWS_PER_SPLIT)]
        # All of them are noted as met, so that one run aborts once.
        met = [self._aborts_at(position) for position, _ in self._markers if self._lies(position, first, last)]
        if any(met):
            cuts.append((last, last, True))
        return cuts

    def _lies(self, position: int, first: int, last: int) -> bool:
        """A marker is in the epoch of the row behind it; one at the very end is in the last."""
        return first <= position < last or position == last == self.rows.num_rows

    def _aborts_at(self, position: int) -> bool:
        """True in the first run that comes to an ABORT; a file in the state folder tells the later ones."""
        if (position, ABORT) not in self._markers:
            return False
        import fsspec

        files, path = fsspec.core.url_to_fs(f"{self._state}/abort-{position}")
        if not files.exists(path):
            files.makedirs(self._state, exist_ok=True)
            files.touch(path)
            self._run.aborts.add(position)
        return position in self._run.aborts

    def read(self, split: tuple[int, int, bool]) -> Iterator[pa.RecordBatch]:
        start, end, aborts = split
        if aborts:
            raise SourceError(f"{self!r} has an ABORT marker in this epoch", hint="start again: it aborts only once")
        yield from self.rows.slice(start, end - start).to_batches()

    def __repr__(self) -> str:
        count = self.rows.num_rows if hasattr(self.rows, "num_rows") else sum(_is_row(row) for row in self.rows)
        return f"MemorySource({count} row{'' if count == 1 else 's'})"


def _is_row(row: Any) -> bool:
    return not isinstance(row, Marker)


def _table_of(rows: list[Mapping[str, Any]], declared: Any) -> pa.Table:
    import pyarrow as pa

    for row in rows:
        if not isinstance(row, Mapping):
            raise SourceError(f"MemorySource has a {type(row).__name__} among its rows", hint="rows are dicts")
    names = list(dict.fromkeys(name for row in rows for name in row))
    if declared is None:
        columns = {name: _inferred(name, [row.get(name) for row in rows]) for name in names}
        return _table_of_arrow(pa.table(columns), None)
    schema = canonical_schema(arrow_schema(declared))
    for name in names:
        if name not in schema.names:
            raise SourceError(f"a row has the column {name!r}, the schema has not", hint=near(name, schema.names))
    arrays = [_typed(field, [row.get(field.name) for row in rows]) for field in schema]
    return pa.table(arrays, schema=schema)


def _inferred(name: str, values: list[Any]) -> pa.Array:
    import pyarrow as pa

    try:
        return pa.array(values)
    except (pa.ArrowException, OverflowError) as error:
        raise SourceError(f"column {name!r} has no one type: {error}", hint="declare it: schema=…") from error


def _typed(field: pa.Field, values: list[Any]) -> pa.Array:
    import pyarrow as pa

    try:
        return pa.array(values, field.type)
    except (pa.ArrowException, TypeError, OverflowError) as error:
        raise SourceError(
            f"column {field.name!r} has a value that is no {field.type}: {error}", hint="mend the row or the schema"
        ) from error


def _table_of_arrow(data: Any, declared: Any) -> pa.Table:
    import pyarrow as pa

    if isinstance(data, pa.RecordBatch):
        data = pa.Table.from_batches([data])
    if not isinstance(data, pa.Table):
        raise SourceError(f"MemorySource can't read a {type(data).__name__}", hint="give dicts or a pyarrow.Table")
    schema = canonical_schema(data.schema if declared is None else arrow_schema(declared))
    return pa.Table.from_batches([conform(batch, schema) for batch in data.to_batches()], schema)


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
    _epochs: dict[Epoch, list[pa.RecordBatch]] = field(default_factory=dict, compare=False, repr=False)

    def open(self, context: SinkContext) -> Committer:
        return _MemoryCommitter(self._epochs)

    def rows(self) -> list[dict[str, Any]]:
        """The rows of all epochs so far, epoch by epoch."""
        return [row for batches in self._epochs.values() for batch in batches for row in batch.to_pylist()]

    def table(self) -> pa.Table:
        """The rows as an Arrow table.

        Raises:
            ConfigError: If there are none yet, so that their schema is not known.
        """
        import pyarrow as pa

        batches = [batch for epoch in self._epochs.values() for batch in epoch]
        if not batches:
            raise ConfigError(f"{self!r} has no rows yet", hint="run the pipeline first")
        return pa.Table.from_batches(batches)

    def clear(self) -> None:
        """Forget the rows, not which epochs there were."""
        for batches in self._epochs.values():
            batches.clear()

    def __repr__(self) -> str:
        return f"MemorySink({self.name!r})"


class _MemoryCommitter:
    def __init__(self, epochs: dict[Epoch, list[pa.RecordBatch]]) -> None:
        self._epochs = epochs

    def last_epoch(self, query_id: str) -> int | None:
        return max((epoch.number for epoch in self._epochs if epoch.query_id == query_id), default=None)

    def writer(self, epoch: Epoch) -> _MemoryWriter:
        return _MemoryWriter()

    def commit(self, epoch: Epoch, results: Sequence[WriteResult]) -> None:
        import pyarrow as pa

        self._epochs[epoch] = [
            batch for result in results for file in result.committables for batch in pa.ipc.open_stream(file)
        ]

    def abort(self, epoch: Epoch, results: Sequence[WriteResult]) -> None:
        """Nothing is left behind."""


class _MemoryWriter:
    def open(self, task: int) -> _MemoryTaskWriter:
        return _MemoryTaskWriter()


class _MemoryTaskWriter:
    """Collects batches; they travel to the driver as one Arrow stream."""

    def __init__(self) -> None:
        self._batches: list[pa.RecordBatch] = []
        self._began = time.perf_counter()

    def write(self, batch: pa.RecordBatch) -> None:
        self._batches.append(batch)

    def close(self) -> WriteResult:
        import pyarrow as pa

        if not self._batches:
            return WriteResult()
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self._batches[0].schema) as stream:
            for batch in self._batches:
                stream.write_batch(batch)
        sizes = [batch.num_rows for batch in self._batches]
        data = sink.getvalue().to_pybytes()
        seconds = time.perf_counter() - self._began
        return WriteResult(sum(sizes), len(data), seconds, len(sizes), min(sizes), max(sizes), committables=(data,))

    def abort(self) -> None:
        """Nothing is left behind."""
