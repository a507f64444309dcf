"""Refreshes a view again and again, in a thread of its own."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import asdict
from threading import Event, Thread
from types import TracebackType
from typing import Self

from volley.errors import CatalogUnreachableError, CommitConflictError, CommitStateUnknownError, VolleyError
from volley.iceberg.views.values import ViewRefresh
from volley.metrics.status import FollowedView

__all__ = ["ViewFollower"]

_log = logging.getLogger(__name__)
_MOST_REFRESHES = 20
_TEMPORARY = (CatalogUnreachableError, CommitConflictError, CommitStateUnknownError)


class ViewFollower:
    """A view that is being followed; `MaterializedView.follow` starts it. A context manager that stops at its end.

    Args:
        refresh: Refreshes the view once.
        name: The view's name.
        seconds: The time between two refreshes.
        on_refresh: Called with each refresh that changed the view or its cursor.
    """

    def __init__(
        self,
        refresh: Callable[[], ViewRefresh],
        name: str,
        seconds: float,
        on_refresh: Callable[[ViewRefresh], None] | None,
    ) -> None:
        self._refresh = refresh
        self._name = name
        self._seconds = seconds
        self._on_refresh = on_refresh
        self._stopped = Event()
        self._ended: Future[None] = Future()
        self._waits_for: VolleyError | None = None
        self._refreshes = deque[ViewRefresh](maxlen=_MOST_REFRESHES)
        self.last: ViewRefresh | None = None
        Thread(target=self._run, name=f"view {name}", daemon=True).start()

    @property
    def exception(self) -> BaseException | None:
        """The error that ended it; None while it runs, or if it was stopped."""
        return self._ended.exception() if self._ended.done() else None

    @property
    def is_running(self) -> bool:
        """True until it was stopped, or an error ended it."""
        return not self._ended.done()

    def status(self) -> FollowedView:
        """Return its state, with the refreshes that changed the view or its cursor lately."""
        error = self.exception or self._waits_for
        if not self.is_running:
            state = "failed" if self.exception else "stopped"
        elif self._waits_for:
            state = "waiting"
        else:
            state = "running" if self.last else "starting"
        return FollowedView(
            self._name,
            state,
            reason=None if error is None else getattr(error, "message", repr(error)),
            hint=getattr(error, "hint", None),
            refreshes=tuple(map(asdict, tuple(self._refreshes))),
        )

    def stop(self) -> None:
        """Finish the running refresh, and stop; raise the error that has ended it before, if any.

        Raises:
            VolleyError: If a refresh failed.
        """
        self._stopped.set()
        self.wait()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it ends; return False if it still runs.

        Args:
            timeout: The most seconds to wait; None = no limit.

        Raises:
            VolleyError: If a refresh failed.
        """
        try:
            self._ended.result(timeout)
        except TimeoutError:
            if self._ended.done():
                raise
            return False
        return True

    def _run(self) -> None:
        try:
            while not self._stopped.is_set():
                self._once()
                self._stopped.wait(self._seconds)
        except BaseException as error:
            self._ended.set_exception(error)
        else:
            self._ended.set_result(None)

    def _once(self) -> None:
        try:
            done = self._refresh()
        except _TEMPORARY as error:
            _log.warning("view %s: can't be refreshed now, will try again: %s", self._name, error)
            self._waits_for = error
            return
        self.last, self._waits_for = done, None
        if done.mode != "none":
            _log.info("%s", done)
            self._refreshes.append(done)
            if self._on_refresh:
                self._on_refresh(done)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped.set()
        if kind is None:
            self.wait()
