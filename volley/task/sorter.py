"""Splits a task's rows into good ones for the sinks and bad ones for the dead letters."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from itertools import accumulate
from typing import Any

import pyarrow as pa

from volley.columns.bisect import first_failing, process_or_bisect
from volley.columns.letters import SCHEMA, Blame, blame_of
from volley.columns.readable import bad_row, json_of
from volley.contracts.rows import BadRow, PositionedBatch, Tallies, keep_letter, tally, undoing
from volley.contracts.sink import TaskWriter, Writer
from volley.errors import JobError, VolleyError, message_of
from volley.task.counts import Counted, Passed
from volley.task.tree import Failure, SinkStep, Tree

__all__ = ["DeadLetters", "Sorter", "gathered", "with_bad_row"]

_LETTERS_PER_BATCH = 1_000
_Outputs = list[tuple[int, pa.RecordBatch]]
"""The rows for each sink, each with the sink's index."""
_SMALL_ROWS = 4_096
_MOST_BYTES = 4 << 20


@dataclass(frozen=True)
class DeadLetters:
    """The dead-letter writers of an epoch, and which sink uses which; pickled to the executors.

    Args:
        writers: One per dead-letter sink; None = it has the epoch already.
        routes: Per sink of the job, the index of its dead-letter sink; None = a bad row fails the job.
        replays: True if the rows are those of dead letters, which are marked once they are read again.
    """

    job: str
    epoch: int
    writers: tuple[Writer | None, ...]
    routes: tuple[int | None, ...]
    replays: bool = False

    def takes(self, tree: Tree) -> bool:
        """Return True if rows of this input can go to a dead letter."""
        return any(self.routes[sink] is not None for sink in tree.sinks)


class _Rejected(Exception):
    """Some rows of a slice can't be written to some sinks: the causes, the rows that can, and what was counted."""

    def __init__(
        self, outputs: _Outputs, failures: Sequence[Failure], passed: Sequence[Passed], tallies: Tallies
    ) -> None:
        super().__init__(failures)
        self.passed = passed
        self.outputs = outputs
        self.failures = failures
        self.tallies = tallies


class Sorter:
    """Splits the rows of one task attempt into good and bad ones, and writes them.

    A slice is written only once every row of it passed; a failing slice is split in half.

    Args:
        letters: The destinations of bad rows.
        tree: The steps and sinks of the rows.
        sinks: The last step before each sink.
        writers: The sinks' writers; None = the sink has the epoch already.
        targets: The dead-letter writers.
        counted: Counts the rows behind each node, and the bad rows at each.
    """

    def __init__(
        self,
        letters: DeadLetters,
        tree: Tree,
        sinks: Sequence[SinkStep],
        writers: Sequence[TaskWriter | None],
        targets: Sequence[TaskWriter | None],
        counted: Counted,
    ) -> None:
        self._letters = letters
        self._tree = tree
        self._sinks = sinks
        self._writers = writers
        self._targets = targets
        self._counted = counted
        self._held: list[list[dict[str, Any]]] = [[] for _ in targets]

    def write(self, rows: PositionedBatch | BadRow) -> None:
        """Write the good rows, and hold the bad ones for their dead letters.

        Raises:
            VolleyError: If a row is bad for a sink without a dead letter; names the row.
        """
        if isinstance(rows, BadRow):
            self._counted.turn_down(self._tree.number)
            self._reject(self._first_route, self._unreadable(rows))
            return
        for outputs in self._good_outputs(rows):
            self._write(outputs)

    def finish(self) -> None:
        """Write the bad rows that are still held."""
        for route in range(len(self._held)):
            self._flush(route)

    @cached_property
    def _first_route(self) -> int:
        """The route of unreadable rows: that of the first sink with a dead letter."""
        routes = (self._letters.routes[sink] for sink in self._tree.sinks)
        return next(route for route in routes if route is not None)

    def _good_outputs(self, rows: PositionedBatch) -> Iterator[_Outputs]:
        def attempt(start: int, end: int) -> _Outputs:
            passed: list[Passed] = []
            with undoing() as counted:
                outputs, failures = self._outputs(rows, start, end, passed)
                if failures:
                    raise _Rejected(outputs, failures, passed, counted)
            self._counted.pass_on(passed)
            self._passed(rows, start, end)
            return outputs

        def single(row: int, error: Exception) -> _Outputs:
            assert isinstance(error, _Rejected)
            for name, count in error.tallies.items():
                tally(name, count)
            position = rows.position(row)
            self._counted.pass_on(error.passed)
            self._report(error.failures)
            for route, failures in self._by_route(error.failures, position).items():
                self._reject(route, self._letter_of(rows, row, position, failures))
            return error.outputs

        return process_or_bisect(rows.batch.num_rows, attempt, single, (_Rejected,))

    def _outputs(
        self, rows: PositionedBatch, start: int, end: int, passed: list[Passed]
    ) -> tuple[_Outputs, list[Failure]]:
        return self._tree.checked_outputs(rows.batch.slice(start, end - start), self._writers, passed)

    def _passed(self, rows: PositionedBatch, start: int, end: int) -> None:
        """Take note of rows that every sink gets; does nothing."""

    def _report(self, failures: Sequence[Failure]) -> None:
        """Count a row that is rejected, and tell the writers of the sinks."""
        for failure in failures:
            refusing = [self._sinks[sink].number for sink in failure.sinks]
            for number in refusing if failure.number is None else [failure.number]:
                self._counted.turn_down(number)
            for sink in failure.sinks:
                if writer := self._writers[sink]:
                    writer.rejected(failure.cause)

    def _by_route(self, failures: Sequence[Failure], position: str) -> dict[int, list[Failure]]:
        """Return the failures per dead letter: sinks that share one send it the row once, with the first cause."""
        routed: dict[int, list[Failure]] = {}
        for failure in failures:
            for sink in failure.sinks:
                route = self._letters.routes[sink]
                if route is None:
                    raise _with_position(failure.cause, position) from failure.cause
                routed.setdefault(route, []).append(Failure((sink,), failure.cause))
        return routed

    def _blame(self, failure: Failure) -> Blame:
        """Return the step and column at fault: where no step has failed, the sink has refused the row."""
        blame = blame_of(failure.cause)
        return Blame(blame.step or self._sinks[failure.sinks[0]].label or None, blame.column)

    def _write(self, outputs: _Outputs) -> None:
        for sink, rows in outputs:
            if writer := self._writers[sink]:
                self._sinks[sink].write(rows, writer)

    def _unreadable(self, row: BadRow) -> dict[str, Any]:
        """Return the letter of a row that could not be read."""
        step = self._tree.root.brief if self._tree.root else None
        return {
            "payload": row.payload,
            "position": row.position,
            "format": row.format,
            **self._origin,
            **self._fault(row.error, Blame(step, row.column), self._all_sinks),
        }

    def _letter_of(self, rows: PositionedBatch, row: int, position: str, failures: Sequence[Failure]) -> dict[str, Any]:
        """Return the letter of a row that some sinks lack."""
        cause = failures[0].cause
        told = bad_row(rows.batch, row, "", position)
        return {
            "payload": told.payload,
            "position": position,
            "format": told.format,
            **self._origin,
            **self._fault(message_of(cause), self._blame(failures[0]), self._lacking(failures)),
        }

    @cached_property
    def _origin(self) -> dict[str, Any]:
        source = self._tree.root.source if self._tree.root else None
        return {"epoch": self._letters.epoch, "job": self._letters.job, "source": source}

    @cached_property
    def _all_sinks(self) -> str:
        """The labels of all sinks of the tree, as a letter has them."""
        return self._labels(self._tree.sinks)

    def _lacking(self, failures: Iterable[Failure]) -> str:
        """Return the labels of the sinks that lack a row, as a letter has them."""
        return self._labels(sink for failure in failures for sink in failure.sinks)

    def _labels(self, sinks: Iterable[int]) -> str:
        return json_of([name for sink in sinks if (name := self._sinks[sink].name) is not None])

    def _fault(self, error: str, blame: Blame, sinks: str) -> dict[str, Any]:
        """Return what a letter tells of its fault."""
        now = datetime.now(UTC)
        return {"error": error, "time": now, "step": blame.step, "column": blame.column, "sinks": sinks}

    def _reject(self, route: int, letter: dict[str, Any]) -> None:
        """Hold a letter."""
        keep_letter(letter)
        self._held[route].append(letter)
        if len(self._held[route]) == _LETTERS_PER_BATCH:
            self._flush(route)

    def _flush(self, route: int) -> None:
        held, self._held[route] = self._held[route], []
        target = self._targets[route]
        if held and target:
            target.write(pa.RecordBatch.from_pylist(held, SCHEMA))


def with_bad_row(
    error: Exception,
    batch: pa.RecordBatch,
    tree: Tree,
    writers: Sequence[TaskWriter | None],
    position: Callable[[int], str | None],
) -> VolleyError:
    """Return the error with the row that caused it, for a job without dead letters.

    Args:
        error: The error of the whole batch.
        batch: The rows as read from the source.
        tree: Their steps and sinks.
        writers: The writers of all sinks, used for `TaskWriter.check` only.
        position: From a row's number in the batch to its position in the source; None = unknown.
    """

    def failures(start: int, end: int) -> list[Failure]:
        return tree.checked_outputs(batch.slice(start, end - start), writers)[1]

    if not failures(0, batch.num_rows):
        # No row is bad: a writer failed for another reason.
        return error if isinstance(error, VolleyError) else JobError(str(error))
    row = first_failing(batch.num_rows, lambda start, end: bool(failures(start, end)))
    cause = next((failure.cause for failure in failures(row, row + 1)), error)
    if isinstance(cause, VolleyError) and "the row {" in cause.message:
        # The error of a user's function names its row already.
        return cause
    place, text = position(row), f"the row {bad_row(batch, row, '', '').payload:.200}"
    return _with_position(cause, f"{place}: {text}" if place else text)


def _with_position(error: Exception, place: str) -> VolleyError:
    """Return the error with the position of its row in front."""
    if isinstance(error, VolleyError):
        return error.within(place)
    return JobError(f"{place}: {error}", hint="filter such rows out before, or mend them at their source")


def gathered(items: Iterable[PositionedBatch | BadRow]) -> Iterator[PositionedBatch | BadRow]:
    """Yield bad rows at once, and the batches in their order, small ones of equal columns joined.

    Steps and writers cost as much for a batch of one row as for a large one.

    Args:
        items: The rows of a split.
    """
    held: list[PositionedBatch] = []
    rows = size = 0
    for item in items:
        if isinstance(item, BadRow):
            yield item
            continue
        count = item.batch.num_rows
        if held and (rows + count > _SMALL_ROWS or size > _MOST_BYTES or not _alike(held[0], item)):
            yield _joined(held)
            held, rows, size = [], 0, 0
        if count >= _SMALL_ROWS or type(item) is not PositionedBatch:
            yield item
            continue
        held.append(item)
        rows, size = rows + count, size + pa.ipc.get_record_batch_size(item.batch)
    if held:
        yield _joined(held)


def _alike(first: PositionedBatch, other: PositionedBatch) -> bool:
    is_plain = type(first) is type(other) is PositionedBatch
    return is_plain and bool(first.batch.schema.equals(other.batch.schema))


def _joined(items: Sequence[PositionedBatch]) -> PositionedBatch:
    if len(items) == 1:
        return items[0]
    batch = pa.concat_batches([item.batch for item in items])
    return PositionedBatch(batch, _JoinedPlaces(items))


class _JoinedPlaces:
    """Tells the places of rows of joined batches."""

    def __init__(self, items: Sequence[PositionedBatch]) -> None:
        self._positions: list[Callable[[int], str]] = [item.position for item in items]
        self._starts = [*accumulate((item.batch.num_rows for item in items), initial=0)]

    def __call__(self, row: int) -> str:
        at = bisect_right(self._starts, row) - 1
        return self._positions[at](row - self._starts[at])
