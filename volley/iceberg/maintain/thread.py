"""The thread that maintains the tables of a sink, one after the other."""

from __future__ import annotations

import math
import threading
import time
from typing import Protocol

__all__ = ["MaintainedTable", "MaintenanceThread"]


class MaintainedTable(Protocol):
    """A table, as the thread sees it."""

    @property
    def due(self) -> float:
        """When the thread is to call `maintain`, by `time.monotonic`; infinite = not before `wake`."""

    def maintain(self) -> None:
        """Maintain the table. Must not raise."""


class MaintenanceThread:
    """Maintains tables when they are due; the thread lives while there are any.

    Args:
        name: The thread's name.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._changed = threading.Condition()
        self._tables: list[MaintainedTable] = []
        self._current: MaintainedTable | None = None
        self._waits_until = math.inf
        self._runs = False

    def add(self, table: MaintainedTable) -> None:
        """Maintain one more table."""
        with self._changed:
            self._tables.append(table)
            if not self._runs:
                self._runs = True
                threading.Thread(target=self._run, name=self._name, daemon=True).start()
            self._changed.notify_all()

    def remove(self, table: MaintainedTable, seconds: float) -> bool:
        """Maintain a table no more; wait while it is maintained, and return False if that takes too long.

        Args:
            seconds: The longest time to wait.
        """
        with self._changed:
            self._tables.remove(table)
            self._changed.notify_all()
            return self._changed.wait_for(lambda: self._current is not table, seconds)

    def wake(self, due: float) -> None:
        """Note that a table is due at another time than before."""
        with self._changed:
            if due < self._waits_until:
                self._changed.notify_all()

    def _run(self) -> None:
        while (table := self._next()) is not None:
            table.maintain()

    def _next(self) -> MaintainedTable | None:
        """Wait until a table is due, and return it; None if there is no table left, which ends the thread."""
        with self._changed:
            self._current = None
            self._changed.notify_all()
            while self._tables:
                table = min(self._tables, key=lambda each: each.due)
                self._waits_until = table.due
                left = self._waits_until - time.monotonic()
                if left <= 0:
                    self._current = table
                    return table
                self._changed.wait(None if left == math.inf else left)
            self._runs = False
            return None
