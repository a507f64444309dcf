"""Tells of work that is no job: the refresh of a view, an action of maintenance."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Literal

from volley.contracts.datasets import Dataset
from volley.errors import VolleyError
from volley.lineage.emitter import Emitter, configured_emitter
from volley.lineage.events import LineageRun, Part, State, run_event
from volley.lineage.running import current_parent

__all__ = ["Known", "Work"]


@dataclass(frozen=True)
class Known:
    """What is known of a piece of work."""

    inputs: Sequence[Part] = ()
    outputs: Sequence[Part] = ()
    origins: Mapping[int, Sequence[Dataset]] = field(default_factory=dict)


@dataclass
class Work:
    """A piece of work that is told of.

    Args:
        known: Returns what it reads and writes; called in the thread that sends events, so it may ask a catalog.
    """

    run: LineageRun
    emitter: Emitter
    known: Callable[[], Known]
    _started: bool = False

    @classmethod
    def of(
        cls, job: str, kind: Literal["VIEW", "MAINTENANCE"], known: Callable[[], Known], plan: str = ""
    ) -> Work | None:
        """Return work that begins now; None unless OpenLineage is configured."""
        emitter = configured_emitter()
        if emitter is None:
            return None
        return cls(LineageRun(job, datetime.now(UTC), kind, plan=plan, parent=current_parent()), emitter, known)

    def start(self) -> None:
        """Tell that it has something to do."""
        if not self._started:
            self._started = True
            self._emit("START", self.run.began)

    def complete(self, known: Callable[[], Known] | None = None) -> None:
        """Tell that it is done.

        Args:
            known: Returns what is known now; None = no more than before.
        """
        self.start()
        self.known = known or self.known
        self._emit("COMPLETE", datetime.now(UTC))

    def fail(self, error: VolleyError) -> None:
        """Tell that it failed."""
        self.start()
        self._emit("FAIL", datetime.now(UTC), str(error))

    def _emit(self, state: State, at: datetime, error: str | None = None) -> None:
        self.emitter.emit(partial(_events, self.run, state, at, self.known, error))


def _events(
    run: LineageRun, state: State, at: datetime, known: Callable[[], Known], error: str | None
) -> Iterator[object]:
    try:
        parts = known()
    except VolleyError:
        # A table that can't be looked up is left out; how the work ends is told all the same.
        parts = Known()
    yield run_event(run, state, at, parts.inputs, parts.outputs, origins=parts.origins, error=error)
