"""Sends what is worth knowing in a thread: whatever becomes of it, the work itself goes on."""

from __future__ import annotations

import atexit

# Clients import it, in the thread; it can't be imported any more once the program's last line has run.
import concurrent.futures.thread  # noqa: F401
import logging
import queue
import threading
import time
from collections.abc import Callable

from volley.secrets import redact_uri

__all__ = ["Sender"]

_log = logging.getLogger(__name__)

_MOST_WAITING = 1_000
_SECONDS_AT_EXIT = 5.0
_LOOK_SECONDS = 0.05


class Sender:
    """Sends one thing after the other; those for which there is no room are dropped, with a warning.

    Args:
        topic: What it is about, for warnings and the thread's name.
        item: One of the things that are sent, as in ``"event"``.
        most: How many may wait.
    """

    def __init__(self, topic: str, item: str, most: int = _MOST_WAITING) -> None:
        self._topic, self._item = topic, item
        self._waiting: queue.Queue[Callable[[], None]] = queue.Queue(most)
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._dropped = 0
        self._failed = False

    def send(self, request: Callable[[], None]) -> None:
        """Let the thread make a request, which raises if it fails; return at once."""
        try:
            self._waiting.put_nowait(request)
        except queue.Full:
            self._dropped += 1
            if self._dropped == 1:
                text = "%s: %ss are dropped, as %d wait for its endpoint"
                _log.warning(text, self._topic, self._item, self._waiting.maxsize)
            return
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=f"volley-{self._topic}", daemon=True)
                self._thread.start()
                atexit.register(self._close)

    def flush(self, seconds: float) -> bool:
        """Wait until all is sent, at most so long, and not for an endpoint that has just failed.

        Returns:
            True if nothing is left.
        """
        until = time.monotonic() + seconds
        with self._waiting.all_tasks_done:
            while self._waiting.unfinished_tasks and not self._failed:
                left = until - time.monotonic()
                if left <= 0:
                    break
                # The queue tells of its last task alone, and a failure may come before that.
                self._waiting.all_tasks_done.wait(min(left, _LOOK_SECONDS))
            return not self._waiting.unfinished_tasks

    def _close(self) -> None:
        """Let the last ones arrive at the end of the process."""
        self.flush(_SECONDS_AT_EXIT)

    def _run(self) -> None:
        while True:
            request = self._waiting.get()
            try:
                request()
                self._failed = False
            except Exception as error:
                # It is said once that the endpoint fails, and once again after it has worked.
                if not self._failed:
                    what = redact_uri(f"{type(error).__name__}: {error}")
                    article = "an" if self._item[0] in "aeiou" else "a"
                    _log.warning("%s: %s %s was not sent: %s", self._topic, article, self._item, what)
                self._failed = True
            finally:
                self._waiting.task_done()
