"""A sink that prints the first rows of each epoch: for looking at a stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from volley._checks import count, keep
from volley.sink import Committer, Epoch, Sink, SinkContext, WriteResult

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ConsoleSink"]


@dataclass(frozen=True)
class ConsoleSink(Sink):
    """Prints the first rows of each epoch as a table. An epoch that is repeated after a crash is printed again.

    Args:
        rows: The most rows to print of an epoch; no more than these travel to the driver.

    Raises:
        ConfigError: If that is not positive.

    Example:
        >>> ConsoleSink(rows=5)
        ConsoleSink(rows=5)
    """

    rows: int = 20

    def __post_init__(self) -> None:
        keep(self, rows=count)

    def open(self, context: SinkContext) -> Committer:
        return _ConsoleCommitter(self.rows, context)


class _ConsoleCommitter(Committer):
    def __init__(self, rows: int, context: SinkContext) -> None:
        self._rows = rows
        self._context = context

    def last_epoch(self, query_id: str) -> int | None:
        return None

    def clear(self) -> None:
        """Nothing was kept."""

    def writer(self, epoch: Epoch) -> _ConsoleWriter:
        return _ConsoleWriter(self._rows)

    def commit(self, epoch: Epoch, results: Sequence[WriteResult]) -> None:
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        total = sum(result.rows for result in results)
        title = f"{self._context.job}, epoch {epoch.number}: {total:,} row{'' if total == 1 else 's'}"
        # Text, not str: rich would take brackets in names and values for markup.
        grid = Table()
        for name in self._context.schema.names:
            grid.add_column(Text(name))
        for row in [row for result in results for row in result.committables][: self._rows]:
            grid.add_row(*(Text("" if value is None else str(value)) for value in row.values()))
        # Not the table's own title, which would be wrapped to the table's width.
        Console().print(Text(title), grid, sep="\n")

    def abort(self, epoch: Epoch, results: Sequence[WriteResult]) -> None:
        """Nothing is left behind."""


@dataclass(frozen=True)
class _ConsoleWriter:
    rows: int

    def open(self, task: int) -> _ConsoleTaskWriter:
        return _ConsoleTaskWriter(self.rows)


class _ConsoleTaskWriter:
    def __init__(self, most: int) -> None:
        self._most = most
        self._shown: list[dict[str, Any]] = []
        self._result = WriteResult()

    def check(self, batch: pa.RecordBatch) -> None:
        """Every row of the stream's schema fits."""

    def write(self, batch: pa.RecordBatch) -> None:
        from volley._readable import readable_rows

        self._result = self._result.with_batch(batch.num_rows)
        self._shown += readable_rows(batch.slice(0, self._most - len(self._shown)))

    def close(self) -> WriteResult:
        return replace(self._result, committables=tuple(self._shown))

    def abort(self) -> None:
        """Nothing is left behind."""
