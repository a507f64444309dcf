"""Runs the two stages of keyed steps in this process, without Spark: what a job's tasks and its driver do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from volley import DataStream
from volley.columns.batches import conform
from volley.columns.operators import Operator
from volley.columns.schemas import operator_of
from volley.engine.state import KeyedState
from volley.plan.keyed_nodes import JoinStreams, Keyed
from volley.task.merging import Merger
from volley.task.partials import Partial, PartialWriter, RejectedRows
from volley.task.state_files import open_states

__all__ = ["LocalStep", "joined", "row_count", "windows"]


@dataclass
class LocalStep:
    """A keyed step, epoch by epoch.

    Args:
        operator: The compiled step.
        schemas: The schema of each input's rows.
        folder: The folder for the state.
        clocked: Its inputs and their sources.
        tasks: The number of tasks that merge.
        now: The computer's clock, in seconds since 1970.
        rejected: How many rows were rejected so far.
        ends: True if the sources end with the epoch.
        watermark: The watermark after the last epoch.
    """

    operator: Operator
    schemas: tuple[pa.Schema, ...]
    folder: Path
    clocked: Sequence[tuple[int, int]]
    tasks: int = 2
    now: Callable[[], float] = lambda: 2e9
    rejected: RejectedRows = RejectedRows()  # noqa: RUF009 (it is frozen)
    ends: bool = False
    watermark: datetime | None = None
    _state: KeyedState = field(init=False)

    def __post_init__(self) -> None:
        self._state = KeyedState(
            *(self.operator, str(self.folder), self.clocked, self.tasks, lambda epoch: self.ends, self.now),
            bytes_a_task=1,
        )

    @property
    def state(self) -> KeyedState:
        """The driver's part."""
        return self._state

    def epoch(
        self, number: int, splits: Sequence[tuple[int, Sequence[pa.RecordBatch]]], ends: bool = False
    ) -> pa.Table:
        """Run one epoch; return the rows that come out.

        Args:
            number: Its number.
            splits: The batches of each split, with the number of its source; source and input are the same, if the step
                has several inputs.
            ends: True if the sources end with it.
        """
        self.ends = ends
        partials = [(source, self._read(number, source, batches)) for source, batches in splits]
        merge = self._state.merge(number, partials)
        merger = Merger(self.operator)
        batches = [batch for split in merge.splits for batch in merger.read(split)]
        self._state.finish(merge)
        self.rejected += merge.rejected
        self.watermark = merge.watermark
        return pa.Table.from_batches(batches, self.operator.output)

    def _read(self, number: int, source: int, batches: Sequence[pa.RecordBatch]) -> list[Partial]:
        """Run one task of the first stage."""
        writers = self._state.writers(number)
        own = source if len(writers) > 1 else 0
        return [self._written(writer, batches if writer.input == own else ()) for writer in writers]

    def _written(self, writer: PartialWriter, batches: Sequence[pa.RecordBatch]) -> Partial:
        task = writer.open(0)
        for batch in batches:
            task.write(conform(batch, self.schemas[writer.input], dictionaries=True))
        (partial,) = task.close().committables
        assert isinstance(partial, Partial)
        return partial


def windows(stream: DataStream, schema: pa.Schema, folder: Path, sources: int = 1, **more: Any) -> LocalStep:
    """The last step of a stream, which keeps state of the rows of one input.

    Args:
        stream: The stream.
        schema: The schema of its rows.
        folder: The folder for the state.
        sources: The number of its sources.
        more: Further arguments of `LocalStep`.
    """
    node = stream._node
    assert isinstance(node, Keyed)
    operator = operator_of(node, schema)
    clocked = [(0, source) for source in range(sources)]
    return LocalStep(operator, (schema,), folder, clocked, **more)


def joined(stream: DataStream, left: pa.Schema, right: pa.Schema, folder: Path, **more: Any) -> LocalStep:
    """The join of two streams, whose sources are numbered like the sides: 0 and 1.

    Args:
        stream: A stream that ends in the join.
        left: The schema of its left side's rows.
        right: The schema of its right side's rows.
        folder: The folder for the state.
        more: Further arguments of `LocalStep`.
    """
    node = stream._node
    assert isinstance(node, JoinStreams)
    return LocalStep(operator_of(node, left, right), (left, right), folder, [(0, 0), (1, 1)], **more)


def row_count(file: str) -> int:
    """The number of states in a file."""
    batches = open_states(file).batches
    return sum(batches.batch(number).num_rows for number in range(len(batches)))
