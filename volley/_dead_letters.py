"""Rows that can't be processed or written: sorted out in the tasks, committed by the driver before the sinks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from volley._halving import first_failing, halved
from volley._plan import Write
from volley._tree import Failure, SinkStep, Tree
from volley.errors import JobError, VolleyError
from volley.sink import Committer, Epoch, Sink, SinkContext, TaskWriter, Writer
from volley.source import BadRow, Located

if TYPE_CHECKING:
    from volley.metrics import Metrics

__all__ = ["SCHEMA", "DeadLetters", "Sorter", "Targets", "blamed", "dead_letters"]

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


@dataclass(frozen=True)
class Targets:
    """The driver's side: the sinks that take dead letters, each once, however many sinks send theirs to it.

    Args:
        sinks: The targets.
        committers: Their committers.
        routes: For each sink of the job the number of its target; None = it has none.
    """

    sinks: tuple[Sink, ...]
    committers: tuple[Committer, ...]
    routes: tuple[int | None, ...]
    counters: tuple[Metrics, ...]

    @classmethod
    def open(cls, writes: Sequence[Write], job: str, metrics: Metrics, known: Collection[str] = ()) -> Targets:
        """Reach the targets of a job's sinks; make them if they are absent.

        Args:
            writes: The writes of the job.
            job: The job's name.
            metrics: Where to count.
            known: The names of targets that the job has written to before.

        Raises:
            VolleyError: If dead letters can't be written there.
        """
        targets = dead_letters(writes)
        counters = tuple(metrics.of_sink(target.label) for target in targets)
        committers = tuple(
            target.open(SinkContext(job, SCHEMA, counter, resumed=target.target in known, shared=True))
            for target, counter in zip(targets, counters, strict=True)
        )
        routes = tuple(None if write.dead_letter is None else targets.index(write.dead_letter) for write in writes)
        return cls(tuple(targets), committers, routes, counters)

    def letters(self, job: str, epoch: Epoch, due: Sequence[bool]) -> DeadLetters | None:
        """What the tasks of an epoch are told; None if no sink has a dead letter.

        Args:
            job: The job's name.
            epoch: The epoch.
            due: For each target whether it still lacks the epoch.
        """
        if not self.committers:
            return None
        writers = tuple(
            committer.writer(epoch) if is_due else None for committer, is_due in zip(self.committers, due, strict=True)
        )
        return DeadLetters(job, epoch.number, writers, self.routes)


def dead_letters(writes: Sequence[Write]) -> list[Sink]:
    """The sinks that take the dead letters of a job's sinks, each once."""
    found: list[Sink] = []
    for write in writes:
        if write.dead_letter is not None and write.dead_letter not in found:
            found.append(write.dead_letter)
    return found


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

    def take(self, found: Located | BadRow) -> None:
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

    def _sorted(self, found: Located) -> Iterator[_Outputs]:
        def attempt(start: int, end: int) -> _Outputs:
            outputs, failures = self._tree.sorted_outputs(found.batch.slice(start, end - start), self._writers)
            if failures:
                raise _Rejected(outputs, failures)
            return outputs

        def single(row: int, error: Exception) -> _Outputs:
            assert isinstance(error, _Rejected)
            position = found.position(row)
            for route, cause in self._causes(error.failures, position).items():
                self._reject(route, BadRow.of(found.batch, row, _message(cause), position))
            return error.outputs

        return halved(found.batch.num_rows, attempt, single, (_Rejected,))

    def _causes(self, failures: Sequence[Failure], position: str) -> dict[int, Exception]:
        """For each dead letter that gets a row the first cause: sinks that share a dead letter leave it one letter."""
        causes: dict[int, Exception] = {}
        for failure in failures:
            for sink in failure.sinks:
                route = self._letters.routes[sink]
                if route is None:
                    raise _named(failure.cause, position) from failure.cause
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


def blamed(
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
    place, shown = position(row), f"the row {BadRow.of(batch, row, '', '').payload:.200}"
    return _named(found, f"{place}: {shown}" if place else shown)


def _message(error: Exception) -> str:
    return error.message if isinstance(error, VolleyError) else str(error)


def _named(error: Exception, place: str) -> VolleyError:
    """The error with the place of the row that caused it in front."""
    if isinstance(error, VolleyError):
        return type(error)(f"{place}: {error.message}", hint=error.hint)
    return JobError(f"{place}: {error}", hint="filter such rows out before, or mend them at their source")
