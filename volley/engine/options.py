"""The options of `start` and `execute`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Self, TypedDict

from volley import checks
from volley.engine.restart import Restart
from volley.errors import ConfigError, VolleyError, near
from volley.metrics.figures import FinishedEpoch

__all__ = ["Into", "OnEpoch", "OnError", "Start", "StartOptions"]

Into = Literal["append", "replace"]
"""What to do with the rows that sinks have from earlier runs when a job starts over."""


OnEpoch = Callable[[FinishedEpoch], object]
"""Called with each epoch that is visible in every sink."""

OnError = Callable[[VolleyError], object]
"""Called with the error that a job fails with."""


class StartOptions(TypedDict, total=False):
    """The options of `start` and `execute`; `Environment.start` describes them."""

    fresh: bool
    into: Into | None
    backfill: bool
    metrics_port: int | None
    metrics_host: str
    metrics_allowed_hosts: str | Sequence[str]
    healthy_within: checks.Duration | None
    outage: checks.Duration | None
    on_epoch: OnEpoch | None
    on_error: OnError | None
    once: bool
    restart: Restart | None
    progress: bool


@dataclass(frozen=True)
class Start:
    """The checked arguments of `start`; `Environment.start` describes them."""

    name: str
    fresh: bool = False
    into: Into | None = None
    backfill: bool = False
    metrics_port: int | None = None
    metrics_host: str = "127.0.0.1"
    metrics_allowed_hosts: str | Sequence[str] = ()
    healthy_within: checks.Duration | None = None
    outage: checks.Duration | None = None
    on_epoch: OnEpoch | None = None
    on_error: OnError | None = None
    once: bool = False
    restart: Restart | None = None
    progress: bool = True

    @classmethod
    def of(cls, name: str, options: StartOptions) -> Self:
        """Return the arguments of `start`, checked.

        Raises:
            ConfigError: If one is unknown or wrong.
        """
        for option in options:
            if option not in StartOptions.__annotations__:
                raise ConfigError(f"a start has no option {option!r}", hint=near(option, StartOptions.__annotations__))
        return cls(name, **options)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.strip():
            raise ConfigError("a job needs a name", hint='its checkpoint is kept under it: execute("orders-to-lake")')
        checks.flag("fresh", self.fresh)
        checks.flag("backfill", self.backfill)
        checks.flag("once", self.once)
        checks.flag("progress", self.progress)
        checks.optional(checks.one_of(("append", "replace")))("into", self.into)
        checks.optional(_port)("metrics_port", self.metrics_port)
        checks.text("metrics_host", self.metrics_host)
        checks.keep(self, metrics_allowed_hosts=checks.names)
        checks.optional(_callback)("on_epoch", self.on_epoch)
        checks.optional(_callback)("on_error", self.on_error)
        checks.optional(checks.of_type(Restart, 'Restart(limit=5, backoff="5s")'))("restart", self.restart)
        checks.keep(self, healthy_within=checks.optional(checks.duration), outage=checks.optional(checks.duration))
        if self.fresh and self.backfill:
            raise ConfigError(
                "fresh and backfill are both given",
                hint="leave backfill out: fresh fills every sink from the beginning",
            )


def _callback(name: str, value: object) -> None:
    if not callable(value):
        raise ConfigError(f"{name} is {value!r}", hint="a function of one argument, or None")


def _port(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 16:
        raise ConfigError(f"{name} {value!r} is not valid", hint="0 to 65535; 0 = a free port, None = no metrics")
