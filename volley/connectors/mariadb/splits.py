"""The splits of a source, and what reads them on executors: staged rows of tables, staged changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import cast

import pyarrow as pa

from volley.capture.changes import TableChanges, Truncation
from volley.capture.rows import Form, Output, load_place
from volley.columns.batches import conform
from volley.connectors.mariadb.capture import Capture
from volley.connectors.mariadb.decode import ChangeDecoder
from volley.connectors.mariadb.loads import Loads
from volley.connectors.mariadb.messages import ROWS_A_NUMBER, count_numbers, lengths_of
from volley.connectors.mariadb.tables import Table
from volley.contracts.source import SplitReader
from volley.errors import SourceError

__all__ = ["ChangeReader", "LoadedRows", "MariaDbSplit", "StagedChanges"]


@dataclass(frozen=True)
class LoadedRows:
    """A split: a file of a load; or, without one, the end of all rows that the table had before."""

    load: int
    table: Table
    file: int | None
    first: int  # the number of the first message after the load
    position: int


@dataclass(frozen=True)
class StagedChanges:
    """A split: staged segments."""

    firsts: tuple[int, ...]  # the numbers of their first messages
    fences: Mapping[str, int]  # by the names of tables, the position before which their loads have seen all


MariaDbSplit = LoadedRows | StagedChanges


@dataclass(frozen=True)
class ChangeReader(SplitReader):
    """Reads splits on executors."""

    capture: Capture
    output: Output

    def read(self, split: MariaDbSplit) -> Iterator[pa.RecordBatch]:
        rows = self._loaded(split) if isinstance(split, LoadedRows) else self._changed(split)
        return (self.output.of(form, batch) for form, batch in rows)

    def _loaded(self, split: LoadedRows) -> Iterator[tuple[Form, pa.RecordBatch]]:
        form, place = self.output.form_of_load(split.table), load_place(split.load + ROWS_A_NUMBER, split.first)
        if split.file is None:
            yield form, form.emptied(place)
            return
        for rows in Loads(self.capture.state).rows(split.load, split.file):
            yield form, form.loaded(conform(rows, cast(Table, form.table).schema), place, split.position)

    def _changed(self, split: StagedChanges) -> Iterator[tuple[Form, pa.RecordBatch]]:
        for first in split.firsts:
            decoder = ChangeDecoder(split.fences)
            segment = self.capture.segments.opened(first)
            for number in range(len(segment)):
                batch = segment.batch(number)
                for changes in decoder.changes(batch):
                    if not self.capture.selection.excludes(changes.table.name):
                        yield self._rows(changes, first)
                first += count_numbers(lengths_of(batch.column(0)))

    def _rows(self, changes: TableChanges | Truncation, first: int) -> tuple[Form, pa.RecordBatch]:
        form = self.output.form(changes.table)
        try:
            rows = form.truncated(changes, first) if isinstance(changes, Truncation) else form.changed(changes, first)
        except SourceError as error:
            raise error.within(f"table {changes.table.name}") from error
        return form, rows
