"""Nexmark's events: an auction house's persons, auctions and bids, with the shares of its generator."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

__all__ = ["AUCTIONS", "BEGIN", "CYCLE", "FIRST_ID", "MICROSECONDS", "bid_ids", "events", "side_input", "write"]

CYCLE, AUCTIONS = 50, 3
"""Of 50 events the first is a person, the next 3 are auctions, and the others are bids."""
FIRST_ID = 1_000
BEGIN, MICROSECONDS = 1_700_000_000_000_000, 100
"""The time of the first event since 1970, and from one event to the next, if it is not said."""

_PERSONS = 1  # of a cycle
_NEAR_AUCTIONS, _NEAR_PERSONS, _HOT = 100, 1_000, 100
_CATEGORIES, _SIDE_ROWS, _CHANNELS = 5, 10_000, 10_000
_LETTERS = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz", dtype="S1")
_TEXTS = 4_096  # different halves of a text
_FIRST = ["Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter"]
_LAST = ["Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris"]
_CITIES = (
    "Phoenix",
    "Los Angeles",
    "San Francisco",
    "Boise",
    "Portland",
    "Bend",
    "Redmond",
    "Seattle",
    "Kent",
    "Cheyenne",
)
_STATES = ["AZ", "CA", "ID", "OR", "WA", "WY"]
_HOT_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
_Numbers = np.ndarray[Any, Any]


def events(first: int, count: int, every: int = MICROSECONDS) -> dict[str, pa.Table]:
    """Return the persons, auctions and bids among so many events; the same arguments, the same rows.

    Args:
        first: The number of the first event.
        count: How many events.
        every: The microseconds from one to the next.
    """
    dice, number = np.random.default_rng([18, first]), np.arange(first, first + count)
    place = number % CYCLE
    return {
        "person": _persons(number[place < _PERSONS], every, dice),
        "auction": _auctions(number[(place >= _PERSONS) & (place < _PERSONS + AUCTIONS)], every, dice),
        "bid": _bids(number[place >= _PERSONS + AUCTIONS], every, dice),
    }


def side_input() -> pa.Table:
    """Return the table that query 13 joins bids with."""
    keys = pa.array(np.arange(_SIDE_ROWS))
    return pa.table({"key": keys, "value": pc.binary_join_element_wise("value of", keys.cast(pa.string()), " ")})


def write(folder: Path, count: int, files: int, every: int = MICROSECONDS) -> Mapping[str, Path]:
    """Write events as Parquet files, so many a table; return the folder of each table."""
    folders = {name: folder / name for name in ("person", "auction", "bid")}
    for path in folders.values():
        path.mkdir(parents=True)
    each = count // files
    for number in range(files):
        for name, rows in events(number * each, each, every).items():
            pq.write_table(rows, folders[name] / f"{number:04}.parquet")
    return folders


def bid_ids(number: _Numbers, dice: np.random.Generator) -> tuple[_Numbers, _Numbers]:
    """Return the auctions and bidders of the bids with these numbers: half of them go to a hot auction."""
    rows = len(number)
    auction, bidder = _last(number, AUCTIONS), _last(number, _PERSONS)
    near = _near(auction, _NEAR_AUCTIONS, dice)
    hot = dice.random(rows) < 1 / 2
    auction = np.where(hot, auction // _HOT * _HOT, near)
    near = _near(bidder, _NEAR_PERSONS, dice)
    hot = dice.random(rows) < 3 / 4
    return FIRST_ID + auction, FIRST_ID + np.where(hot, bidder // _HOT * _HOT + 1, near)


def _persons(number: _Numbers, every: int, dice: np.random.Generator) -> pa.Table:
    rows = len(number)
    first, last = _chosen(_FIRST, rows, dice), _chosen(_LAST, rows, dice)
    columns = {
        "id": FIRST_ID + number // CYCLE,
        "name": _joined(first, last, " "),
        "email_address": _joined(_text(4, rows, dice), "example.com", "@"),
        "credit_card": pa.array(dice.integers(10**15, 10**16, rows)).cast(pa.string()),
        "city": _chosen(_CITIES, rows, dice),
        "state": _chosen(_STATES, rows, dice),
    }
    return pa.table({**columns, "date_time": _times(number, every), "extra": _text(50, rows, dice)})


def _auctions(number: _Numbers, every: int, dice: np.random.Generator) -> pa.Table:
    rows, seller = len(number), _last(number, _PERSONS)
    near = _near(seller, _NEAR_PERSONS, dice)
    seller = np.where(dice.random(rows) < 3 / 4, seller // _HOT * _HOT, near)
    begins, lasts = _prices(rows, dice), dice.integers(1, 2 * CYCLE * _NEAR_AUCTIONS // AUCTIONS, rows)
    columns = {
        "id": FIRST_ID + number // CYCLE * AUCTIONS + number % CYCLE - _PERSONS,
        "item_name": _text(10, rows, dice),
        "description": _text(50, rows, dice),
        "initial_bid": begins,
        "reserve": begins + _prices(rows, dice),
        "date_time": _times(number, every),
        "expires": _times(number + lasts, every),
        "seller": FIRST_ID + seller,
        "category": 10 + dice.integers(0, _CATEGORIES, rows),
    }
    return pa.table({**columns, "extra": _text(150, rows, dice)})


def _bids(number: _Numbers, every: int, dice: np.random.Generator) -> pa.Table:
    rows = len(number)
    auction, bidder = bid_ids(number, dice)
    # Half of them come by four channels, the others by one of many.
    channel = np.where(dice.random(rows) < 1 / 2, dice.integers(0, 4, rows), 4 + dice.integers(0, _CHANNELS, rows))
    names, urls = (values.take(pa.array(channel)) for values in _channels())
    columns = {"auction": auction, "bidder": bidder, "price": _prices(rows, dice)}
    return pa.table(
        {**columns, "channel": names, "url": urls, "date_time": _times(number, every), "extra": _text(30, rows, dice)}
    )


def _channels() -> tuple[pa.Array, pa.Array]:
    """Return the names and addresses of all channels; of the many, one in ten has no number in its address."""
    names = [*_HOT_CHANNELS, *(f"channel-{n}" for n in range(_CHANNELS))]
    dice = np.random.default_rng(4)
    folders = (_text(5, len(names), dice).to_pylist() for _ in range(3))
    urls = [f"https://www.nexmark.com/{'/'.join(path)}/item.htm?query=1" for path in zip(*folders, strict=True)]
    urls = [f"{url}&channel_id={n * 7_919 % 65_536}" if n > 3 and n % 10 else url for n, url in enumerate(urls)]
    return pa.array(names), pa.array(urls)


def _last(number: _Numbers, each: int) -> Any:
    """Return the number of the last person or auction before some events."""
    return number // CYCLE * each + each - 1


def _near(last: Any, most: int, dice: np.random.Generator) -> Any:
    """Return one of the last persons or auctions, of at most so many."""
    return last - dice.integers(0, np.minimum(most, last + 1))


def _times(number: _Numbers, every: int) -> pa.Array:
    return pa.array(BEGIN + number * every).cast(pa.timestamp("us", "UTC"))


def _prices(rows: int, dice: np.random.Generator) -> _Numbers:
    return np.round(10 ** (dice.random(rows) * 6) * 100).astype(np.int64)


def _chosen(values: Any, rows: int, dice: np.random.Generator) -> pa.Array:
    return pa.array(values).take(pa.array(dice.integers(0, len(values), rows)))


def _text(length: int, rows: int, dice: np.random.Generator) -> pa.Array:
    """Return random texts of a length, of two halves."""
    halves = []
    for half in (length // 2, length - length // 2):
        letters = dice.choice(_LETTERS, (_TEXTS, half)).tobytes().decode()
        halves.append(_chosen([letters[n * half : (n + 1) * half] for n in range(_TEXTS)], rows, dice))
    first, second = halves
    return _joined(first, second, "")


def _joined(one: Any, other: Any, separator: str) -> pa.Array:
    return pc.binary_join_element_wise(one, other, separator)
