"""The second stage of a keyed step: a task merges the states of some buckets, and reads the rows that come out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import pyarrow as pa

from volley.arrow.batches import one_batch
from volley.arrow.operators import Operator
from volley.bad_rows import BadRow, PositionedBatch, numbered
from volley.source import SplitReader
from volley.storage.state_formats import STATE
from volley.store.files import new_file
from volley.task.partials import PartialFile
from volley.task.state_files import StateFile, open_states

__all__ = ["MergeInput", "MergeSplit", "Merger"]


@dataclass(frozen=True)
class MergeInput:
    """What a task of the second stage merges of one input.

    Args:
        partials: The states of the epoch's rows, in the order of the splits.
        states: The states before the epoch.
        target: The URL of the file for the states after it.
    """

    partials: tuple[PartialFile, ...]
    states: tuple[StateFile, ...]
    target: str


@dataclass(frozen=True)
class MergeSplit:
    """What one task of the second stage merges.

    Args:
        first: Its first bucket.
        buckets: The number of its buckets.
        inputs: The states of each input.
        before: The watermark at the epoch's start, in microseconds since 1970.
        watermark: The watermark at its end.
    """

    first: int
    buckets: int
    inputs: tuple[MergeInput, ...]
    before: int
    watermark: int


@dataclass(frozen=True)
class Merger(SplitReader):
    """Merges states, and reads the rows that come out of them; writes the states that are left.

    States after an epoch are a function of those before and of the epoch's rows: to write them again is harmless.

    Args:
        operator: The compiled step.
    """

    operator: Operator

    def read(self, split: MergeSplit) -> Iterator[pa.RecordBatch]:
        old = [_States(each.states) for each in split.inputs]
        new = [_Partials(each.partials) for each in split.inputs]
        with ExitStack() as stack:
            files = [stack.enter_context(new_file(each.target, STATE)) for each in split.inputs]
            for bucket in range(split.first, split.first + split.buckets):
                merged = self.operator.merge(
                    _tables(old, self.operator.states, bucket),
                    _tables(new, self.operator.partials, bucket),
                    split.before,
                    split.watermark,
                )
                for file, states in zip(files, merged.states, strict=True):
                    file.write_batch(one_batch(states))
                yield from merged.rows

    def read_tolerant(self, split: MergeSplit) -> Iterator[PositionedBatch | BadRow]:
        last = split.first + split.buckets - 1
        return numbered(self.read(split), f"{self.operator.folder} of buckets {split.first} to {last}")


class _Partials:
    """The states of an epoch's rows by bucket, in the order of the rows."""

    def __init__(self, files: Sequence[PartialFile]) -> None:
        self._files = [
            (open_states(file.url), {bucket: at for at, bucket in enumerate(file.buckets)}) for file in files
        ]

    def batches(self, bucket: int) -> list[pa.RecordBatch]:
        return [file.batch(places[bucket]) for file, places in self._files if bucket in places]


class _States:
    """The states before an epoch by bucket."""

    def __init__(self, files: Sequence[StateFile]) -> None:
        self._files = [(state, open_states(state.url, state.size)) for state in files]

    def batches(self, bucket: int) -> list[pa.RecordBatch]:
        places = ((file, state.batch_of(bucket)) for state, file in self._files)
        return [file.batch(place) for file, place in places if place is not None]


def _tables(files: Sequence[_States | _Partials], schemas: Sequence[pa.Schema], bucket: int) -> list[pa.Table]:
    """Return the states of a bucket, one table for each input; of columns that are not needed any more, none."""
    return [
        pa.Table.from_batches([batch.select(schema.names) for batch in each.batches(bucket)], schema)
        for each, schema in zip(files, schemas, strict=True)
    ]
