"""ConsoleSink: prints the first rows of each epoch, to inspect a stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from volley.checks import count, keep
from volley.contracts.epoch import Epoch, WriteResult
from volley.contracts.sink import Committer, Sink, SinkContext, TaskWriter, Writer
from volley.html_table import settings_html

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ConsoleSink"]


@dataclass(frozen=True)
class ConsoleSink(Sink):
    """Prints the first rows of each epoch as a table; an epoch that is repeated after a crash is printed again.

    Args:
        rows: The maximum number of rows to print per epoch. Each task sends at most as many to the driver.

    Raises:
        ConfigError: If `rows` is not positive.

    Example:
        >>> ConsoleSink(rows=5)
        ConsoleSink(rows=5)
    """

    rows: int = 20

    def __post_init__(self) -> None:
        keep(self, rows=count)

    def open(self, context: SinkContext) -> Committer:
        return _ConsoleCommitter(self.rows, context)

    _repr_html_ = settings_html


@dataclass(frozen=True)
class _ConsoleCommitter(Committer):
    """Prints the rows that tasks have sent to the driver, as one table."""

    can_clear = True

    rows: int
    context: SinkContext

    def __str__(self) -> str:
        return "the console"

    def clear(self) -> None:
        """Do nothing: printed rows are not stored."""

    def writer(self, epoch: Epoch) -> Writer:
        return _ConsoleWriter(self.rows)

    def commit(self, epoch: Epoch, results: Sequence[WriteResult]) -> None:
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        total = sum(result.rows for result in results)
        title = f"{self.context.job}, epoch {epoch.number}: {total:,} row{'' if total == 1 else 's'}"
        # Text, not str: rich would parse brackets in names and values as markup.
        grid = Table()
        for name in self.context.schema.names:
            grid.add_column(Text(name))
        for row in [row for result in results for row in result.committables][: self.rows]:
            grid.add_row(*(Text("" if value is None else str(value)) for value in row.values()))
        # A title of the table itself would be wrapped to the table's width.
        Console().print(Text(title), grid, sep="\n")


@dataclass(frozen=True)
class _ConsoleWriter(Writer):
    rows: int

    def open(self, task: int) -> TaskWriter:
        return _ConsoleTaskWriter(self.rows)


class _ConsoleTaskWriter(TaskWriter):
    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._rows: list[dict[str, Any]] = []
        self._result = WriteResult()

    def write(self, batch: pa.RecordBatch) -> None:
        from volley.columns.readable import readable_rows

        self._result = self._result.with_batch(batch.num_rows)
        self._rows += readable_rows(batch.slice(0, self._limit - len(self._rows)))

    def close(self) -> WriteResult:
        return replace(self._result, committables=tuple(self._rows))
