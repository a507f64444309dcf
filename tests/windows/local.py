"""Runs the two stages of windows in this process, without Spark: what a job's tasks and its driver do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from volley import DataStream
from volley.arrow.aggregator import Aggregator
from volley.arrow.batches import conform
from volley.engine.windows import WindowState
from volley.plan.nodes import Aggregate
from volley.task.merging import Merger
from volley.task.partials import Misfits, Partial

__all__ = ["LocalWindows"]


@dataclass
class LocalWindows:
    """The windows of a stream, epoch by epoch.

    Args:
        stream: A stream that ends in a windowed aggregate.
        schema: The schema of its rows.
        folder: The folder for the state.
        sources: The number of its sources.
        tasks: The number of tasks that merge.
        now: The computer's clock, in seconds since 1970.
        misfits: How many rows were in no window so far.
    """

    stream: DataStream
    schema: pa.Schema
    folder: Path
    sources: int = 1
    tasks: int = 2
    now: Callable[[], float] = lambda: 2e9
    misfits: Misfits = Misfits()  # noqa: RUF009 (it is frozen)
    ends: bool = False
    _state: WindowState = field(init=False)

    def __post_init__(self) -> None:
        node = self.stream._node
        assert isinstance(node, Aggregate)
        aggregator = Aggregator(node, self.schema)
        self._state = WindowState(
            aggregator, str(self.folder), self.sources, self.tasks, lambda epoch: self.ends, self.now
        )

    @property
    def state(self) -> WindowState:
        """The driver's part."""
        return self._state

    def epoch(
        self, number: int, splits: Sequence[tuple[int, Sequence[pa.RecordBatch]]], ends: bool = False
    ) -> pa.Table:
        """Run one epoch; return the rows that come out.

        Args:
            number: Its number.
            splits: The batches of each split, with the number of its source.
            ends: True if the sources end with it.
        """
        self.ends = ends
        partials = [(source, self.read(number, batches)) for source, batches in splits]
        merge = self._state.merge(number, partials)
        merger = Merger(self._state.aggregator)
        batches = [batch for split in merge.splits for batch in merger.read(split)]
        self._state.finish(merge)
        self.misfits += merge.misfits
        return pa.Table.from_batches(batches, self._state.aggregator.output)

    def read(self, number: int, batches: Sequence[pa.RecordBatch]) -> Partial:
        """Run one task of the first stage."""
        task = self._state.writer(number).open(0)
        for batch in batches:
            task.write(conform(batch, self.schema))
        (partial,) = task.close().committables
        assert isinstance(partial, Partial)
        return partial
