"""The splits of a source, and what reads them on executors: pages of tables, staged changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import cast

import pyarrow as pa

from volley.capture.reader import StagedChanges, StagedReader
from volley.capture.rows import Form, load_place
from volley.columns.batches import conform
from volley.connectors.postgres.capture import Capture
from volley.connectors.postgres.decode import ChangeDecoder
from volley.connectors.postgres.load import PageRange, SnapshotReader
from volley.connectors.postgres.loads import Fence
from volley.connectors.postgres.tables import Table

__all__ = ["ChangeReader", "PostgresSplit", "TableLoad", "TableLoads"]


@dataclass(frozen=True)
class TableLoad:
    """A range of a table's pages; or, without one, the end of all rows that the table had before."""

    table: Table
    pages: PageRange | None
    number: int
    first: int  # the number of the first message after the load
    position: int = 0  # a position in the server's log before all changes that the load may not have seen

    @property
    def size(self) -> int:
        """The number of pages."""
        return 0 if self.pages is None else self.pages.size


@dataclass(frozen=True)
class TableLoads:
    """A split: ranges of pages that one connection reads."""

    ranges: tuple[TableLoad, ...]


PostgresSplit = TableLoads | StagedChanges


@dataclass(frozen=True)
class ChangeReader(StagedReader[Capture]):
    """Reads splits on executors: ranges of a table's pages, or staged segments."""

    def _loaded(self, split: TableLoads) -> Iterator[tuple[Form, pa.RecordBatch]]:
        with closing(SnapshotReader(self.capture.server, self.capture.nulls)) as reader:
            for load in split.ranges:
                form, place = self.output.form_of_load(load.table), load_place(load.number, load.first)
                if load.pages is None:
                    yield form, form.emptied(place)
                    continue
                table = load.table.with_types(cast(Table, form.table).columns)
                for rows in reader.rows(table, load.pages):
                    yield form, form.loaded(conform(rows, form.table.schema), place, load.position)

    def _decoder(self, fences: Mapping[int, Fence]) -> ChangeDecoder:
        return ChangeDecoder(fences)
