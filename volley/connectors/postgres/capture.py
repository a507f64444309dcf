"""What a source captures, and where it keeps what it has received."""

from __future__ import annotations

from dataclasses import dataclass

from volley.connectors.postgres.segments import Segments
from volley.connectors.postgres.selection import Selection
from volley.connectors.postgres.settings import Server
from volley.connectors.postgres.watch import RewritePolicy, Watch

__all__ = ["Capture"]


@dataclass(frozen=True)
class Capture:
    """What to capture; picklable.

    Args:
        server: The server.
        selection: The tables.
        packed: True if rows of tables are packed.
        slot: The slot's name.
        publication: The publication's name.
        loads: True if the tables' rows come first.
        nulls: True: values that Arrow does not have are null; False: they are errors.
        on_rewrite: What to do about changes of a table that the stream does not carry.
        changelog: True: one row an event, with the row before and after it; False: rows for an upsert.
        bounded: True: a run ends where the server's log ended when it began.
        max_staged: The most bytes of staged segments.
        heartbeat: How often to write to the database's log, in seconds; None = never.
        state: The fsspec URL of the source's state folder.
    """

    server: Server
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
