"""The splits of a source, and what reads them on executors: staged rows of tables, staged changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import cast

import pyarrow as pa

from volley.capture.reader import StagedChanges, StagedReader
from volley.capture.rows import Form, load_place
from volley.columns.batches import conform
from volley.connectors.mariadb.capture import Capture
from volley.connectors.mariadb.decode import ChangeDecoder
from volley.connectors.mariadb.loads import Loads
from volley.connectors.mariadb.messages import ROWS_A_NUMBER, count_numbers, lengths_of
from volley.connectors.mariadb.tables import Table

__all__ = ["ChangeReader", "LoadedRows", "MariaDbSplit"]


@dataclass(frozen=True)
class LoadedRows:
    """A split: a file of a load; or, without one, the end of all rows that the table had before."""

    load: int
    table: Table
    file: int | None
    first: int  # the number of the first message after the load
    position: int


MariaDbSplit = LoadedRows | StagedChanges


@dataclass(frozen=True)
class ChangeReader(StagedReader[Capture]):
    """Reads splits on executors."""

    def _loaded(self, split: LoadedRows) -> Iterator[tuple[Form, pa.RecordBatch]]:
        form, place = self.output.form_of_load(split.table), load_place(split.load + ROWS_A_NUMBER, split.first)
        if split.file is None:
            yield form, form.emptied(place)
            return
        for rows in Loads(self.capture.state).rows(split.load, split.file):
            yield form, form.loaded(conform(rows, cast(Table, form.table).schema), place, split.position)

    def _decoder(self, fences: Mapping[str, int]) -> ChangeDecoder:
        return ChangeDecoder(fences)

    def _numbers(self, batch: pa.RecordBatch) -> int:
        return count_numbers(lengths_of(batch.column(0)))
