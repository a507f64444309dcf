"""What a PostgreSQL source captures, and where it stages the stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from volley.capture.segments import Segments
from volley.capture.selection import Selection
from volley.connectors.postgres.settings import ANEW, ServerAddress

__all__ = ["Capture"]

RewritePolicy = Literal["stop", "reload", "ignore"]


@dataclass(frozen=True)
class Capture:
    """What to capture; picklable."""

    server: ServerAddress
    selection: Selection
    packed: bool  # True if rows of tables are packed
    slot: str
    publication: str
    loads: bool  # True if the tables' rows come first
    nulls: bool  # True: values that Arrow does not have are null; False: they are errors
    on_rewrite: RewritePolicy  # what to do about changes of a table that the stream does not carry
    changelog: bool  # True: one row an event, with the row before and after it; False: rows for an upsert
    sequence: bool  # True: rows have their place in the server's log
    bounded: bool  # True: a run ends where the server's log ended when it began
    max_staged: int  # the most bytes of staged segments
    heartbeat: float | None  # how often to write to the database's log, in seconds; None = never
    state: str  # the fsspec URL of the source's state folder

    @property
    def segments(self) -> Segments:
        """Where the stream is staged."""
        return Segments(f"{self.state}/segments", ANEW)
