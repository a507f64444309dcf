"""ConsoleSink: prints the first rows of each epoch, to inspect a stream."""

from __future__ import annotations

from dataclasses import dataclass

from volley.checks import count, keep
from volley.contracts.sink import Committer, Sink, SinkContext
from volley.html_table import settings_html

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
        from volley.connectors.console.committer import ConsoleCommitter

        return ConsoleCommitter(self.rows, context)

    _repr_html_ = settings_html
