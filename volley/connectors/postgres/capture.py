"""What a PostgreSQL source captures, and where it stages the stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from volley.capture import reader
from volley.connectors.postgres.settings import ANEW, ServerAddress

__all__ = ["Capture"]


@dataclass(frozen=True, kw_only=True)
class Capture(reader.Capture):
    """What to capture; picklable."""

    anew: ClassVar[str] = ANEW

    server: ServerAddress
    slot: str
    publication: str
    heartbeat: float | None  # how often to write to the database's log, in seconds; None = never

    @property
    def name(self) -> str:
        return str(self.selection.only or self.slot)
