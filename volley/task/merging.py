"""Merges partials into the state of a keyed step: a task takes some buckets, and reads the rows that come out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import pyarrow as pa

from volley.columns.batches import one_batch
from volley.columns.operators import Operator
from volley.contracts.rows import BadRow, PositionedBatch, numbered
from volley.contracts.source import SplitReader
from volley.storage.state_formats import STATE
from volley.store.files import new_file
from volley.task.partials import PartialFile
from volley.task.state_files import StateFile

__all__ = ["MergeInput", "MergeSplit", "Merger", "needed_columns"]


@dataclass(frozen=True)
class MergeInput:
    """What a task merges of one input.

    Args:
        partials: The states of the epoch's rows, in the order of the splits.
        kept: Files of states before the epoch that stay as they are.
        states: The other states before it, which are written again with what is new.
        target: The URL of the file for these.
    """

    partials: tuple[PartialFile, ...]
    kept: tuple[StateFile, ...]
    states: tuple[StateFile, ...]
    target: str


@dataclass(frozen=True)
class MergeSplit:
    """What one task merges.

    Args:
        before: The watermark at the epoch's start, in microseconds since 1970.
        passed: What has ended by this time comes out: by the watermark at the epoch's end, or before.
    """

    first: int
    buckets: int
    inputs: tuple[MergeInput, ...]
    before: int
    passed: int


@dataclass(frozen=True)
class Merger(SplitReader):
    """Merges states, and reads the rows that come out of them; writes the states that are left.

    States after an epoch are a function of those before and of the epoch's rows: to write them again is harmless.
    """

    operator: Operator

    def read(self, split: MergeSplit) -> Iterator[pa.RecordBatch]:
        operator = self.operator
        kept = [_Buckets(input.kept) for input in split.inputs]
        old = [_Buckets(input.states) for input in split.inputs]
        new = [_Buckets(input.partials) for input in split.inputs]
        with ExitStack() as stack:
            files = [stack.enter_context(new_file(input.target, STATE)) for input in split.inputs]
            for bucket in range(split.first, split.first + split.buckets):
                before = _tables(old, operator.states, bucket, operator.fills_states)
                rows = _tables(new, operator.partials, bucket)
                known = before
                if any(map(len, rows)):
                    known = list(map(_both, _tables(kept, operator.states, bucket, operator.fills_states), before))
                merged = operator.merge(known, rows, split.before, split.passed)
                states = map(_both, before, merged.states) if operator.appends else merged.states
                for file, table in zip(files, states, strict=True):
                    file.write_batch(one_batch(table))
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


def _both(first: pa.Table, second: pa.Table) -> pa.Table:
    return pa.concat_tables([first, second])


def _tables(
    files: Sequence[_Buckets], schemas: Sequence[pa.Schema], bucket: int, fills: bool = False
) -> list[pa.Table]:
    """Return the states of a bucket, one table for each input; of columns that are not needed any more, none.

    Args:
        fills: True if states may lack columns, which are null then.
    """
    return [
        pa.Table.from_batches([needed_columns(batch, schema, fills) for batch in buckets.batches(bucket)], schema)
        for buckets, schema in zip(files, schemas, strict=True)
    ]


def needed_columns(batch: pa.RecordBatch, schema: pa.Schema, fills: bool) -> pa.RecordBatch:
    """Return the columns of states that a step needs.

    Args:
        fills: True if they may lack some, which are null then.
    """
    if not fills:
        return batch.select(schema.names)
    names = batch.schema.names
    columns = [
        batch.column(field.name) if field.name in names else pa.nulls(batch.num_rows, field.type) for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
