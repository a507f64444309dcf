"""The versions of a table's rows: which rows each key had since each change of them; and later ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from volley.columns.batches import one_batch
from volley.columns.groups import offsets_of, rows_of_groups
from volley.columns.join_index import JoinIndex, JoinKeys, build_index, key_columns
from volley.columns.keys.equality import Indices, row_hashes
from volley.columns.keys.normal import are_valid, comparable
from volley.columns.keys.search import distinct_numbers

__all__ = ["GONE", "SINCE", "WEIGHT", "later_versions", "versions"]

SINCE, WEIGHT, GONE = "_volley_since", "_volley_weight", "_volley_gone"
"""When a row was added or removed; 1 for added, -1 for removed; True for a key without rows since then."""

_ROW = "row"
_NEVER = 2**63 - 1


def versions(events: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Return the rows of each key since each of its changes; a key that has no more has one row that is GONE.

    Args:
        events: Rows that were added and removed, with SINCE in microseconds and WEIGHT.
        keys: The key columns; rows with a null key are left out.

    Returns:
        The rows with SINCE and GONE.

    Raises:
        ValueError: If a row was removed that was not there.

    Example:
        >>> events = {"k": ["a", "a", "a"], "v": [1, 1, 2], SINCE: [5, 9, 9], WEIGHT: [1, -1, 1]}
        >>> versions(pa.table(events), ["k"]).select(["v", SINCE]).to_pylist()
        [{'v': 1, '_volley_since': 5}, {'v': 2, '_volley_since': 9}]
    """
    batch = one_batch(events)
    batch = batch.filter(pa.array(are_valid(batch.select(keys).columns)))
    rows, begins, ends = _lives(batch)
    groups = _groups(rows, keys)
    instants, ranks = np.unique(np.concatenate([begins, ends]), return_inverse=True)
    # A key's change as one number; what never ends, ends behind the last change of its key.
    codes = np.tile(groups * len(instants), 2) + ranks
    first, last = codes[: len(begins)], codes[len(begins) :]
    changes = distinct_numbers(np.concatenate([first, last[ends < _NEVER]]))
    begin, end = np.searchsorted(changes, first), np.searchsorted(changes, last)
    repeats = end - begin
    lines = np.repeat(np.arange(len(repeats)), repeats)
    numbers = np.arange(len(lines)) + np.repeat(begin - np.cumsum(repeats) + repeats, repeats)
    gone = np.setdiff1d(np.arange(len(changes)), numbers)
    of_group = np.zeros(groups.max(initial=-1) + 1, np.int64)
    of_group[groups] = np.arange(len(groups))
    lines = np.concatenate([lines, of_group[changes[gone] // max(len(instants), 1)]])
    numbers = np.concatenate([numbers, gone])
    since = instants[changes[numbers] % max(len(instants), 1)].astype(np.int64)
    is_gone = np.arange(len(numbers)) >= len(numbers) - len(gone)
    result = pa.Table.from_batches([rows.take(pa.array(lines))])
    return result.append_column(SINCE, pa.array(since)).append_column(GONE, pa.array(is_gone))


def later_versions(index: JoinIndex, changes: pa.Table) -> pa.Table:
    """Return the versions that an index has, and those that later changes make; only keys with changes are computed.

    Args:
        index: An index of `versions` by SINCE.
        changes: The keys as in `JoinIndex.table`, the rows that were added and removed, SINCE and WEIGHT.

    Raises:
        ValueError: If a row was removed that was not there.
    """
    keys, time = key_columns(index.keys.num_columns, timed=True)
    rows = index.table().rename_columns({time: SINCE})
    changed = JoinIndex.of(build_index(changes, keys, None, [])).match(JoinKeys.of(index.keys.columns), None)[1] > 0
    ends = _ends(index)
    is_added = changed & ~rows.column(GONE).to_numpy()
    is_removed = is_added & (ends < _NEVER)
    added, removed = (rows.filter(pa.array(mask)) for mask in (is_added, is_removed))
    removed = removed.set_column(removed.schema.get_field_index(SINCE), SINCE, pa.array(ends[is_removed]))
    events = [_weighted(added, 1), _weighted(removed, -1), changes]
    later = versions(pa.concat_tables(table.select(changes.column_names) for table in events), keys)
    return pa.concat_tables([rows.filter(pa.array(~changed)), later.select(rows.column_names)])


def _weighted(rows: pa.Table, weight: int) -> pa.Table:
    return rows.append_column(WEIGHT, pa.array(np.full(len(rows), weight)))


def _ends(index: JoinIndex) -> Indices:
    """Return for each row of an index of `versions` when the next version of its key begins."""
    assert index.times is not None
    times, numbers = index.times, np.arange(len(index.times))
    groups = np.searchsorted(index.ends, numbers, side="right")
    begins = np.flatnonzero((np.diff(times) != 0) | (np.diff(groups) != 0)) + 1
    following = np.append(begins, len(times))[np.searchsorted(begins, numbers, side="right")]
    times, groups = np.append(times, _NEVER), np.append(groups, -1)
    return np.where(groups[following] == groups[:-1], times[following], _NEVER)


def _lives(events: pa.RecordBatch) -> tuple[pa.RecordBatch, Indices, Indices]:
    """Return the rows that were added, when each was, and when it was removed: the nth removal ends the nth one.

    Raises:
        ValueError: If a row was removed that was not there.
    """
    rows = events.drop_columns([SINCE, WEIGHT])
    hashes, times = row_hashes(pa.Table.from_batches([rows])), events.column(SINCE).to_numpy()
    is_added = events.column(WEIGHT).to_numpy() > 0
    added, removed = np.flatnonzero(is_added), np.flatnonzero(~is_added)
    added, removed = (side[np.lexsort((times[side], hashes[side]))] for side in (added, removed))
    of_added, of_removed = hashes[added], hashes[removed]
    places = np.searchsorted(of_added, of_removed) + np.arange(len(removed)) - np.searchsorted(of_removed, of_removed)
    is_known = places < len(of_added)
    is_known[is_known] = of_added[places[is_known]] == of_removed[is_known]
    if not is_known.all():
        raise ValueError("a row was removed that was not there")
    ends = np.full(len(added), _NEVER)
    ends[places] = times[removed]
    begins = times[added]
    lived = begins < ends
    return rows.take(pa.array(added[lived])), begins[lived], ends[lived]


def _groups(rows: pa.RecordBatch, keys: Sequence[str]) -> Indices:
    """Return the number of each row's key."""
    lists = rows_of_groups(comparable(rows.select(keys).columns))
    groups = np.empty(len(rows), np.int64)
    groups[lists.flatten().to_numpy()] = np.repeat(np.arange(len(lists)), np.diff(offsets_of(lists)))
    return groups
