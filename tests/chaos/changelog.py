"""Chaos of a changelog: each event follows from the one before it, and the last ones are the table's rows."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import duckdb

from tests.captured import Database
from tests.chaos import captured
from tests.drivers import Drivers, await_end
from tests.postgres.jobs import append, config, start_appending
from volley import IcebergSink

__all__ = ["catch_up", "follow", "run"]

_NONE = (None,) * 5


def follow(folder: Path, port: int, name: str) -> None:
    """The endless job, in a driver of its own."""
    await_end(start_appending(folder, captured.captured(port, name).source(bounded=False, changelog=True)))


def catch_up(folder: Path, port: int, name: str) -> None:
    """The bounded job, in a driver of its own."""
    append(folder, captured.captured(port, name).source(changelog=True))


def wrong_events(database: Database, folder: Path) -> list[Any]:
    """Events that don't follow from those before them, and rows that the last ones and PostgreSQL don't share.

    Whole rows are in `before`: an event that is lost or doubled leaves one that does not follow.
    """
    wrong: list[Any] = []
    rows: dict[int, tuple[Any, ...]] = {}
    events = duckdb.from_arrow(IcebergSink(config(folder)).to_arrow()).order("seq")
    for op, *values in events.select(", ".join(["op", *map(_values, ("before", "after"))])).fetchall():
        before, after = tuple(values[:5]), tuple(values[5:])
        if op == "t":
            rows.clear()
        elif rows.pop(before[0], _NONE) != before or after[0] in rows:
            wrong.append((op, before, after))
        if after != _NONE:
            rows[after[0]] = after
    theirs = "select id, number, price, (extract(epoch from at) * 1000000)::bigint, md5(note) from orders"
    return wrong + sorted({*rows.values()} ^ {*database.rows(theirs)}, key=repr)


def _values(row: str) -> str:
    """The values of a row, the large one in short."""
    return f"{row}.id, {row}.number, {row}.price, epoch_us({row}.at), md5({row}.note)"


def run(drivers: Drivers, folder: Path, kills: int, seed: int) -> tuple[Counter[str], int]:
    """Kill until so many have died; returns what died, and the number of committed changes.

    Args:
        drivers: Run the job.
        folder: An empty folder.
        kills: How many processes die.
        seed: Repeats the schedule.
    """
    jobs = captured.Jobs("changelog", follow, catch_up, wrong_events, identity="full")
    return captured.run(drivers, folder, kills, seed, jobs=jobs)
