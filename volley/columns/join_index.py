"""An index of a table's rows by key, as one Arrow batch that processes map: built once, looked up without preparation.

The batch has the rows sorted by the hash of their key. Its first columns are the index, the others are the rows'.
A lookup is a binary search for the hash, then a comparison of the keys' values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from volley.columns.dictionaries import decode
from volley.columns.keys.buckets import bucket_bounds
from volley.columns.keys.equality import Hashes, Indices, differing, hashes
from volley.columns.keys.normal import Bools, are_valid, comparable, numbered
from volley.columns.keys.order import ascending_order, ranks

__all__ = [
    *("JoinBuckets", "JoinIndex", "JoinKeys", "build_index", "instants", "is_ordered", "key_columns", "known_since"),
]

_INDEX, _KNOWN_SINCE = b"index", b"known since"


def is_ordered(data_type: pa.DataType) -> bool:
    """Return True if a column of the type can say since when a row is valid: timestamps, dates, int and long."""
    types = pa.types
    return bool(types.is_timestamp(data_type) or types.is_date32(data_type) or types.is_integer(data_type))


def instants(column: pa.Array) -> Indices:
    """Return times as numbers in their order; 0 for null."""
    values = decode(column)
    values = values.cast(pa.int32()) if pa.types.is_date32(values.type) else values
    numbers: Indices = values.cast(pa.int64()).fill_null(0).to_numpy()
    return numbers


def build_index(
    table: pa.Table,
    keys: Sequence[str],
    time: str | None,
    columns: Sequence[str],
    break_ties: bool = True,
    nulls_match: bool = False,
) -> pa.RecordBatch:
    """Return the rows of a table sorted by key, behind the columns of their index.

    Args:
        table: The rows.
        keys: The key columns.
        time: The column that says since when a row is valid; null = never. None = always.
        columns: The columns to keep.
        break_ties: True orders rows of one key and time by the columns; False keeps their order.
        nulls_match: False leaves rows with a null key out.
    """
    arrays = {name: table.column(name).combine_chunks() for name in {*keys, *columns, *([time] if time else [])}}
    needed = [arrays[name] for name in (*([] if nulls_match else keys), *([time] if time else []))]
    if needed:
        valid = pa.array(are_valid(needed))
        arrays = {name: array.filter(valid) for name, array in arrays.items()}
    compared = comparable([arrays[name] for name in keys])
    times = instants(arrays[time]) if time else None
    order = _order(compared, times, [arrays[name] for name in columns], break_ties)
    compared = compared.take(order)
    hashed = hashes(compared)
    starts = np.flatnonzero(_begins_group(compared, hashed))
    index = [
        _padded(hashed[starts], len(hashed)),
        _padded(np.append(starts[1:], len(hashed)) if len(starts) else starts, len(hashed)),
        *compared.columns,
        *([] if times is None else [pa.array(times).take(order)]),
    ]
    fields = [pa.field(f"index {number}", array.type) for number, array in enumerate(index)]
    fields += [pa.field(name, arrays[name].type) for name in columns]
    schema = pa.schema(fields, {_INDEX: f"{len(starts)} {len(keys)} {int(time is not None)}"})
    return pa.RecordBatch.from_arrays([*index, *(arrays[name].take(order) for name in columns)], schema=schema)


def _order(keys: pa.RecordBatch, times: Indices | None, others: Sequence[pa.Array], break_ties: bool) -> pa.Array:
    """Return the order of the rows: by the hash of the key, then by time."""
    hashed = hashes(keys)
    order = np.argsort(hashed, kind="stable") if times is None else np.lexsort((times, hashed))
    sorted_keys, sorted_hashes = keys.take(pa.array(order)), hashed[order]
    same = ~_begins_group(sorted_keys, sorted_hashes)
    collides = not (same[1:] == (sorted_hashes[1:] == sorted_hashes[:-1])).all()
    ties = break_ties and times is not None and bool((same[1:] & (times[order][1:] == times[order][:-1])).any())
    if not collides and not ties:
        return pa.array(order)
    # Two keys with one hash: each one's rows must be neighbours. Two rows of one time: the greater one comes last,
    # whatever files they are in.
    by = [pa.array(hashed), *_ranks(keys.columns), *([] if times is None else [pa.array(times)])]
    if break_ties:
        # Lists and maps have no order: rows that differ in nothing else are sorted by their hash.
        by += [*_ranks(others), pa.array(hashes(numbered([*keys.columns, *others])))]
    return ascending_order(by)


def _ranks(columns: Sequence[pa.Array]) -> list[pa.Array]:
    return [rank for column in columns for rank in ranks(column)]


def _begins_group(keys: pa.RecordBatch, hashed: Hashes) -> Bools:
    """Return for each of sorted rows whether its key differs from that of the row before."""
    begins = np.ones(len(hashed), bool)
    if len(hashed) > 1:
        begins[1:] = hashed[1:] != hashed[:-1]
        same = np.flatnonzero(~begins)
        begins[same] = differing(keys.take(pa.array(same)), keys.take(pa.array(same - 1)))
    return begins


def _padded(values: np.ndarray[Any, Any], rows: int) -> pa.Array:
    """Return the values as a column of so many rows, which one batch can have beside the others."""
    return pa.array(np.concatenate([values, np.zeros(rows - len(values), values.dtype)]))


def key_columns(keys: int, timed: bool) -> tuple[list[str], str | None]:
    """Return the names of the columns of `JoinIndex.table` that have the keys, and of the one with the time."""
    return [f"_volley_key_{number}" for number in range(keys)], "_volley_time" if timed else None


def known_since(index: pa.RecordBatch, time: int | None) -> pa.RecordBatch:
    """Return an index that says from which time on it is known which rows there were; None = always."""
    if time is None:
        return index
    return index.replace_schema_metadata({**index.schema.metadata, _KNOWN_SINCE: str(time)})


@dataclass(frozen=True)
class JoinKeys:
    """The keys of a stream's rows, to be looked up.

    Args:
        columns: The keys in the form in which they are compared.
        valid: Whether each can match: null matches nothing, unless it matches null.
    """

    columns: pa.RecordBatch
    hashes: Hashes
    valid: Bools

    @classmethod
    def of(cls, columns: Sequence[pa.Array], nulls_match: bool = False) -> JoinKeys:
        """Return the keys that are in the columns of a stream."""
        compared = comparable(columns)
        valid = np.ones(len(columns[0]), bool) if nulls_match else are_valid(columns)
        return cls(compared, hashes(compared), valid)

    def take(self, rows: Indices) -> JoinKeys:
        """Return the keys of some rows."""
        return JoinKeys(self.columns.take(pa.array(rows)), self.hashes[rows], self.valid[rows])

    def __getitem__(self, rows: slice) -> JoinKeys:
        """Return the keys of neighbouring rows, without copying them."""
        return JoinKeys(self.columns[rows], self.hashes[rows], self.valid[rows])


@dataclass(frozen=True)
class JoinIndex:
    """The rows of a table, found by their key.

    Args:
        rows: The rows, those of a key together.
        keys: Their keys, in the form in which they are compared.
        hashes: For each key its hash, in ascending order.
        ends: For each key the number of the row behind its last one; its first row follows those of the key before.
        times: Since when each row is valid, in ascending order within a key; None = always.
        known_since: The time before which it is not known which rows there were; None = always known.

    Example:
        >>> table = pa.table({"id": [2, 1, 2], "name": ["b", "a", "c"]})
        >>> index = JoinIndex.of(build_index(table, ["id"], None, ["name"]))
        >>> starts, counts = index.match(JoinKeys.of([pa.array([1, 2, 3])]), None)
        >>> counts.tolist(), index.rows.column("name")[int(starts[0])].as_py()
        ([1, 2, 0], 'a')
    """

    rows: pa.RecordBatch
    keys: pa.RecordBatch
    hashes: Hashes
    ends: Indices
    times: Indices | None
    known_since: int | None = None

    @classmethod
    def of(cls, batch: pa.RecordBatch) -> JoinIndex:
        """Return the index that is in a batch of `build_index`, without copying it."""
        metadata = batch.schema.metadata
        groups, keys, timed = map(int, metadata[_INDEX].split())
        since = metadata.get(_KNOWN_SINCE)
        first = 2 + keys + timed
        hashed, ends, *columns = batch.columns
        return cls(
            pa.RecordBatch.from_arrays(batch.columns[first:], schema=pa.schema(list(batch.schema)[first:])),
            pa.RecordBatch.from_arrays(columns[:keys], [str(number) for number in range(keys)]),
            hashed.to_numpy()[:groups],
            ends.to_numpy()[:groups],
            columns[keys].to_numpy() if timed else None,
            None if since is None else int(since),
        )

    def table(self) -> pa.Table:
        """Return the rows behind `key_columns`, from which `build_index` makes this index again."""
        keys, time = key_columns(self.keys.num_columns, self.times is not None)
        names = [*keys, *([time] if time else []), *self.rows.schema.names]
        times = [] if self.times is None else [pa.array(self.times)]
        return pa.table([*self.keys.columns, *times, *self.rows.columns], names)

    def match(self, keys: JoinKeys, time: pa.Array | None) -> tuple[Indices, Indices]:
        """Return for each row of a stream the first of the rows that match it, and the number of these.

        Args:
            keys: The stream's keys. Null matches nothing; NaN matches NaN.
            time: The stream's time column: the last row that is valid by then matches. None = all rows of the key.
        """
        rows, groups = self._groups(keys, keys.valid if time is None else keys.valid & are_valid([time]))
        first, counts = np.zeros(len(keys.valid), np.int64), np.zeros(len(keys.valid), np.int64)
        starts, ends = self._start(groups), self.ends[groups]
        if time is None or self.times is None:
            first[rows], counts[rows] = starts, ends - starts
        else:
            last = self._last(starts, ends, self.times, instants(time)[rows])
            first[rows], counts[rows] = last, last >= starts
        return first, counts

    def match_version(self, keys: JoinKeys, time: pa.Array, gone: str) -> tuple[Indices, Indices]:
        """Return for each row of a stream the first of the rows that its key had at its time, and their number.

        Args:
            gone: The column of the index's rows that is true for a key without rows since then.
        """
        first, counts = self.match(keys, time)
        assert self.times is not None
        rows = np.flatnonzero(counts)
        last = first[rows]
        starts = self._start(np.searchsorted(self.ends, last, side="right"))
        first[rows] = self._last(starts, last, self.times, self.times[last] - 1) + 1
        is_gone = self.rows.column(gone).to_numpy(zero_copy_only=False)[last]
        counts[rows] = np.where(is_gone, 0, last + 1 - first[rows])
        return first, counts

    def match_between(self, keys: JoinKeys, first: Indices, last: Indices) -> tuple[Indices, Indices]:
        """Return for each row of a stream the first of the rows of its key in a span of time, and their number.

        Args:
            first: The begin of each row's span.
            last: Its end, which is part of it.
        """
        assert self.times is not None
        rows, groups = self._groups(keys, keys.valid)
        starts, counts = np.zeros(len(first), np.int64), np.zeros(len(first), np.int64)
        begins, ends = self._start(groups), self.ends[groups]
        starts[rows] = self._last(begins, ends, self.times, first[rows] - 1) + 1
        counts[rows] = self._last(begins, ends, self.times, last[rows]) + 1 - starts[rows]
        return starts, counts

    def _groups(self, keys: JoinKeys, valid: Bools) -> tuple[Indices, Indices]:
        """Return the rows whose keys the table has, and the numbers of these keys."""
        groups = np.full(len(valid), -1)
        rows = np.flatnonzero(valid)
        places = np.searchsorted(self.hashes, keys.hashes[rows])
        while len(rows):
            inside = places < len(self.hashes)
            inside[inside] = self.hashes[places[inside]] == keys.hashes[rows[inside]]
            rows, places = rows[inside], places[inside]
            ours = keys.columns if len(rows) == len(valid) else keys.columns.take(pa.array(rows))
            differs = differing(ours, self.keys.take(pa.array(self._start(places))))
            groups[rows[~differs]] = places[~differs]
            # The next key may have the same hash.
            rows, places = rows[differs], places[differs] + 1
        rows = np.flatnonzero(groups >= 0)
        return rows, groups[rows]

    def _start(self, groups: Indices) -> Indices:
        starts: Indices = np.where(groups > 0, self.ends[groups - 1], 0) if len(groups) else groups
        return starts

    @staticmethod
    def _last(starts: Indices, ends: Indices, times: Indices, limits: Indices) -> Indices:
        """Return the last row of each range whose time is not after its limit, by binary searches side by side."""
        low, high = starts, ends
        while (unknown := low < high).any():
            middle = (low + high) // 2
            is_valid = unknown & (times[np.minimum(middle, len(times) - 1)] <= limits)
            low, high = np.where(is_valid, middle + 1, low), np.where(unknown & ~is_valid, middle, high)
        return low - 1


@dataclass(frozen=True)
class JoinBuckets:
    """The rows of a table: an index for each bucket.

    Args:
        bits: The table has ``2 ** bits`` buckets.
        load: Returns the index of a bucket, by its number.
        is_loaded: Tells whether the index of a bucket is at hand.
    """

    bits: int
    load: Callable[[int], JoinIndex]
    is_loaded: Callable[[int], bool] = lambda _: True

    def divide(self, hashed: Hashes) -> Iterator[tuple[slice, JoinIndex]]:
        """Yield where the keys of one bucket are, with its index; each bucket once.

        Those that are loaded come first: what is loaded later may push them out.

        Args:
            hashed: The hashes of a stream's keys, in ascending order.
        """
        bounds = bucket_bounds(hashed, self.bits)
        for bucket in sorted(np.flatnonzero(np.diff(bounds)).tolist(), key=self.is_loaded, reverse=True):
            yield slice(bounds[bucket], bounds[bucket + 1]), self.load(bucket)
