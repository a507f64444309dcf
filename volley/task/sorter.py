"""Rows that can't be processed or written: sorted out in the tasks, committed by the driver before the sinks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from volley.arrow.bisect import first_failing, process_or_bisect
from volley.arrow.python_values import bad_row
from volley.bad_rows import BadRow, PositionedBatch
from volley.errors import JobError, VolleyError
from volley.sink import TaskWriter, Writer
from volley.task.tree import Failure, SinkStep, Tree

__all__ = ["SCHEMA", "DeadLetters", "Sorter", "with_bad_row"]

SCHEMA = pa.schema(
    {"payload": pa.string(), "error": pa.string(), "position": pa.string(), "epoch": pa.int64(), "job": pa.string()}
)
"""The columns of a dead letter."""

_AT_ONCE = 1_000


@dataclass(frozen=True)
class DeadLetters:
    """What travels to the executors: where the bad rows of each sink go in this epoch.

    Args:
        job: The job's name.
        epoch: The epoch's number.
        writers: One for each target; None = its letters of this epoch are there already.
        routes: For each sink the number of its target; None = a bad row stops the job.
    """

    job: str
    epoch: int
    writers: tuple[Writer | None, ...]
    routes: tuple[int | None, ...]

    def takes(self, tree: Tree) -> bool:
        """True if rows of an input can go to a dead letter."""
        return any(self.routes[sink] is not None for sink in tree.sinks)


_Outputs = list[tuple[int, pa.RecordBatch]]
"""The rows for each sink, with the sink's number."""


class _Rejected(Exception):
    """Not all rows of a slice get to all sinks: why, and what gets there."""

    def __init__(self, outputs: _Outputs, failures: Sequence[Failure]) -> None:
        super().__init__(failures)
        self.outputs = outputs
        self.failures = failures


class Sorter:
    """One attempt of one task that tells good rows from bad ones: each goes to the sinks, or to a dead letter.

    Nothing of a slice is written before the whole of it is known to go through; a slice that does not is halved.

    Args:
        letters: Where bad rows go.
        tree: What happens to the rows.
        sinks: What each sink is handed.
        writers: Their writers; None = the sink has the epoch already.
        targets: The writers of the dead letters.
    """

    def __init__(
        self,
        letters: DeadLetters,
        tree: Tree,
        sinks: Sequence[SinkStep],
        writers: Sequence[TaskWriter | None],
        targets: Sequence[TaskWriter | None],
    ) -> None:
        self._letters = letters
        self._tree = tree
        self._sinks = sinks
        self._writers = writers
        self._targets = targets
        self._held: list[list[BadRow]] = [[] for _ in targets]

    def take(self, found: PositionedBatch | BadRow) -> None:
        """Write the rows, or what of them can be written.

        Raises:
            VolleyError: If a row is bad that has no dead letter to go to; names it.
        """
        if isinstance(found, BadRow):
            self._reject(self._first_route, found)
            return
        for outputs in self._sorted(found):
            self._write(outputs)

    def finish(self) -> None:
        """Write the dead letters that are still held."""
        for route in range(len(self._held)):
            self._flush(route)

    @property
    def _first_route(self) -> int:
        """What can't even be read belongs to the first sink that has a dead letter."""
        routes = (self._letters.routes[sink] for sink in self._tree.sinks)
        return next(route for route in routes if route is not None)

    def _sorted(self, found: PositionedBatch) -> Iterator[_Outputs]:
        def attempt(start: int, end: int) -> _Outputs:
            outputs, failures = self._tree.sorted_outputs(found.batch.slice(start, end - start), self._writers)
            if failures:
                raise _Rejected(outputs, failures)
            return outputs

        def single(row: int, error: Exception) -> _Outputs:
            assert isinstance(error, _Rejected)
            position = found.position(row)
            for route, cause in self._causes(error.failures, position).items():
                self._reject(route, bad_row(found.batch, row, _message(cause), position))
            return error.outputs

        return process_or_bisect(found.batch.num_rows, attempt, single, (_Rejected,))

    def _causes(self, failures: Sequence[Failure], position: str) -> dict[int, Exception]:
        """For each dead letter that gets a row the first cause: sinks that share a dead letter leave it one letter."""
        causes: dict[int, Exception] = {}
        for failure in failures:
            for sink in failure.sinks:
                route = self._letters.routes[sink]
                if route is None:
                    raise _with_position(failure.cause, position) from failure.cause
                causes.setdefault(route, failure.cause)
        return causes

    def _write(self, outputs: _Outputs) -> None:
        for sink, rows in outputs:
            if writer := self._writers[sink]:
                self._sinks[sink].write(rows, writer)

    def _reject(self, route: int, row: BadRow) -> None:
        self._held[route].append(row)
        if len(self._held[route]) == _AT_ONCE:
            self._flush(route)

    def _flush(self, route: int) -> None:
        held, self._held[route] = self._held[route], []
        target = self._targets[route]
        if held and target:
            rows = [{**vars(row), "epoch": self._letters.epoch, "job": self._letters.job} for row in held]
            target.write(pa.RecordBatch.from_pylist(rows, SCHEMA))


def with_bad_row(
    error: Exception,
    batch: pa.RecordBatch,
    tree: Tree,
    writers: Sequence[TaskWriter | None],
    position: Callable[[int], str | None],
) -> VolleyError:
    """The error that names the row which caused it, for a job without dead letters.

    Args:
        error: What was raised for the whole batch.
        batch: The rows as they came from the source.
        tree: What happens to them.
        writers: The writers of all sinks, which only check.
        position: From a row's number in the batch to its place in the source, if that is known.
    """

    def failures(start: int, end: int) -> list[Failure]:
        return tree.sorted_outputs(batch.slice(start, end - start), writers)[1]

    if not failures(0, batch.num_rows):
        # It was not the rows: a writer failed that finds every row fit to be written.
        return error if isinstance(error, VolleyError) else JobError(str(error))
    row = first_failing(batch.num_rows, lambda start, end: bool(failures(start, end)))
    found = next((failure.cause for failure in failures(row, row + 1)), error)
    if isinstance(found, VolleyError) and "the row {" in found.message:
        # A function's error tells its row already.
        return found
    place, shown = position(row), f"the row {bad_row(batch, row, '', '').payload:.200}"
    return _with_position(found, f"{place}: {shown}" if place else shown)


def _message(error: Exception) -> str:
    return error.message if isinstance(error, VolleyError) else str(error)


def _with_position(error: Exception, place: str) -> VolleyError:
    """The error with the place of the row that caused it in front."""
    if isinstance(error, VolleyError):
        return error.within(place)
    return JobError(f"{place}: {error}", hint="filter such rows out before, or mend them at their source")
