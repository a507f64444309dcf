"""Rows that can't be processed or written: sorted out in the tasks, committed by the driver before the sinks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from volley._halving import first_failing, halved
from volley.errors import ExpressionError, JobError, SchemaMismatchError, SourceError, VolleyError
from volley.sink import Committer, Epoch, Sink, SinkContext, TaskWriter, Writer
from volley.source import BadRow, Located

if TYPE_CHECKING:
    from volley._spark import Segment
    from volley.metrics import Metrics

__all__ = ["DATA_ERRORS", "SCHEMA", "DeadLetters", "Sorter", "Targets", "blamed", "dead_letters"]

SCHEMA = pa.schema(
    {"payload": pa.string(), "error": pa.string(), "position": pa.string(), "epoch": pa.int64(), "job": pa.string()}
)
"""The columns of a dead letter."""

DATA_ERRORS = (ExpressionError, JobError, SchemaMismatchError, SourceError, pa.ArrowInvalid)
"""What a row's values can be the cause of; a storage or a catalog that fails is no row's fault."""
_AT_ONCE = 1_000


@dataclass(frozen=True)
class DeadLetters:
    """What travels to the executors: where the bad rows of each segment go in this epoch.

    Args:
        job: The job's name.
        epoch: The epoch's number.
        writers: One for each target; None = its letters of this epoch are there already.
        routes: For each segment the number of its target; None = a bad row stops the job.
        due: For each segment whether its sink still lacks this epoch; if not, its writer only checks.
    """

    job: str
    epoch: int
    writers: tuple[Writer | None, ...]
    routes: tuple[int | None, ...]
    due: tuple[bool, ...]


@dataclass(frozen=True)
class Targets:
    """The driver's side: the sinks that take dead letters, each once, however many sinks send theirs to it.

    Args:
        sinks: The targets.
        committers: Their committers.
        routes: For each sink of the stream the number of its target; None = it has none.
    """

    sinks: tuple[Sink, ...]
    committers: tuple[Committer, ...]
    routes: tuple[int | None, ...]
    counters: tuple[Metrics, ...]

    @classmethod
    def open(cls, sinks: Sequence[Sink], job: str, metrics: Metrics, known: Collection[str] = ()) -> Targets:
        """Reach the targets of a stream's sinks; make them if they are absent.

        Args:
            sinks: The stream's sinks.
            job: The job's name.
            metrics: Where to count.
            known: The names of targets that the job has written to before.

        Raises:
            VolleyError: If dead letters can't be written there.
        """
        targets = dead_letters(sinks)
        counters = tuple(metrics.of_sink(target.label) for target in targets)
        committers = tuple(
            target.open(SinkContext(job, SCHEMA, counter, resumed=target.target in known, shared=True))
            for target, counter in zip(targets, counters, strict=True)
        )
        routes = tuple(None if sink.dead_letter is None else targets.index(sink.dead_letter) for sink in sinks)
        return cls(tuple(targets), committers, routes, counters)

    def letters(self, job: str, epoch: Epoch, due: Sequence[bool], letters_due: Sequence[bool]) -> DeadLetters | None:
        """What the tasks of an epoch are told; None if no sink has a dead letter.

        Args:
            job: The job's name.
            epoch: The epoch.
            due: For each sink whether it still lacks the epoch.
            letters_due: For each target whether it still lacks the epoch.
        """
        if not self.committers:
            return None
        writers = tuple(
            committer.writer(epoch) if is_due else None
            for committer, is_due in zip(self.committers, letters_due, strict=True)
        )
        return DeadLetters(job, epoch.number, writers, self.routes, tuple(due))


def dead_letters(sinks: Sequence[Sink]) -> list[Sink]:
    """The sinks that take the dead letters of a stream's sinks, each once."""
    found: list[Sink] = []
    for sink in sinks:
        if sink.dead_letter is not None and sink.dead_letter not in found:
            found.append(sink.dead_letter)
    return found


class _Rejected(Exception):
    """A slice can't go all the way: at which segment, why, and what came before it."""

    def __init__(self, segment: int, cause: Exception, outputs: list[pa.RecordBatch]) -> None:
        super().__init__(segment, cause)
        self.segment = segment
        self.cause = cause
        self.outputs = outputs


class Sorter:
    """One attempt of one task that tells good rows from bad ones: each goes to the sinks, or to a dead letter.

    Of a slice nothing is written before the whole of it is known to go through; a slice that does not is halved.

    Args:
        letters: Where bad rows go.
        segments: The stream's segments.
        writers: Their writers; None = the sink has the epoch already.
        targets: The writers of the dead letters.
    """

    def __init__(
        self,
        letters: DeadLetters,
        segments: Sequence[Segment],
        writers: Sequence[TaskWriter | None],
        targets: Sequence[TaskWriter | None],
    ) -> None:
        self._letters = letters
        self._segments = segments
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
        return next(route for route in self._letters.routes if route is not None)

    def _sorted(self, found: Located) -> Iterator[list[pa.RecordBatch]]:
        def attempt(start: int, end: int) -> list[pa.RecordBatch]:
            return _outputs(found.batch.slice(start, end - start), self._segments, self._writers)

        def single(row: int, error: Exception) -> list[pa.RecordBatch]:
            assert isinstance(error, _Rejected)
            position, route = found.position(row), self._letters.routes[error.segment]
            if route is None:
                raise _named(error.cause, position) from error.cause
            self._reject(route, BadRow.of(found.batch, row, _message(error.cause), position))
            return error.outputs

        return halved(found.batch.num_rows, attempt, single, (_Rejected,))

    def _write(self, outputs: list[pa.RecordBatch]) -> None:
        for number, batch in enumerate(outputs):
            writer = self._writers[number]
            if writer and self._letters.due[number]:
                self._segments[number].write(batch, writer)

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


def _outputs(
    batch: pa.RecordBatch, segments: Sequence[Segment], writers: Sequence[TaskWriter | None]
) -> list[pa.RecordBatch]:
    """What each segment makes of the rows, as far as there are any; nothing is written."""
    outputs: list[pa.RecordBatch] = []
    for number, (segment, writer) in enumerate(zip(segments, writers, strict=True)):
        try:
            batch = segment.run(batch)
            if writer and batch.num_rows:
                writer.check(batch)
        except DATA_ERRORS as error:
            raise _Rejected(number, error, outputs) from error
        if batch.num_rows == 0:
            break
        outputs.append(batch)
    return outputs


def blamed(
    error: Exception,
    batch: pa.RecordBatch,
    segments: Sequence[Segment],
    writers: Sequence[TaskWriter | None],
    position: Callable[[int], str | None],
) -> VolleyError:
    """The error that names the row which caused it, for a stream without dead letters.

    Args:
        error: What was raised for the whole batch.
        batch: The rows as they came from the source.
        segments: The stream's segments.
        writers: Their writers, which only check.
        position: From a row's number in the batch to its place in the source, if that is known.
    """

    def fault(start: int, end: int) -> Exception | None:
        try:
            _outputs(batch.slice(start, end - start), segments, writers)
        except _Rejected as rejected:
            return rejected.cause
        return None

    row = first_failing(batch.num_rows, lambda start, end: fault(start, end) is not None)
    found = fault(row, row + 1) or error
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
