"""Batches of requests: while one is forced to disk, the next one grows."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

from volley.connectors.webhook.frames import Entry
from volley.connectors.webhook.keys import KeyStore, digest
from volley.connectors.webhook.limits import LOOK_SECONDS, Seldom
from volley.connectors.webhook.log import Log

__all__ = ["Added", "BatchWriter", "Faults", "RequestBatch"]

T = TypeVar("T")

_log = logging.getLogger(__name__)

# About 10 MB of memory.
_KEYS_IN_MEMORY = 50_000
# With less room on the disk, writing is tried before a request comes.
_LITTLE_ROOM = 16 << 20
_TRIED_BYTES = 64 << 10

Faults = Callable[[Sequence[bytes]], Mapping[int, str]]
"""Takes bodies; returns the numbers of those that can't be decoded, with the reason."""


class RequestBatch:
    """Requests that are written together.

    Attributes:
        done: Set when they are on disk, or the write has failed.
        faults: The numbers of those that were refused, with the reason; known when it is done.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.entries: list[Entry] = []
        self.keys: list[bytes] = []
        # The events of one request, all of which are stored or none.
        self.groups: list[range] = []
        self.done: asyncio.Future[None] = loop.create_future()
        self.faults: Mapping[int, str] = {}


class Added(NamedTuple):
    """Where an event of a request is."""

    batch: RequestBatch
    number: int  # in the batch
    is_duplicate: bool  # True: an earlier event had its key


def _of_groups(faults: Mapping[int, str], groups: Sequence[range]) -> Mapping[int, str]:
    """Return faults with those of events that came in one request with a bad one."""
    if not faults or not groups:
        return faults
    spread = dict(faults)
    for group in groups:
        bad = next((number for number in group if number in faults), None)
        if bad is not None:
            spread.update(dict.fromkeys(group, f"an event of the request: {faults[bad]}"))
    return spread


class BatchWriter:
    """Writes batches one after the other, in a thread, so that requests are received meanwhile.

    Args:
        keys: The keys of requests on disk; None = requests have no keys.

    Attributes:
        failure: Why requests can't be written; None if they can.
    """

    def __init__(self, log: Log, keys: KeyStore | None, faults: Faults) -> None:
        self.log = log
        self.failure: str | None = None
        self._failed_bytes = _TRIED_BYTES
        self._seldom = Seldom()
        self._keys = keys
        self._faults = faults
        self._loop = asyncio.get_running_loop()
        self._open = RequestBatch(self._loop)
        self._wake = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, "volley-log")
        # Key → the body's digest, the request's batch, its number there.
        self._recent: dict[bytes, tuple[bytes, RequestBatch, int]] = {}
        self._stored = RequestBatch(self._loop)
        self._stored.done.set_result(None)
        if keys is not None:
            self._replay(keys)

    def add(self, entries: Sequence[Entry]) -> list[Added] | None:
        """Add the events of a request to the batch that grows, except those whose key is known.

        Returns:
            Of each event its place; None if an earlier one had a key of theirs and another body: nothing is added then.
        """
        if len(entries) == 1:
            added = self._add_once(entries[0])
            return None if added is None else [added]
        if self._keys is not None and not self._are_of_one_body(entries):
            return None
        batch, begin = self._open, len(self._open.entries)
        places = [place for entry in entries if (place := self._add_once(entry))]
        if len(batch.entries) - begin > 1:
            batch.groups.append(range(begin, len(batch.entries)))
        return places

    def _are_of_one_body(self, entries: Sequence[Entry]) -> bool:
        """Return True if each key has come with one body only, so far and in these."""
        digests = {(digest(entry.key), digest(entry.body)) for entry in entries}
        if len(dict(digests)) < len(digests):
            return False
        return all(self._body_of(key) in (None, body) for key, body in digests)

    def _body_of(self, key: bytes) -> bytes | None:
        """Return the digest of the body that came with a key; None if the key is unknown."""
        assert self._keys is not None
        known = self._recent.get(key)
        return self._keys.find(key) if known is None else known[0]

    def _add_once(self, entry: Entry) -> Added | None:
        """Add an event unless its key is known; return None if an earlier one had that key and another body."""
        if self._keys is None:
            return self._append_to_open(entry)
        key, body = digest(entry.key), digest(entry.body)
        known = self._recent.get(key)
        if known is not None:
            return Added(known[1], known[2], True) if known[0] == body else None
        stored = self._keys.find(key)
        if stored is not None:
            return Added(self._stored, 0, True) if stored == body else None
        added = self._append_to_open(entry)
        added.batch.keys.append(key)
        self._recent[key] = (body, added.batch, added.number)
        return added

    def _append_to_open(self, entry: Entry) -> Added:
        batch = self._open
        batch.entries.append(entry)
        if len(batch.entries) == 1:
            self._wake.set()
        return Added(batch, len(batch.entries) - 1, False)

    async def run(self) -> None:
        """Write batches until this is cancelled.

        Raises:
            SourceError: If requests that were acknowledged are lost.
        """
        while True:
            await self._wake.wait()
            self._wake.clear()
            batch, self._open = self._open, RequestBatch(self._loop)
            try:
                batch.faults = await self._call(self._write, batch.entries, batch.groups)
            except BaseException as error:
                self._forget(batch, range(len(batch.keys)))
                batch.done.set_exception(error)
                batch.done.exception()  # seen, even if no request waits any more
                if not isinstance(error, OSError):
                    raise
            else:
                self._forget(batch, batch.faults)
                batch.done.set_result(None)
                # Keys point to their batch: don't keep the bodies with them.
                batch.entries, batch.keys, batch.groups = [], [], []
                await self._tidy()

    async def check(self) -> None:
        """Look every `LOOK_SECONDS` whether requests can be written, until this is cancelled."""
        while True:
            await self._call(self._check)
            await asyncio.sleep(LOOK_SECONDS)

    def _check(self) -> None:
        try:
            if self.failure or self.log.room < _LITTLE_ROOM:
                self.log.try_write(self._failed_bytes)
            self.failure, self._failed_bytes = None, _TRIED_BYTES
        except OSError as error:
            self.failure = f"the log can't be written: {error.strerror or error}"

    async def _call(self, function: Callable[..., T], *arguments: Any) -> T:
        return await self._loop.run_in_executor(self._thread, function, *arguments)

    def _write(self, entries: Sequence[Entry], groups: Sequence[range]) -> Mapping[int, str]:
        faults = _of_groups(self._faults([entry.body for entry in entries]), groups)
        if faults:
            entries = [entry for number, entry in enumerate(entries) if number not in faults]
        if entries:
            self._append(entries)
        return faults

    def _append(self, entries: Sequence[Entry]) -> None:
        try:
            self.log.append(entries)
        except OSError as error:
            self.failure = f"the log can't be written: {error.strerror or error}"
            self._failed_bytes = max(_TRIED_BYTES, *(len(entry.body) for entry in entries))
            raise

    def _forget(self, batch: RequestBatch, numbers: Iterable[int]) -> None:
        """Forget the keys of requests that are not in the log: they may come again."""
        if batch.keys:
            for number in numbers:
                self._recent.pop(batch.keys[number], None)

    async def _tidy(self) -> None:
        """Keep the keys in SQLite from time to time, and always before a segment ends: it may be deleted then."""
        try:
            if self._keys is not None and (self.log.is_full or len(self._recent) >= _KEYS_IN_MEMORY):
                taken = {key: body for key, (body, batch, _) in self._recent.items() if batch.done.done()}
                await self._call(self._keys.add, taken.items(), self.log.end.position)
                for key in taken:
                    del self._recent[key]
            if self.log.is_full:
                await self._call(self.log.rotate)
        except (OSError, sqlite3.Error) as error:
            # The disk is full, say: the next batch tries again.
            if self._seldom.is_due("tidy"):
                _log.warning("the log's segment can't be ended: %s", error)

    def _replay(self, keys: KeyStore) -> None:
        """Remember the keys of requests that a dead receiver had not kept."""
        for frame in self.log.frames_from(keys.indexed):
            for entry in frame.entries:
                self._recent[digest(entry.key)] = (digest(entry.body), self._stored, 0)
