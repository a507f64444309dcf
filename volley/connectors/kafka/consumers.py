"""Keeps a task's consumer open for the next task of the worker: to connect costs more than to read a small epoch."""

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
_kept: list[Connection] = []


@dataclass
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
def connection(client: Client, largest: int) -> Iterator[Connection]:
    """Lend a consumer for ranges of at most `largest` offsets; a task keeps it for a later one if the block succeeds.

    One that has failed, or was left amid a range, is closed.
    """
    # 256, 1024, …: epochs differ in size.
    bits = max(_LEAST_BITS, largest.bit_length())
    largest = 1 << bits + bits % 2
    lent = _take(client, largest) or Connection(client, largest)
    try:
        yield lent
        lent.consumer.unassign()
    except BaseException:
        lent.consumer.close()
        raise
    _keep(lent)


def _take(client: Client, largest: int) -> Connection | None:
    found = next((kept for kept in _kept if (kept.client, kept.largest) == (client, largest)), None)
    if found is None:
        return None
    _kept.remove(found)
    if time.monotonic() - found.used > _KEPT_SECONDS:
        found.consumer.close()
        return None
    # What has happened to its connections meanwhile does not matter.
    while found.consumer.poll(0) is not None:
        pass
    found.errors.forget()
    return found


def _keep(connection: Connection) -> None:
    connection.used = time.monotonic()
    _kept.append(connection)
    # A process that runs no tasks of Spark may go on without Kafka.
    while len(_kept) > (_MOST_KEPT if task_context() else 0):
        _kept.pop(0).consumer.close()
