"""The rows that most kinds of jobs read: a file has times that no other one has, but for rows that are late."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta

from tests.recovery.rows import START, Row, nested

__all__ = ["FILE", "KEYS", "LATENESS", "NEW", "late_rows", "new_rows", "on_time", "row_of", "with_late_rows"]

NEW = 200
"""New rows of a file, whose times lie within so many seconds."""
FILE = timedelta(minutes=10)
"""The time from the first row of a file to that of the next one."""
KEYS = 30
LATENESS = timedelta(seconds=50)


def new_rows(dice: random.Random, number: int) -> list[Row]:
    """Rows that no file before has: their times lie between this file's time and the next one's."""
    return [row_of(dice, number, number * NEW + place) for place in range(NEW)]


def row_of(dice: random.Random, number: int, id: int, second: int | None = None) -> Row:
    second = dice.randrange(NEW) if second is None else second
    return nested(dice, id, _begin(number) + timedelta(seconds=second))


def with_late_rows(dice: random.Random, number: int) -> list[Row]:
    """New rows, and some with times of a file so long ago that their windows are closed."""
    rows = [
        *new_rows(dice, number),
        *(row_of(dice, number - 3, number * NEW + place) for place in range(20) if number > 2),
    ]
    dice.shuffle(rows)
    return rows


def on_time(files: Sequence[list[Row]]) -> Iterable[Row]:
    """The rows of each file that are of its own time."""
    return (row for number, rows in enumerate(files) for row in rows if row["at"] >= _begin(number))


def _begin(number: int) -> datetime:
    return START + number * FILE


def late_rows(files: Sequence[list[Row]]) -> Iterator[tuple[int, Row]]:
    """The rows of each file that are of another one's time, with the number of their file."""
    for number, rows in enumerate(files):
        yield from ((number, row) for row in rows if row["at"] < _begin(number))
