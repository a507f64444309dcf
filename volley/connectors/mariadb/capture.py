"""What a MariaDB source captures, and where it stages rows and the stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from volley.capture import reader
from volley.connectors.mariadb.settings import ANEW, ServerAddress

__all__ = ["Capture"]


@dataclass(frozen=True, kw_only=True)
class Capture(reader.Capture):
    """What to capture; picklable."""

    anew: ClassVar[str] = ANEW

    server: ServerAddress

    @property
    def is_keyed(self) -> bool:
        """True if rows are found by the key of their table."""
        return not self.changelog
