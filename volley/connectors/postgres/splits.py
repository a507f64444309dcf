"""The splits of a source, and what reads them on executors: pages of tables, staged changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from volley.arrow.batches import conform
from volley.connectors.postgres.capture import Capture
from volley.connectors.postgres.decode import Changes, Decoder, Truncation
from volley.connectors.postgres.fence import Fence
from volley.connectors.postgres.load import PageRange, load
from volley.connectors.postgres.output import Form, Output
from volley.connectors.postgres.rows import load_place
from volley.connectors.postgres.tables import Table
from volley.errors import SourceError
from volley.source import SplitReader

__all__ = ["ChangeReader", "PostgresSplit", "StagedChanges", "TableLoad"]


@dataclass(frozen=True)
class TableLoad:
    """A split: a range of a table's pages; or, without one, the end of all rows that the table had before.

    Args:
        table: The table, as the snapshot sees it.
        pages: The pages.
        number: The load's number.
        first: The number of the first message after the load.
    """

    table: Table
    pages: PageRange | None
    number: int
    first: int


@dataclass(frozen=True)
class StagedChanges:
    """A split: staged segments.

    Args:
        firsts: The numbers of their first messages.
        fences: By the oids of tables, what their loads have seen.
    """

    firsts: tuple[int, ...]
    fences: Mapping[int, Fence]


PostgresSplit = TableLoad | StagedChanges


@dataclass(frozen=True)
class ChangeReader(SplitReader):
    """Reads splits on executors: ranges of a table's pages, or staged segments.

    Args:
        capture: What to capture.
        output: Makes what the source yields.
    """

    capture: Capture
    output: Output

    def read(self, split: PostgresSplit) -> Iterator[pa.RecordBatch]:
        rows = self._loaded(split) if isinstance(split, TableLoad) else self._changed(split)
        return (self.output.of(form, batch) for form, batch in rows)

    def _loaded(self, split: TableLoad) -> Iterator[tuple[Form, pa.RecordBatch]]:
        form, place = self.output.form_of_load(split.table), load_place(split.number, split.first)
        if split.pages is None:
            yield form, form.emptied(place)
            return
        table = split.table.with_types(form.table.columns)
        for rows in load(self.capture.server, table, split.pages, self.capture.nulls):
            yield form, form.loaded(conform(rows, form.table.schema), place)

    def _changed(self, split: StagedChanges) -> Iterator[tuple[Form, pa.RecordBatch]]:
        for first in split.firsts:
            decoder = Decoder(split.fences)
            with self.capture.segments.opened(first) as reader:
                for number in range(len(reader)):
                    batch = reader.batch(number)
                    for changes in decoder.changes(batch):
                        if not self.capture.selection.excludes(changes.table.name):
                            yield self._rows(changes, first)
                    first += batch.num_rows

    def _rows(self, changes: Changes | Truncation, first: int) -> tuple[Form, pa.RecordBatch]:
        form = self.output.form(changes.table)
        try:
            rows = form.truncated(changes, first) if isinstance(changes, Truncation) else form.changed(changes, first)
        except SourceError as error:
            raise error.within(f"table {changes.table.name}") from error
        return form, rows
