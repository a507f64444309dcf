"""The bids of Nexmark: its generator's shares of hot auctions and bidders, one bid each 100 microseconds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

__all__ = ["BID_VERSIONS", "LAST_BIDS", "bids"]

LAST_BIDS = """
select auction, bidder, price, url, date_time from bids where true
qualify row_number() over (partition by auction, bidder order by date_time desc) = 1 and op <> 'd'
"""
"""The last bid of each bidder on each auction (query 18), of a view `bids`, unless it is taken back."""

BID_VERSIONS = """
with by_key as (
    select *, lag(op) over by_time as op_before, lag((price, url)) over by_time as values_before from bids
    window by_time as (partition by auction, bidder order by date_time)
),
changes as (
    select *, lead(date_time) over (partition by auction, bidder order by date_time) as valid_to from by_key
    where op is distinct from op_before or op <> 'd' and (price, url) <> values_before
)
select auction, bidder, price, url, date_time as valid_from, valid_to from changes where op <> 'd'
"""
"""The bids of each bidder on each auction, of a view `bids`, each until the next one or until it is taken back."""

_EVENTS, _PERSONS, _AUCTIONS = 50, 1, 3  # of so many events, the first is a person, the next ones are auctions
_FIRST_ID, _NEAR_AUCTIONS, _NEAR_PERSONS, _HOT = 1_000, 100, 1_000, 100
_BEGIN, _MICROSECONDS = 1_700_000_000_000_000, 100  # of the first event since 1970, and from one event to the next


def bids(events: int, late: int = 0, deleted: float = 0.0, seed: int = 18) -> pa.Table:
    """The bids among so many events, each with a time of its own.

    Args:
        late: Bids come in the order of their times after each of these has waited for up to so many events.
        deleted: The share of bids that are taken back: ``op`` is ``"d"``.
    """
    dice = np.random.default_rng(seed)
    number = np.arange(events)
    number = number[number % _EVENTS > _AUCTIONS]
    rows = len(number)
    auction, bidder = _last(number, _AUCTIONS), _last(number, _PERSONS)
    near = np.maximum(auction - dice.integers(0, _NEAR_AUCTIONS, rows), 0)
    hot = dice.random(rows) < 1 / 2
    auction = np.where(hot, auction // _HOT * _HOT, near)
    near = np.maximum(bidder - dice.integers(0, _NEAR_PERSONS, rows), 0)
    hot = dice.random(rows) < 3 / 4
    bidder = np.where(hot, bidder // _HOT * _HOT + 1, near)
    columns = {
        "auction": _FIRST_ID + auction,
        "bidder": _FIRST_ID + bidder,
        "price": dice.integers(1, 10_000_000, rows),
        "url": pa.array(
            [f"https://www.nexmark.com/item.htm?query={query}" for query in dice.integers(0, 10_000, rows)]
        ),
        "date_time": pa.array(_BEGIN + number * _MICROSECONDS).cast(pa.timestamp("us", "UTC")),
        "op": pa.array(np.where(dice.random(rows) < deleted, "d", "u")),
    }
    order = np.argsort(number + dice.random(rows) * late, kind="stable")
    return pa.table(columns).take(pa.array(order))


def _last(events: np.ndarray[Any, Any], each: int) -> Any:
    """The number of the last person or auction before some events."""
    return events // _EVENTS * each + each - 1
