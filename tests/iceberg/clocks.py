"""Clocks that are ahead, and the order of the times in a table's metadata."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, tzinfo
from itertools import pairwise
from typing import Any, Self
from unittest.mock import patch

from pyiceberg.table import update

__all__ = ["AHEAD", "check_times", "clock"]

AHEAD = 7200
"""Seconds by which the clock of another writer is ahead."""


@contextmanager
def clock(now: Callable[[float], float]) -> Iterator[None]:
    """Have the clock of this process say something else.

    Args:
        now: Returns what it says, in seconds since 1970, for what it would say.
    """
    real = time.time

    class Datetime(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Self:
            return cls.fromtimestamp(now(real()), tz)

    # pyiceberg takes the times of snapshots and those of metadata from different functions.
    with patch.object(time, "time", lambda: now(real())), patch.object(update, "datetime", Datetime):
        yield


def check_times(metadata: dict[str, Any]) -> None:
    """Check what Java's TableMetadata does, without its tolerance of a minute."""
    for name in ("snapshot-log", "metadata-log"):
        times = [entry["timestamp-ms"] for entry in metadata[name]]
        assert all(first <= second for first, second in pairwise(times)), (name, times)
        assert metadata["last-updated-ms"] >= max(times, default=0)
    by_id = {snapshot["snapshot-id"]: snapshot for snapshot in metadata["snapshots"]}
    for snapshot in by_id.values():
        parent = by_id.get(snapshot.get("parent-snapshot-id"))
        assert parent is None or parent["timestamp-ms"] <= snapshot["timestamp-ms"]
