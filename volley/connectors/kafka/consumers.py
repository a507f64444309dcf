"""Keeps a task's consumer open for the next task of the process: to connect costs more than to read a small epoch."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from volley.connectors.kafka.client import Client, ConnectionErrors
from volley.task.worker import task_context

__all__ = ["Connection", "connection"]

# Firewalls forget a connection that is idle for minutes, without a word: a request then waits for its timeout.
_KEPT_SECONDS = 30.0
_MOST_KEPT = 4
_LEAST_BITS = 8
# Those of a worker of Spark's, where each task has a reader of its own.
_of_worker: list[Connection] = []


@dataclass(eq=False)
class Connection:
    """A consumer that reads one range after the other.

    Args:
        client: Has created it.
        largest: The number of offsets in the largest range that it suits.
    """

    client: Client
    largest: int
    errors: ConnectionErrors = field(default_factory=ConnectionErrors)
    used: float = 0.0  # when it was read from last, in seconds of the monotonic clock

    def __post_init__(self) -> None:
        self.consumer: Any = self.client.consumer(self.errors, self.largest)


@contextmanager
def connection(client: Client, largest: int, of_reader: list[Connection]) -> Iterator[Connection]:
    """Lend a consumer for ranges of at most `largest` offsets, and keep it if the block succeeds.

    One that has failed, or was left amid a range, is closed.

    Args:
        of_reader: The consumers that a reader has kept in a process that is no worker of Spark's.
    """
    # 256, 1024, …: epochs differ in size.
    bits = max(_LEAST_BITS, largest.bit_length())
    largest = 1 << bits + bits % 2
    kept = of_reader if task_context() is None else _of_worker
    lent = _take(kept, client, largest) or Connection(client, largest)
    try:
        yield lent
        lent.consumer.unassign()
    except BaseException:
        lent.consumer.close()
        raise
    lent.used = time.monotonic()
    kept.append(lent)
    if len(kept) > _MOST_KEPT:
        kept.pop(0).consumer.close()


def _take(kept: list[Connection], client: Client, largest: int) -> Connection | None:
    found = next((each for each in kept if (each.client, each.largest) == (client, largest)), None)
    if found is None:
        return None
    kept.remove(found)
    if time.monotonic() - found.used > _KEPT_SECONDS:
        found.consumer.close()
        return None
    # What has happened to its connections meanwhile does not matter.
    while found.consumer.poll(0) is not None:
        pass
    found.errors.forget()
    return found
