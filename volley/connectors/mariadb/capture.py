"""What a MariaDB source captures, and where it stages rows and the stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from volley.capture.segments import Segments
from volley.capture.selection import Selection
from volley.connectors.mariadb.settings import ANEW, ServerAddress

__all__ = ["Capture"]


@dataclass(frozen=True)
class Capture:
    """What to capture; picklable."""

    server: ServerAddress
    selection: Selection
    packed: bool  # True if rows of tables are packed
    loads: bool  # True if the tables' rows come first
    nulls: bool  # True: values that Arrow does not have are null; False: they are errors
    on_rewrite: Literal["stop", "reload", "ignore"]  # what to do about changes that the log does not carry
    changelog: bool  # True: one row an event, with the row before and after it; False: rows for an upsert
    sequence: bool  # True: rows have their place in the server's log
    bounded: bool  # True: a run ends where the server's log ended when it began
    max_staged: int  # the most bytes of staged segments
    state: str  # the fsspec URL of the source's state folder

    @property
    def segments(self) -> Segments:
        """Where the stream is staged."""
        return Segments(f"{self.state}/segments", ANEW)

    @property
    def is_keyed(self) -> bool:
        """True if rows are found by the key of their table."""
        return not self.changelog
