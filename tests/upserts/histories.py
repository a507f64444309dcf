"""Random changes of keys, cut into epochs, and the history that DuckDB makes of all of them at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from tests.duck import query
from volley.columns.exact import array_of

__all__ = ["SCHEMA", "Row", "change", "epochs_of", "expected", "histories"]

SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "part": pa.string(),
        "seq": pa.int64(),
        "value": pa.int64(),
        "note": pa.string(),
        "op": pa.string(),
    }
)
Row = dict[str, Any]

ROWS = st.fixed_dictionaries(
    {
        "id": st.integers(0, 3),
        "part": st.sampled_from(["a", "a", "b"]),
        "seq": st.integers(0, 7),
        "value": st.none() | st.integers(0, 1),
        "note": st.sampled_from([None, "x", "y"]),
        "op": st.sampled_from(["u", "c", None, None, "D", "delete"]),
    }
)
TRUNCATES = st.fixed_dictionaries(
    {
        "id": st.none(),
        "part": st.none(),
        "seq": st.integers(0, 7),
        "value": st.none(),
        "note": st.none(),
        "op": st.sampled_from(["t", "TRUNCATE"]),
    }
)


def change(number: int | None, seq: Any, value: Any = None, op: str | None = None, note: str | None = None) -> Row:
    return {"id": number, "part": None if number is None else "a", "seq": seq, "value": value, "note": note, "op": op}


def expected(rows: Sequence[Row], tracked: Sequence[str] = ("value", "note"), schema: pa.Schema = SCHEMA) -> list[Row]:
    """What a batch query makes of all changes, whatever their order."""
    columns = [array_of([each[field.name] for each in rows], field.type) for field in schema]
    changed = " or ".join(f"({name} is distinct from lag({name}) over by_key)" for name in tracked)
    found = query(
        f"""
        with events as (select *, coalesce(lower(op), '') as kind from changes),
        truncated as (select distinct seq from events where kind in ('t', 'truncate')),
        named as (
            select id, part, seq, value, note, kind in ('d', 'delete') as deleted from events
            where kind not in ('t', 'truncate')
            union all
            select id, part, seq, null, null, true
            from (select distinct id, part from events where kind not in ('t', 'truncate')), truncated
        ),
        counting as (
            select * from named qualify row_number() over (
                partition by id, part, seq order by deleted desc, value desc nulls last, note desc nulls last
            ) = 1
        ),
        compared as (
            select *, lead(seq) over by_key as next_seq,
                deleted or coalesce(lag(deleted) over by_key, true) or {changed} as begins
            from counting window by_key as (partition by id, part order by seq)
        ),
        numbered as (
            select *, sum(begins::int) over (partition by id, part order by seq) as version from compared
        )
        select id, part, max(seq) as seq, last(value order by seq) as value, last(note order by seq) as note,
            min(seq) as valid_from, last(next_seq order by seq) as valid_to, valid_to is null as is_current
        from numbered group by id, part, version having not bool_or(deleted)
        """,
        changes=pa.Table.from_arrays(columns, schema=schema),
    )
    return sorted(found.to_arrow_table().to_pylist(), key=repr)


@st.composite
def epochs_of(draw: st.DrawFn, rows: Sequence[Row]) -> list[list[list[Row]]]:
    """Epochs of tasks of these rows, of which some come again."""
    again = draw(st.lists(st.sampled_from(rows), max_size=6))
    epochs: list[list[list[Row]]] = [[[]]]
    for each in draw(st.permutations([*rows, *again])):
        cut = draw(st.sampled_from(["row", "row", "task", "epoch"]))
        if cut == "epoch":
            epochs.append([[]])
        elif cut == "task":
            epochs[-1].append([])
        epochs[-1][-1].append(each)
    return [tasks for tasks in epochs if any(tasks)]


@st.composite
def histories(draw: st.DrawFn) -> list[list[list[Row]]]:
    """Epochs of tasks of random changes, now and then with truncates."""
    rows = draw(st.lists(ROWS, min_size=1, max_size=24))
    truncates = draw(st.lists(TRUNCATES, max_size=2)) if draw(st.integers(0, 2)) == 0 else []
    return draw(epochs_of([*rows, *truncates]))
