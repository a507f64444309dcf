"""The thread that maintains several tables: what is due first comes first, and a table can leave at any time."""

from __future__ import annotations

import math
import threading
import time

from volley.iceberg.maintain.maintainer import MaintenanceThread

from ..waiting import wait_until


class Table:
    """A table that notes when it is maintained, and waits in it if told to."""

    def __init__(self, name: str, log: list[str], due: float = math.inf) -> None:
        self.name, self.due, self._log = name, due, log
        self.begun, self.may_end = threading.Event(), threading.Event()
        self.may_end.set()

    def maintain(self) -> None:
        self.due = math.inf
        self.begun.set()
        self.may_end.wait(60)
        self._log.append(self.name)


def alive(name: str) -> bool:
    return any(thread.name == name for thread in threading.enumerate())


def test_the_table_that_is_due_first_comes_first() -> None:
    log: list[str] = []
    thread = MaintenanceThread("order")
    now = time.monotonic()
    first = Table("first", log, now - 1)
    first.may_end.clear()
    thread.add(first)
    assert first.begun.wait(60)
    for name, due in (("third", now - 2), ("second", now - 3), ("not", now + 1000)):
        thread.add(Table(name, log, due))
    first.may_end.set()
    wait_until(lambda: len(log) == 3, 60, "three tables")
    assert log == ["first", "second", "third"]


def test_a_table_that_is_due_earlier_than_the_thread_waits_wakes_it() -> None:
    log: list[str] = []
    thread = MaintenanceThread("waking")
    late, soon = Table("late", log, time.monotonic() + 1000), Table("soon", log)
    thread.add(late)
    thread.add(soon)
    soon.due = time.monotonic()
    thread.wake(soon.due)
    assert soon.begun.wait(60)
    assert not late.begun.is_set()


def test_a_table_leaves_at_once_unless_it_is_being_maintained() -> None:
    log: list[str] = []
    thread = MaintenanceThread("leaving")
    busy, idle = Table("busy", log, time.monotonic()), Table("idle", log)
    busy.may_end.clear()
    thread.add(busy)
    thread.add(idle)
    assert busy.begun.wait(60)
    assert thread.remove(idle, 0)
    assert not thread.remove(busy, 0)
    assert alive("leaving")
    busy.may_end.set()
    wait_until(lambda: not alive("leaving"), 60, "the end of the thread")
    again = Table("again", log, time.monotonic())
    thread.add(again)
    assert again.begun.wait(60)
    assert thread.remove(again, 60)
    assert log == ["busy", "again"]
