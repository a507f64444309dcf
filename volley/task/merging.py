"""The second stage of windows: a task merges the states of some buckets, and reads the windows that come out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from volley.arrow.aggregator import Aggregator
from volley.bad_rows import BadRow, PositionedBatch, numbered
from volley.source import SplitReader
from volley.task.partials import PartialFile
from volley.task.state_files import StateFile, new_file, open_file

__all__ = ["MergeSplit", "Merger"]


@dataclass(frozen=True)
class MergeSplit:
    """What one task of the second stage merges.

    Args:
        first: Its first bucket.
        buckets: The number of its buckets.
        partials: The states of the epoch's rows, in the order of the splits.
        states: The states before the epoch.
        target: The URL of the file for the states after it.
        before: The watermark at the epoch's start, in microseconds since 1970.
        watermark: The watermark at its end.
    """

    first: int
    buckets: int
    partials: tuple[PartialFile, ...]
    states: tuple[StateFile, ...]
    target: str
    before: int
    watermark: int


@dataclass(frozen=True)
class Merger(SplitReader):
    """Merges states, and reads the windows that come out of them; writes the states that are left.

    States after an epoch are a function of those before and of the epoch's rows: to write them again is harmless.

    Args:
        aggregator: The compiled aggregate.
    """

    aggregator: Aggregator

    def read(self, split: MergeSplit) -> Iterator[pa.RecordBatch]:
        grouping, updates = self.aggregator.grouping, self.aggregator.windowing.emit == "updates"
        partials, states = _Partials(split.partials), _States(split.states)
        with new_file(split.target, self.aggregator.states) as file:
            for bucket in range(split.first, split.first + split.buckets):
                old = self._table(states.batches(bucket))
                new = self._table(partials.batches(bucket))
                closing = self.aggregator.windows.close(old, new, grouping, split.before, split.watermark, updates)
                rest = closing.open.select(self.aggregator.states.names).cast(self.aggregator.states)
                file.write_batch(_one_batch(rest))
                for table in (closing.absorbed, closing.windows):
                    if table is not None and table.num_rows:
                        yield self.aggregator.rows(table)

    def read_tolerant(self, split: MergeSplit) -> Iterator[PositionedBatch | BadRow]:
        last = split.first + split.buckets - 1
        return numbered(self.read(split), f"windows of buckets {split.first} to {last}")

    def _table(self, batches: Sequence[pa.RecordBatch]) -> pa.Table:
        return pa.Table.from_batches(batches, self.aggregator.states)


class _Partials:
    """The states of an epoch's rows by bucket, in the order of the rows."""

    def __init__(self, files: Sequence[PartialFile]) -> None:
        self._files = [(open_file(file.url), {bucket: at for at, bucket in enumerate(file.buckets)}) for file in files]

    def batches(self, bucket: int) -> list[pa.RecordBatch]:
        return [file.get_batch(places[bucket]) for file, places in self._files if bucket in places]


class _States:
    """The states before an epoch by bucket."""

    def __init__(self, files: Sequence[StateFile]) -> None:
        self._files = [(state, open_file(state.url, state.size)) for state in files]

    def batches(self, bucket: int) -> list[pa.RecordBatch]:
        places = ((file, state.batch_of(bucket)) for state, file in self._files)
        return [file.get_batch(place) for file, place in places if place is not None]


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], table.schema)
