"""The options of `start` and `execute`, and what a start makes of them once, for all that comes after it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Literal, Self, TypedDict

from volley import checks
from volley.engine.restart import Restart
from volley.errors import ConfigError, VolleyError, near
from volley.metrics.figures import FinishedEpoch

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from volley.engine.checkpoint import Checkpoint
    from volley.metrics.metrics import Metrics
    from volley.plan.graph import JobGraph

__all__ = ["Into", "JobContext", "OnEpoch", "OnError", "Start", "StartOptions"]

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
    metrics_token: str | None
    ui_port: int | None
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
    metrics_token: str | None = field(default=None, repr=False)
    ui_port: int | None = None
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
        checks.optional(checks.port)("metrics_port", self.metrics_port)
        checks.optional(checks.port)("ui_port", self.ui_port)
        checks.text("metrics_host", self.metrics_host)
        checks.optional(checks.text)("metrics_token", self.metrics_token)
        checks.keep(self, metrics_allowed_hosts=checks.names)
        callback = checks.optional(checks.function("a function of one argument, or None"))
        callback("on_epoch", self.on_epoch)
        callback("on_error", self.on_error)
        checks.optional(checks.of_type(Restart, 'Restart(limit=5, backoff="5s")'))("restart", self.restart)
        checks.keep(self, healthy_within=checks.optional(checks.duration), outage=checks.optional(checks.duration))
        if self.fresh and self.backfill:
            raise ConfigError(
                "fresh and backfill are both given",
                hint="leave backfill out: fresh fills every sink from the beginning",
            )


@dataclass(frozen=True)
class JobContext:
    """A job, and where it runs.

    Args:
        start: Its checked start options.
        context: Returns Spark's context, or starts one.
        spark: The session of its environment, if one was given.
        interval: The time from the start of one epoch to the start of the next.
    """

    start: Start
    graph: JobGraph
    checkpoint: Checkpoint
    metrics: Metrics
    context: Callable[[], SparkContext]
    spark: SparkSession | None
    interval: timedelta

    @property
    def name(self) -> str:
        """The job's name."""
        return self.start.name

    @property
    def folder(self) -> str:
        """The fsspec URL of the folder for its state, which lives as long as its checkpoint."""
        return f"{self.checkpoint.url}/volley"

    @property
    def bounded(self) -> bool:
        """True if a run reads what the sources have when it starts, then ends."""
        return self.start.once or self.graph.is_bounded

    @property
    def outage(self) -> float | None:
        """How long an epoch is tried again while a catalog is out of reach, in seconds; None = it fails."""
        assert self.start.outage is None or isinstance(self.start.outage, timedelta)
        return None if self.start.outage is None else self.start.outage.total_seconds()

    @property
    def sources(self) -> str:
        """Its sources, for messages."""
        return ", ".join(repr(read.source) for read in self.graph.reads)

    def after_start(self) -> JobContext:
        """Return the context of the next run, which goes on where this one stops."""
        return replace(self, start=replace(self.start, fresh=False, into=None))
