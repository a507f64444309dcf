"""The kinds of jobs that chaos kills: what each reads, does, and has to leave in its tables, by plain Python."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

import pyarrow as pa

from tests.chaos.inputs import FILE, KEYS, LATENESS, NEW, late_rows, new_rows, on_time, row_of, with_late_rows
from tests.chaos.kind import Kind
from tests.chaos.series import FILLED, LEVELS, PLACES, SERIES, UPDATES
from tests.recovery.rows import SCHEMA, Row
from volley import DataStream, Environment, col, count, lit, session, sum_, tumbling
from volley.engine.collect import sources
from volley.iceberg import History, Upsert
from volley.iceberg.modes import Strategy
from volley.plan.windows import Emission, Window
from volley.task.failpoints import WINDOW_POINTS

__all__ = ["KINDS"]

_BAD = 50
_WINDOW = timedelta(hours=1)
_FORGOTTEN = 20
_GAP = timedelta(seconds=15)
_NEAR = timedelta(seconds=20)
_TOTALS = ("window_start", "id", "n", "total")


def _ids(numbers: Iterable[int]) -> list[int]:
    """The ids that are new in these files, as far as there are such files."""
    return [id for number in numbers if number >= 0 for id in range(number * NEW, (number + 1) * NEW)]


def _duplicates(dice: random.Random, number: int, earlier: list[int]) -> list[Row]:
    """New rows, some of them twice, and other rows with ids of earlier files."""
    new = new_rows(dice, number)
    again = [row_of(dice, number, id) for id in dice.sample(earlier, min(60, len(earlier)))]
    # Which one of an epoch's rows is the first is not said: those are the same in all columns.
    rows = [*new, *dice.sample(new, 40), *again]
    dice.shuffle(rows)
    return rows


def _with_duplicates(dice: random.Random, number: int) -> list[Row]:
    return _duplicates(dice, number, _ids(range(number)))


def _with_near_duplicates(dice: random.Random, number: int) -> list[Row]:
    """Ids of files within the window, and of one file so long ago that its ids are forgotten: those are new again."""
    return _duplicates(dice, number, _ids([*range(number - 4, number), number - _FORGOTTEN]))


def _upserted(dice: random.Random, number: int) -> list[Row]:
    """New rows; a few single earlier ones and many neighbours replaced, others deleted; some ids several times."""
    earlier = number * NEW
    ids = list(range(earlier, earlier + NEW))
    if earlier:
        dense = dice.randrange(earlier)
        ids += [*range(dense, min(dense + 40, earlier)), *dice.sample(range(earlier), 4)]
    ids += dice.sample(ids, 20)
    dice.shuffle(ids)
    rows = [row_of(dice, number, id, second) for second, id in enumerate(ids)]
    dice.shuffle(rows)
    return [row | {"op": dice.choice("uuuuud")} for row in rows]


def _first_of_each(files: Sequence[list[Row]]) -> Iterable[Row]:
    return {row["id"]: row for rows in reversed(files) for row in rows}.values()


def _first_within(files: Sequence[list[Row]]) -> Iterable[Row]:
    seen: dict[int, Row] = {}
    for rows in files:
        for row in rows:
            first = seen.get(row["id"])
            if first is None or row["at"] - first["at"] > _WINDOW:
                seen[row["id"]] = row
                yield row


def _last_of_each(files: Sequence[list[Row]]) -> Iterable[Row]:
    last = {row["id"]: row for rows in files for row in sorted(rows, key=lambda row: row["at"])}
    return [{name: row[name] for name in SCHEMA.names} for row in last.values() if row["op"] != "d"]


def _good(files: Sequence[list[Row]]) -> Iterable[Row]:
    return (row | {"twice": 2 * row["id"]} for rows in files for row in rows if row["id"] % 7 and not _is_bad(row))


def _bad_rows(files: Sequence[list[Row]]) -> Iterable[tuple[int, Row]]:
    return ((number, row) for number, rows in enumerate(files) for row in rows if _is_bad(row))


def _is_bad(row: Row) -> bool:
    return bool(row["id"] % 7 and row["id"] % _BAD == 3)


def _computed(stream: DataStream) -> DataStream:
    """Divides by zero where a row is bad."""
    twice = col("id") * 2 + (lit(0) / (col("id") % _BAD - 3)).cast("long")
    return stream.filter_expr(col("id") % 7 != 0).with_column("twice", twice)


def _totals(rows: list[Row]) -> Row:
    amounts = [row["amount"] for row in rows if row["amount"] is not None]
    return {"n": len(rows), "total": sum(amounts) if amounts else None}


def _per_minute(files: Sequence[list[Row]]) -> Iterable[Row]:
    windows: dict[tuple[datetime, int], list[Row]] = {}
    for row in on_time(files):
        windows.setdefault((row["at"].replace(second=0, microsecond=0), row["id"] % KEYS), []).append(row)
    return ({"window_start": start, "id": key} | _totals(rows) for (start, key), rows in windows.items())


def _per_session(files: Sequence[list[Row]]) -> Iterable[Row]:
    sessions: dict[int, list[list[Row]]] = {}
    for row in sorted(on_time(files), key=lambda row: row["at"]):
        own = sessions.setdefault(row["id"] % KEYS, [])
        if not own or row["at"] - own[-1][-1]["at"] >= _GAP:
            own.append([])
        own[-1].append(row)
    each = ((key, rows) for key, own in sessions.items() for rows in own)
    return ({"window_start": rows[0]["at"], "id": key} | _totals(rows) for key, rows in each)


def _windowed(stream: DataStream, window: Window, emit: Emission) -> DataStream:
    keyed = stream.key_by(id=col("id") % KEYS)
    rows = keyed.window(window, on="at", lateness=LATENESS, late="dead_letter", emit=emit)
    return rows.aggregate(n=count(), total=sum_("amount")).drop("window_end")


def _near(stream: DataStream) -> DataStream:
    """Each third row with the later rows of its key that are near."""
    keyed = stream.select("id", "at", key=col("id") % KEYS)
    left, right = keyed.split(col("id") % 3 == 0)
    within = (timedelta(0), _NEAR)
    return left.join(
        right,
        "key",
        "left",
        within=within,
        time="at",
        lateness=LATENESS,
        late="dead_letter",
        columns=["id", "at"],
        suffix="_2",
    )


def _neighbours(files: Sequence[list[Row]]) -> Iterable[Row]:
    rows, others = list(on_time(files)), dict[int, list[Row]]()
    for row in rows:
        if row["id"] % 3:
            others.setdefault(row["id"] % KEYS, []).append(row)
    for row in rows:
        if row["id"] % 3 == 0:
            candidates = others.get(row["id"] % KEYS, [])
            near = [other for other in candidates if timedelta(0) <= other["at"] - row["at"] <= _NEAR]
            for other in near or [{"id": None, "at": None}]:
                key = row["id"] % KEYS
                yield {"id": row["id"], "at": row["at"], "key": key, "id_2": other["id"], "at_2": other["at"]}


def _out_of_order(dice: random.Random, number: int) -> list[Row]:
    """Changes of which many belong before those of earlier files; no two changes of an id have one time."""
    rows = _upserted(dice, number)
    unique = timedelta(microseconds=number)
    return [row | {"at": row["at"] - FILE * dice.choice([0, 0, 0, 1, 2, 5]) + unique} for row in rows]


def _latest_of_each(files: Sequence[list[Row]]) -> Iterable[Row]:
    return _last_of_each([[row for rows in files for row in rows]])


def _incomplete(dice: random.Random, number: int) -> list[Row]:
    """The same, of which each leaves about half of its values as they are."""
    kept = ("id", "at", "op")
    return [
        {name: value if name in kept or dice.random() < 0.5 else None for name, value in row.items()}
        for row in _out_of_order(dice, number)
    ]


def _put_together(files: Sequence[list[Row]]) -> Iterable[Row]:
    """The rows that changes make together, each with the values that it sets; a deletion ends what was before."""
    together: dict[int, Row] = {}
    for row in sorted((row for rows in files for row in rows), key=lambda row: row["at"]):
        if row["op"] == "d":
            together.pop(row["id"], None)
        else:
            own = together.setdefault(row["id"], dict.fromkeys(SCHEMA.names))
            own |= {name: row[name] for name in SCHEMA.names if row[name] is not None}
    return together.values()


def _extract(dice: random.Random, number: int) -> list[Row]:
    """A full extract: of the ids so far some are missing, some have changed, most are as they were."""
    ids = [id for id in range((number + 1) * NEW // 2) if dice.random() < 0.8]
    changed = set(dice.sample(ids, len(ids) // 10))
    rows = [row_of(random.Random(number if id in changed else 0), 0, id, id % FILE.seconds) for id in ids]
    dice.shuffle(rows)
    return rows


def _compared(stream: DataStream) -> DataStream:
    """What changes from one of the source's files to the next."""
    (read,), environment = sources(stream._node), stream._environment
    assert isinstance(environment, Environment)
    return environment.changes_from_snapshots(read, "id", r"(\d+)\.parquet", max_deleted=None)


def _versions(files: Sequence[list[Row]]) -> Iterable[Row]:
    """The rows of each id in the order of their times, each until the next, without deletions."""
    changes: dict[int, dict[datetime, Row]] = {}
    for row in (row for rows in files for row in rows):
        of_id = changes.setdefault(row["id"], {})
        if row["at"] not in of_id or row["op"] == "d":
            of_id[row["at"]] = row
    for of_id in changes.values():
        times = sorted(of_id)
        for at, until in zip(times, [*times[1:], None], strict=True):
            if of_id[at]["op"] != "d":
                limits = {"valid_from": at, "valid_to": until, "is_current": until is None}
                yield {name: of_id[at][name] for name in SCHEMA.names} | limits


def _upsert(strategy: Strategy) -> Kind:
    mode = Upsert("id", order_by="at", op_field="op", strategy=strategy)
    return Kind(_upserted, lambda stream: stream, _last_of_each, mode=mode, more=(("op", pa.string()),))


def _changes_of_a_rival(dice: random.Random, files: int, number: int) -> list[Row]:
    """Changes of rows of any file, of any time so far, which is no other change's."""
    ids = dice.sample(range(files * NEW), 40)
    own = timedelta(microseconds=500_000 + number)
    rows = [row_of(dice, dice.randrange(files), id) for id in ids]
    return [row | {"at": row["at"] + own, "op": dice.choice("uuud")} for row in rows]


def _in_sequence(strategy: Strategy) -> Kind:
    """Changes in any order, by two jobs."""
    return Kind(
        _out_of_order,
        lambda stream: stream,
        _latest_of_each,
        mode=Upsert("id", sequence="at", op_field="op", strategy=strategy),
        more=(("op", pa.string()),),
        rival=_changes_of_a_rival,
    )


KINDS = {
    "append": Kind(new_rows, _computed, _good, columns=(*SCHEMA.names, "twice"), bad=_bad_rows),
    "deduplicate": Kind(
        _with_duplicates, lambda stream: stream.deduplicate("id"), _first_of_each, points=WINDOW_POINTS
    ),
    "deduplicate_within": Kind(
        _with_near_duplicates,
        lambda stream: stream.deduplicate("id", event_time="at", within=_WINDOW),
        _first_within,
        points=WINDOW_POINTS,
    ),
    "windows": Kind(
        with_late_rows,
        lambda stream: _windowed(stream, tumbling(timedelta(minutes=1)), "final"),
        _per_minute,
        columns=_TOTALS,
        bad=late_rows,
        points=WINDOW_POINTS,
    ),
    "sessions": Kind(
        with_late_rows,
        lambda stream: _windowed(stream, session(_GAP), "updates"),
        _per_session,
        columns=_TOTALS,
        mode=Upsert(["window_start", "id"], op_field="_change"),
        bad=late_rows,
        points=WINDOW_POINTS,
    ),
    "joined_streams": Kind(
        with_late_rows,
        _near,
        _neighbours,
        columns=("id", "at", "key", "id_2", "at_2"),
        bad=late_rows,
        points=WINDOW_POINTS,
    ),
    "series": SERIES,
    "filled": FILLED,
    "levels": LEVELS,
    "updates": UPDATES,
    "places": PLACES,
    "copy_on_write": _upsert("copy_on_write"),
    "upsert_auto": _upsert("auto"),
    "in_sequence": _in_sequence("auto"),
    "in_sequence_merged": _in_sequence("merge_on_read"),
    "in_sequence_copied": _in_sequence("copy_on_write"),
    "partial": Kind(
        _incomplete,
        lambda stream: stream,
        _put_together,
        mode=Upsert("id", sequence="at", op_field="op", ignore_nulls=True),
        more=(("op", pa.string()),),
    ),
    "snapshots": Kind(
        _extract, _compared, lambda files: files[-1], mode=Upsert(sequence="_version"), points=WINDOW_POINTS
    ),
    "history": Kind(
        _out_of_order,
        lambda stream: stream,
        _versions,
        columns=(*SCHEMA.names, "valid_from", "valid_to", "is_current"),
        mode=History("id", sequence="at", op_field="op"),
        more=(("op", pa.string()),),
    ),
}
"""By the name that the job, its input folder and its table have."""
