"""The splits of a source, and what reads them on executors: pages of tables, staged changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

import pyarrow as pa

from volley.columns.batches import conform
from volley.connectors.postgres.decode import ChangeDecoder, TableChanges, Truncation
from volley.connectors.postgres.load import MOST_PAGES, PageRange, SnapshotReader
from volley.connectors.postgres.loads import Fence
from volley.connectors.postgres.rows import Form, Output, load_place
from volley.connectors.postgres.segments import Segments
from volley.connectors.postgres.settings import Selection, ServerAddress
from volley.connectors.postgres.tables import Table
from volley.connectors.postgres.watch import RewritePolicy, Watch
from volley.contracts.source import SplitReader
from volley.errors import SourceError

__all__ = ["Capture", "ChangeReader", "PostgresSplit", "StagedChanges", "TableLoad", "TableLoads"]


@dataclass(frozen=True)
class Capture:
    """What to capture; picklable.

    Args:
        packed: True if rows of tables are packed.
        loads: True if the tables' rows come first.
        nulls: True: values that Arrow does not have are null; False: they are errors.
        on_rewrite: What to do about changes of a table that the stream does not carry.
        changelog: True: one row an event, with the row before and after it; False: rows for an upsert.
        bounded: True: a run ends where the server's log ended when it began.
        max_staged: The most bytes of staged segments.
        heartbeat: How often to write to the database's log, in seconds; None = never.
        state: The fsspec URL of the source's state folder.
    """

    server: ServerAddress
    selection: Selection
    packed: bool
    slot: str
    publication: str
    loads: bool
    nulls: bool
    on_rewrite: RewritePolicy
    changelog: bool
    bounded: bool
    max_staged: int
    heartbeat: float | None
    state: str

    @property
    def segments(self) -> Segments:
        """Where the stream is staged."""
        return Segments(f"{self.state}/segments")

    @property
    def watch(self) -> Watch:
        """What watches the catalog."""
        return Watch(
            *(self.server, self.publication, self.selection, self.state, self.loads, self.on_rewrite),
            is_keyed=not self.changelog,
        )


@dataclass(frozen=True)
class TableLoad:
    """A range of a table's pages; or, without one, the end of all rows that the table had before.

    Args:
        first: The number of the first message after the load.
    """

    table: Table
    pages: PageRange | None
    number: int
    first: int

    @property
    def size(self) -> int:
        """The number of pages."""
        return 0 if self.pages is None else self.pages.size


@dataclass(frozen=True)
class TableLoads:
    """A split: ranges of pages that one connection reads."""

    ranges: tuple[TableLoad, ...]

    @classmethod
    def of(cls, ranges: Sequence[TableLoad], parallelism: int) -> list[TableLoads]:
        """Return ranges as splits of about equal size, not more than are read at once, unless they are large."""
        share = min(MOST_PAGES, max(1, sum(each.size for each in ranges) / parallelism))
        splits, group, size = [], list[TableLoad](), 0
        for each in ranges:
            group.append(each)
            size += each.size
            if size >= share:
                splits.append(cls(tuple(group)))
                group, size = [], 0
        return [*splits, cls(tuple(group))] if group else splits


@dataclass(frozen=True)
class StagedChanges:
    """A split: staged segments.

    Args:
        firsts: The numbers of their first messages.
        fences: By the oids of tables, what their loads have seen.
    """

    firsts: tuple[int, ...]
    fences: Mapping[int, Fence]


PostgresSplit = TableLoads | StagedChanges


@dataclass(frozen=True)
class ChangeReader(SplitReader):
    """Reads splits on executors: ranges of a table's pages, or staged segments."""

    capture: Capture
    output: Output

    def read(self, split: PostgresSplit) -> Iterator[pa.RecordBatch]:
        rows = self._loaded(split) if isinstance(split, TableLoads) else self._changed(split)
        return (self.output.of(form, batch) for form, batch in rows)

    def _loaded(self, split: TableLoads) -> Iterator[tuple[Form, pa.RecordBatch]]:
        with closing(SnapshotReader(self.capture.server, self.capture.nulls)) as reader:
            for load in split.ranges:
                form, place = self.output.form_of_load(load.table), load_place(load.number, load.first)
                if load.pages is None:
                    yield form, form.emptied(place)
                    continue
                table = load.table.with_types(form.table.columns)
                for rows in reader.rows(table, load.pages):
                    yield form, form.loaded(conform(rows, form.table.schema), place)

    def _changed(self, split: StagedChanges) -> Iterator[tuple[Form, pa.RecordBatch]]:
        for first in split.firsts:
            decoder = ChangeDecoder(split.fences)
            segment = self.capture.segments.opened(first)
            for number in range(len(segment)):
                batch = segment.batch(number)
                for changes in decoder.changes(batch):
                    if not self.capture.selection.excludes(changes.table.name):
                        yield self._rows(changes, first)
                first += batch.num_rows

    def _rows(self, changes: TableChanges | Truncation, first: int) -> tuple[Form, pa.RecordBatch]:
        form = self.output.form(changes.table)
        try:
            rows = form.truncated(changes, first) if isinstance(changes, Truncation) else form.changed(changes, first)
        except SourceError as error:
            raise error.within(f"table {changes.table.name}") from error
        return form, rows
