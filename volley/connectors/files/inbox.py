"""New files by the messages of a queue; a listing of the folder from time to time finds what no message told of."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from volley.connectors.files.created import created_files
from volley.connectors.files.notifications import FileNotifications
from volley.connectors.files.queues import Message, Queue
from volley.storage.remembered import Record
from volley.storage.state_formats import LISTED

__all__ = ["Inbox", "close_inbox", "inbox_of", "listed_of", "open_inbox"]

_log = logging.getLogger(__name__)

_MOST_MESSAGES = 5_000


class Inbox:
    """The messages that were received, until the epochs of their files are committed.

    A message that is received again, since an epoch takes longer than the queue hides it, or after a crash, tells of
    files that are known. It is deleted by its latest receipt once they are committed.

    Args:
        queue: The queue.
        list_every: Seconds between two listings.
        state: The record of when the last one was.
        now: Returns the time, in seconds since 1970.
    """

    def __init__(
        self, queue: Queue, list_every: float, state: Record[float], now: Callable[[], float] = time.time
    ) -> None:
        self._queue = queue
        self._list_every = list_every
        self._state = state
        self._now = now
        # The messages that are not deleted, by their ids, and the number of logged files behind each.
        self._messages: dict[str, tuple[Message, int]] = {}
        self._listed: float | None = None
        self._committed = 0
        self._told: set[str] = set()

    @property
    def is_listing_due(self) -> bool:
        """True if the folder is to be listed: it was not yet, or long ago."""
        if self._listed is None:
            self._listed = self._state.read()
        return self._listed is None or not 0 <= self._now() - self._listed < self._list_every

    def note_listing(self) -> None:
        """Note that the folder was listed now."""
        self._listed = self._now()
        self._state.write({"listed": self._listed})

    def receive(self) -> tuple[list[Message], list[str]]:
        """Return messages, as many as there are up to a limit, and the paths that they tell of, each once.

        Raises:
            SourceError: If the queue can't be read.
        """
        received: dict[str, Message] = {}
        paths: dict[str, None] = {}
        seen: set[str] = set()
        while len(received) < _MOST_MESSAGES and (messages := self._queue.receive()):
            # A queue that hides messages for a shorter time than this takes gives the same ones again.
            if {message.id for message in messages} <= seen:
                break
            for message in messages:
                seen.add(message.id)
                created = created_files(message.body, message.attributes)
                if created is None:
                    self._leave(message)
                else:
                    received[message.id] = message
                    paths.update(dict.fromkeys(created))
        return [*received.values()], [*paths]

    def _leave(self, message: Message) -> None:
        """Leave a message that is none of a storage in the queue, and say so once."""
        if message.id not in self._told and len(self._told) < _MOST_MESSAGES:
            self._told.add(message.id)
            _log.warning("message %s is none of a storage about a file, and stays in the queue", message.id)

    def keep(self, messages: Sequence[Message], logged: int) -> None:
        """Keep messages until the files that they tell of are committed.

        Args:
            logged: The number of files in the log, these among them.
        """
        for message in messages:
            _, first = self._messages.get(message.id, (message, logged))
            self._messages[message.id] = message, first
        self._delete()

    def committed(self, count: int) -> None:
        """Delete the messages whose files are among the first `count` of the log.

        Raises:
            SourceError: If the queue can't be reached; they come again.
        """
        self._committed = max(self._committed, count)
        self._delete()

    def _delete(self) -> None:
        done = [message for message, logged in self._messages.values() if logged <= self._committed]
        if done:
            self._queue.delete(done)
            for message in done:
                del self._messages[message.id]


_inboxes: dict[str, Inbox] = {}


def listed_of(values: Any) -> float:
    """Return the time in the record of a listing."""
    return float(values["listed"])


def open_inbox(folder: str, notifications: FileNotifications) -> None:
    """Open the inbox of a job that starts, for all copies of its reader in this process.

    Args:
        folder: The folder of the source's state.
    """
    assert isinstance(notifications.list_every, timedelta)
    record = Record(f"{folder}/listed.json", LISTED, listed_of)
    _inboxes[folder] = Inbox(notifications.open(), notifications.list_every.total_seconds(), record)


def inbox_of(folder: str) -> Inbox | None:
    """Return the inbox of a job that runs in this process; None if it has none."""
    return _inboxes.get(folder)


def close_inbox(folder: str) -> None:
    """Forget an inbox: what is not deleted comes again."""
    _inboxes.pop(folder, None)
