"""How a job is to be started: what `DataStream.start` and `DataStream.execute` are told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from volley.errors import ConfigError, near

__all__ = ["Into", "Start"]

Into = Literal["append", "replace"]
"""What happens to the rows that sinks hold of earlier runs when a job begins anew."""


@dataclass(frozen=True)
class Start:
    """The arguments of a start, checked; `DataStream.start` describes them."""

    name: str
    fresh: bool = False
    into: Into | None = None
    backfill: bool = False
    metrics_port: int | None = None
    metrics_host: str = "127.0.0.1"

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.strip():
            raise ConfigError("a job needs a name", hint='its checkpoint is kept under it: execute("orders-to-lake")')
        if self.into not in (None, "append", "replace"):
            raise ConfigError(f"into {self.into!r} is unknown", hint=near(str(self.into), ("append", "replace")))
        if self.fresh and self.backfill:
            raise ConfigError(
                "fresh and backfill are both given",
                hint="fresh fills every sink from the beginning: leave backfill out",
            )
