"""The second stage of a keyed step: a task merges the states of some buckets, and reads the rows that come out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import pyarrow as pa

from volley.columns.batches import one_batch
from volley.columns.operators import Operator
from volley.contracts.bad_rows import BadRow, PositionedBatch, numbered
from volley.contracts.source import SplitReader
from volley.storage.state_formats import STATE
from volley.store.files import new_file
from volley.task.partials import PartialFile
from volley.task.state_files import StateFile

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
    """

    operator: Operator

    def read(self, split: MergeSplit) -> Iterator[pa.RecordBatch]:
        old = [_Buckets(each.states) for each in split.inputs]
        new = [_Buckets(each.partials) for each in split.inputs]
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


class _Buckets:
    """The states in files by bucket, in the order of the files."""

    def __init__(self, files: Sequence[PartialFile] | Sequence[StateFile]) -> None:
        self._files = [(file, file.open()) for file in files]

    def batches(self, bucket: int) -> list[pa.RecordBatch]:
        places = ((opened, file.batch_of(bucket)) for file, opened in self._files)
        return [opened.batch(place) for opened, place in places if place is not None]


def _tables(files: Sequence[_Buckets], schemas: Sequence[pa.Schema], bucket: int) -> list[pa.Table]:
    """Return the states of a bucket, one table for each input; of columns that are not needed any more, none."""
    return [
        pa.Table.from_batches([batch.select(schema.names) for batch in each.batches(bucket)], schema)
        for each, schema in zip(files, schemas, strict=True)
    ]
