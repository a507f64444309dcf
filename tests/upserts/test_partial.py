"""Rows that leave values as they are: null, not named or unchanged ones; also by sequence, in any order."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.duck import query
from tests.tiers import examples, some
from tests.upserts.conftest import MakeLake
from tests.upserts.lake import QUERY, Lake
from tests.upserts.test_sequence import TOMBSTONES, Writer, keep, live
from volley import ConfigError, SchemaMismatchError, SourceError, coalesce, col
from volley.columns.exact import array_of
from volley.iceberg import SchemaEvolution, SnapshotManager, Upsert, publish_branch
from volley.iceberg.modes import Strategy

SCHEMA = pa.schema(
    {
        **{"id": pa.int64(), "part": pa.string(), "seq": pa.int64(), "a": pa.int64(), "b": pa.string()},
        **{"c": pa.float64(), "op": pa.string(), "missing": pa.list_(pa.string())},
    }
)
COLUMNS = ["a", "b", "c"]
UNCHANGED = Upsert(["id", "part"], sequence="seq", op_field="op", unchanged_field="missing")
IGNORING = Upsert(["id", "part"], sequence="seq", op_field="op", ignore_nulls=True)
Row = dict[str, Any]


@st.composite
def rows(draw: st.DrawFn) -> Row:
    missing = draw(st.none() | st.lists(st.sampled_from(COLUMNS), unique=True))
    values = {
        "a": draw(st.none() | st.integers(0, 2)),
        "b": draw(st.none() | st.sampled_from(["", "x", "y"])),
        "c": draw(st.none() | st.sampled_from([0.0, 1.5, -2.0])),
    }
    left_out = dict.fromkeys(missing or ())
    return {
        **{"id": draw(st.integers(0, 4)), "part": draw(st.sampled_from(["a", "b"])), "seq": draw(st.integers(0, 7))},
        **{**values, **left_out, "missing": missing},
        **{"op": draw(st.sampled_from(["u", "u", "u", "D", None]))},
    }


@st.composite
def histories(draw: st.DrawFn) -> list[list[list[Row]]]:
    """Epochs of tasks of rows; some rows come again in a later epoch."""
    new = draw(st.lists(rows(), min_size=1, max_size=24))
    everything = draw(st.permutations([*new, *draw(st.lists(st.sampled_from(new), max_size=6))]))
    epochs: list[list[list[Row]]] = [[[]]]
    for each in everything:
        cut = draw(st.sampled_from(["row", "row", "task", "epoch"]))
        if cut == "epoch":
            epochs.append([[]])
        elif cut == "task":
            epochs[-1].append([])
        epochs[-1][-1].append(each)
    return [tasks for tasks in epochs if any(tasks)]


def expected(changes: Sequence[Row], mode: Upsert) -> list[Row]:
    """What a batch query makes of all rows, whatever their order."""
    columns = [array_of([each.get(field.name) for each in changes], field.type) for field in SCHEMA]
    lacks = "{0} is null" if mode.ignore_nulls else "list_contains(coalesce(missing, []), '{0}')"
    nothing = {"a": "0", "b": "''", "c": "0"}
    greatest = [
        f"max({{s: seq, n: {name} is not null, v: coalesce({name}, {nothing[name]})}}) "
        f"filter (not ({lacks.format(name)})) as {name}"
        for name in COLUMNS
    ]
    values = [f"case when {name}.n then {name}.v end as {name}" for name in COLUMNS]
    found = query(
        f"""
        with marked as (select *, coalesce(lower(op), '') in ('d', 'delete') as gone from events),
        living as (
            select * from marked as each where not gone and not exists (
                from marked as d where d.gone and d.id = each.id and d.part = each.part and d.seq >= each.seq
            )
        ),
        folded as (select id, part, max(seq) as seq, {", ".join(greatest)} from living group by all)
        select id, part, seq, {", ".join(values)} from folded
        """,
        events=pa.Table.from_arrays(columns, schema=SCHEMA),
    )
    return sorted(found.to_arrow_table().to_pylist(), key=repr)


def stored(lake: Lake, by: str = "rows") -> list[Row]:
    read: list[Row] = lake.rows() if by == "rows" else lake.duckdb_rows()
    return [{name: value for name, value in each.items() if name in ("id", "part", "seq", *COLUMNS)} for each in read]


@pytest.mark.parametrize("mode", some([UNCHANGED, IGNORING]), ids=["unchanged", "nulls"])
@pytest.mark.parametrize("strategy", some(["auto", "merge_on_read", "copy_on_write"]))
@settings(max_examples=examples(0.3))
@given(
    epochs=histories(),
    upkeep=st.lists(st.sampled_from(["", "", "compact", "expire", "orphans"]), max_size=4),
    version=st.sampled_from(["2", "3"]),
)
def test_any_order_gives_the_table_of_a_batch_query(
    mode: Upsert, strategy: Strategy, epochs: list[list[list[Row]]], upkeep: list[str], version: str
) -> None:
    schema = SCHEMA if mode is UNCHANGED else SCHEMA.remove(7)
    settings = {name: getattr(mode, name) for name in mode.__dataclass_fields__} | {"strategy": strategy}
    properties = {"format-version": version}
    upsert = Upsert(**settings)
    with tempfile.TemporaryDirectory() as folder, closing(Lake(Path(folder), upsert, schema, **properties)) as lake:
        for number, tasks in enumerate(epochs):
            lake.epoch(*tasks)
            keep(lake, upkeep[number] if number < len(upkeep) else "")
        changes = [each for tasks in epochs for task in tasks for each in task]
        assert stored(lake) == stored(lake, "duckdb") == expected(changes, mode)
        assert {path.name for path in lake.files()} <= live(lake)


@settings(max_examples=examples(0.3))
@given(first=st.lists(rows(), min_size=1, max_size=8), second=st.lists(rows(), min_size=1, max_size=8))
def test_two_writers_whose_epochs_overlap(first: list[Row], second: list[Row]) -> None:
    with tempfile.TemporaryDirectory() as folder, closing(Lake(Path(folder), UNCHANGED, SCHEMA)) as lake:
        writers = Writer(lake, QUERY), Writer(lake, QUERY.replace("2b6f", "3c7f"))
        staged = [writer.stage(rows) for writer, rows in zip(writers, (first, second), strict=True)]
        for driver, epoch, results in staged:
            driver.commit(epoch, results)
        assert stored(lake) == expected([*first, *second], UNCHANGED)


PLAIN = SCHEMA.remove(7)


def change(seq: int, op: str | None = None, id: int = 1, **values: Any) -> Row:
    return {"id": id, "part": "p", "seq": seq, "op": op, **values}


def row(seq: int, a: int | None = None, b: str | None = None, c: float | None = None, id: int = 1) -> Row:
    return {"id": id, "part": "p", "seq": seq, "a": a, "b": b, "c": c}


def cut(changes: Sequence[Row]) -> list[list[list[Row]]]:
    """The changes in one epoch, in one of several tasks, and in an epoch each."""
    return [[list(changes)], [[each] for each in changes]]


FOLDED: dict[str, tuple[list[Row], list[Row]]] = {
    "of a stored row": ([change(1, a=1, b="x", c=1.0), change(2, b="y"), change(3, a=3)], [row(3, 3, "y", 1.0)]),
    "of a new row": ([change(1, a=1), change(2, b="y"), change(3, b="z", c=0.0)], [row(3, 1, "z", 0.0)]),
    "after a deletion": ([change(1, a=1, b="x", c=1.0), change(2, "d"), change(3, a=3)], [row(3, 3)]),
    "before a deletion": ([change(1, a=1), change(2, b="x"), change(3, "d")], []),
}


@pytest.mark.parametrize("epochs", [0, 1], ids=["one-epoch", "an-epoch-each"])
@pytest.mark.parametrize(("changes", "left"), FOLDED.values(), ids=FOLDED)
@pytest.mark.parametrize("order_by", [None, "seq"])
def test_nulls_that_leave_values_as_they_are(
    order_by: str | None, changes: list[Row], left: list[Row], epochs: int, make_lake: MakeLake
) -> None:
    lake = make_lake(Upsert(["id", "part"], order_by, "op", ignore_nulls=True), PLAIN)
    for rows in cut(changes)[epochs]:
        lake.epoch(rows)
    assert stored(lake) == left


@pytest.mark.parametrize("epochs", [0, 1], ids=["one-epoch", "an-epoch-each"])
def test_nulls_of_some_columns(epochs: int, make_lake: MakeLake) -> None:
    lake = make_lake(Upsert(["id", "part"], "seq", "op", ignore_nulls=["b"]), PLAIN)
    for rows in cut([change(1, a=1, b="x", c=1.0), change(2)])[epochs]:
        lake.epoch(rows)
    assert stored(lake) == [row(2, None, "x", None)]


@pytest.mark.parametrize("epochs", [0, 1], ids=["one-epoch", "an-epoch-each"])
def test_columns_that_are_updated(epochs: int, make_lake: MakeLake) -> None:
    """A new row is whole, also of a key that was deleted; of one that is there, these columns are replaced."""
    lake = make_lake(Upsert(["id", "part"], "seq", "op", update_columns=["b"]), PLAIN)
    first, second = change(1, a=1, b="x", c=1.0), change(2, a=2, b="y", c=2.0)
    anew = [change(3, "d", id=2), change(4, a=4, b="z", id=2), change(5, a=5, c=5.0, id=2)]
    for rows in cut([first, change(1, a=1, b="x", id=2), second, *anew])[epochs]:
        lake.epoch(rows)
    assert stored(lake) == [row(2, 1, "y", 1.0), row(5, 4, None, None, id=2)]


def test_nulls_of_updated_columns_leave_values_as_they_are(make_lake: MakeLake) -> None:
    lake = make_lake(Upsert(["id", "part"], "seq", "op", update_columns=["a", "b"], ignore_nulls=True), PLAIN)
    lake.epoch([change(1, a=1, b="x", c=1.0)])
    lake.epoch([change(2, a=2, c=2.0), change(3, b="y", c=3.0)])
    assert stored(lake) == [row(3, 2, "y", 1.0)]


def test_a_required_column_that_a_row_leaves_as_it_is(make_lake: MakeLake) -> None:
    lake = make_lake(Upsert("id", ignore_nulls=True), pa.schema({"id": pa.int64(), "a": pa.int64(), "b": pa.string()}))
    lake.epoch([{"id": 1, "a": 1, "b": "x"}])
    with lake.table().update_schema(allow_incompatible_changes=True) as update:
        update.update_column("a", required=True)
    lake.epoch([{"id": 1, "b": "y"}])
    assert lake.rows() == [{"id": 1, "a": 1, "b": "y"}]
    with pytest.raises(SchemaMismatchError, match="column 'a' has 1 nulls"):
        lake.epoch([{"id": 2, "b": "y"}])


def test_a_required_column_has_a_value_in_each_row_by_sequence(make_lake: MakeLake) -> None:
    """Else the table could not have the row before another one has come."""
    lake = make_lake(IGNORING, PLAIN)
    lake.epoch([change(1, a=1)])
    with lake.table().update_schema(allow_incompatible_changes=True) as update:
        update.update_column("a", required=True)
    lake.epoch([change(2, a=2, b="x"), change(0, "d")])
    with pytest.raises(SchemaMismatchError, match="column 'a' has nulls, the table requires values"):
        lake.epoch([change(3, b="y")])
    assert stored(lake) == [row(2, 2, "x")]


def test_a_deletion_ends_what_an_unchanged_value_may_come_from(make_lake: MakeLake) -> None:
    lake = make_lake(Upsert(["id", "part"], "seq", "op", unchanged_field="missing"), SCHEMA)
    lake.epoch([change(1, a=1, b="x", c=1.0)])
    with pytest.raises(SourceError, match="1 rows have no value of column 'b'"):
        lake.epoch([change(2, "d"), change(3, a=3, c=3.0, missing=["b"])])


def test_an_unchanged_column_that_is_not_written(make_lake: MakeLake) -> None:
    """A step before the sink may have dropped it."""
    lake = make_lake(Upsert(["id", "part"], "seq", "op", unchanged_field="missing"), SCHEMA.remove(4))
    lake.epoch([change(1, a=1, c=1.0), change(2, a=2, c=2.0, id=2)])
    lake.epoch([change(3, a=3, missing=["b", "c"])])
    assert {(each["a"], each["c"]) for each in lake.rows()} == {(2, 2.0), (3, 1.0)}


def test_what_a_row_lacks_comes_late(make_lake: MakeLake) -> None:
    """The column `_volley_older` says of each value that is older than its row how old it is."""
    lake = make_lake(UNCHANGED, SCHEMA)
    lake.epoch([change(5, a=5, missing=["b", "c"])])
    ids = {field.name: field.field_id for field in lake.table().schema().fields}
    assert lake.rows() == [
        {
            **row(5, 5),
            "_volley_older": [{"column_id": ids["b"], "sequence": None}, {"column_id": ids["c"], "sequence": None}],
        }
    ]
    lake.epoch([change(2, a=2, b="old", c=2.0)])
    lake.epoch([change(4, b="late", missing=["a", "c"]), change(3, b="x", missing=["a", "c"])])
    older = [{"column_id": ids["b"], "sequence": {"seq": 4}}, {"column_id": ids["c"], "sequence": {"seq": 2}}]
    assert lake.rows() == [{**row(5, 5, "late", 2.0), "_volley_older": older}]
    assert lake.duckdb_rows() == lake.rows()
    lake.epoch([change(6, a=6, b="whole", c=6.0)])
    assert lake.duckdb_rows() == [{**row(6, 6, "whole", 6.0), "_volley_older": None}]


def test_a_change_that_the_table_has_is_not_written_again(make_lake: MakeLake) -> None:
    lake = make_lake(IGNORING, PLAIN)
    changes = [change(5, a=5), change(3, a=3, b="x"), change(1, "d"), change(2, "d", id=2)]
    for rows in cut(changes)[1]:
        lake.epoch(rows)
    refs = lake.table().metadata.refs
    lake.epoch(changes)
    lake.epoch([change(4, a=4), change(2, b="lost"), change(1, c=1.0)])
    assert (lake.table().metadata.refs["main"], lake.table().metadata.refs[TOMBSTONES]) == (
        refs["main"],
        refs[TOMBSTONES],
    )
    assert stored(lake) == expected([*changes, change(4, a=4)], IGNORING) == [row(5, 5, "x")]


def test_a_late_deletion_takes_what_is_older(make_lake: MakeLake) -> None:
    """It is remembered while the row has no value of a column since: an older one may come yet."""
    lake = make_lake(UNCHANGED, SCHEMA)
    lake.epoch([change(1, a=1, b="x", c=1.0), change(5, a=5, missing=["b", "c"])])
    lake.epoch([change(3, "d")])
    assert stored(lake) == [row(5, 5)]
    lake.epoch([change(2, a=2, b="y", c=2.0), change(4, b="z", missing=["a", "c"])])
    assert stored(lake) == [row(5, 5, "z")]


def test_values_of_one_sequence(make_lake: MakeLake) -> None:
    """Of each column the greater one stays, whichever comes first."""
    changes = [change(1, a=1, b="z"), change(1, a=2, b="x", c=1.0), change(1, c=0.0)]
    for epochs in (*cut(changes), *cut(changes[::-1])):
        lake = make_lake(IGNORING, PLAIN)
        for rows in epochs:
            lake.epoch(rows)
        assert stored(lake) == [row(1, 2, "z", 1.0)]


def test_a_rollback_brings_back_the_sequences_of_its_values(make_lake: MakeLake) -> None:
    lake = make_lake(UNCHANGED, SCHEMA)
    lake.epoch([change(1, a=1, b="x", c=1.0), change(4, a=4, missing=["b", "c"])])
    before = lake.table().current_snapshot()
    assert before is not None
    lake.epoch([change(3, b="y", missing=["a", "c"])])
    SnapshotManager(lake.config.ref).rollback_to(before.snapshot_id)
    lake.epoch([change(2, b="z", missing=["a", "c"])])
    assert stored(lake) == [row(4, 4, "z", 1.0)]


def test_a_table_from_before_rows_were_incomplete(make_lake: MakeLake) -> None:
    """Its rows are whole; the column that they need comes with the first rows."""
    lake = make_lake(Upsert(["id", "part"], sequence="seq", op_field="op"), PLAIN)
    lake.epoch([change(3, a=3, b="x")])
    lake.config = lake.config.with_commit_mode(IGNORING).with_schema_evolution("add_columns")
    lake.epoch([change(4, a=4)])
    lake.epoch([change(2, c=2.0), change(3, b="w")])
    assert stored(lake) == [row(4, 4, "x")]


@pytest.mark.parametrize("epochs", [0, 1], ids=["one-epoch", "an-epoch-each"])
def test_an_expression_as_sequence(epochs: int, make_lake: MakeLake) -> None:
    schema = pa.schema({"id": pa.int64(), "created": pa.int64(), "updated": pa.int64(), "op": pa.string()})
    latest = coalesce(col("updated"), col("created"))
    lake = make_lake(Upsert("id", sequence=[latest, coalesce(col("created"), 0)], op_field="op"), schema)
    changes: list[Row] = [
        {"id": 1, "created": 1, "updated": 9},
        {"id": 1, "created": 3, "updated": None},
        {"id": 1, "created": 2, "updated": 9},
        {"id": 2, "created": None, "updated": 5, "op": "d"},
        {"id": 2, "created": 4, "updated": None},
    ]
    for rows in cut(changes)[epochs]:
        lake.epoch(rows)
    assert lake.rows() == [{"id": 1, "created": 2, "updated": 9, "_volley_sequence": 9, "_volley_sequence_2": 2}]
    with pytest.raises(SchemaMismatchError, match="sequence column '_volley_sequence' has 1 nulls"):
        lake.epoch([{"id": 1}])


def test_an_expression_of_a_column_that_is_not_written(make_lake: MakeLake) -> None:
    schema = pa.schema({"id": pa.int64(), "version": pa.string(), "op": pa.string()})
    number = col("version").str.length().alias("length")
    lake = make_lake(Upsert("id", sequence=number, op_field="op"), schema)
    lake.epoch([{"id": 1, "version": "xxx"}])
    lake.epoch([{"id": 1, "version": "yy"}])
    assert lake.rows() == [{"id": 1, "version": "xxx", "length": 3}]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"unchanged_field": "missing", "ignore_nulls": True}, "unchanged_field and ignore_nulls"),
        ({"unchanged_field": "missing", "update_columns": ["a"]}, "unchanged_field and ignore_nulls"),
        ({"sequence": "seq", "update_columns": ["a"]}, "update_columns and sequence are both given"),
        ({"update_columns": []}, "update_columns is"),
        ({"update_columns": ["id"]}, "update_columns is"),
        ({"ignore_nulls": ["op"], "op_field": "op"}, "ignore_nulls is"),
        ({"ignore_nulls": None}, "ignore_nulls"),
        ({"sequence": col("seq") + 1, "order_by": "seq"}, "sequence and order_by"),
        ({"sequence": [col("seq"), "seq"]}, "sequence is"),
    ],
)
def test_settings_that_make_no_sense(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Upsert(["id", "part"], **options)


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        (Upsert("id", ignore_nulls=["other"]), "unknown column 'other'"),
        (Upsert("id", update_columns=["other"]), "unknown column 'other'"),
        (Upsert("id", sequence=(col("seq") + 1).alias("a")), "the stream has the column 'a'"),
        (Upsert("id", sequence=(col("missing").alias("x"))), "whose values have no order"),
    ],
)
def test_streams_that_do_not_fit(mode: Upsert, said: str, make_lake: MakeLake) -> None:
    with pytest.raises(ConfigError, match=said):
        make_lake(mode, SCHEMA).driver()


def test_a_column_that_is_renamed_keeps_the_sequence_of_its_value(make_lake: MakeLake) -> None:
    lake = make_lake(IGNORING, PLAIN)
    lake.epoch([change(1, a=1, b="x"), change(5, a=5)])
    with lake.table().update_schema() as update:
        update.rename_column("b", "label")
    lake.schema = pa.schema([field.with_name("label") if field.name == "b" else field for field in PLAIN])
    lake.epoch([change(3, label="y")])
    lake.epoch([change(2, label="z")])
    assert [each["label"] for each in lake.rows()] == ["y"]


def test_a_column_that_comes_later_is_filled_by_older_rows(make_lake: MakeLake) -> None:
    """As in a backfill: the rows of before have no value of it."""
    lake = make_lake(IGNORING, PLAIN)
    lake.epoch([change(5, a=5), change(5, a=6, id=2)])
    lake.schema = PLAIN.append(pa.field("extra", pa.int64()))
    for seq in (2, 3, 1):
        lake.epoch([change(seq, extra=seq)])
    lake.epoch([change(4, "d", id=2)])
    before = lake.table().current_snapshot()
    lake.epoch([change(3, extra=3), change(5, a=5), change(5, a=6, id=2), change(3, extra=3, id=2)])
    found = [(each["seq"], each["a"], each["extra"]) for each in lake.rows()]
    assert sorted(found, key=repr) == [(5, 5, 3), (5, 6, None)]
    assert lake.table().current_snapshot() == before


@pytest.mark.parametrize("backwards", [False, True])
def test_the_default_of_a_column_that_comes_later_is_the_value_of_older_rows(
    backwards: bool, make_lake: MakeLake
) -> None:
    """A row that is new has the default only until a value of it comes, however old."""
    lake = make_lake(IGNORING, PLAIN, **{"format-version": "3"})
    lake.epoch([change(5, a=5), change(5, a=6, id=2), change(5, id=3)])
    SchemaEvolution(lake.table().schema()).add("extra", "long", default=9).apply(lake.config.ref)
    lake.schema = PLAIN.append(pa.field("extra", pa.int64()))
    late = [change(3, extra=7), change(8, extra=7, id=2), change(5, extra=7, id=3)]
    late += [change(1, extra=7, id=4), change(2, id=4), change(2, id=5)]
    for each in reversed(late) if backwards else late:
        lake.epoch([each])
    found = [tuple(each[name] for name in ("id", "seq", "a", "extra")) for each in lake.rows()]
    assert sorted(found) == [(1, 5, 5, 9), (2, 8, 6, 7), (3, 5, None, 9), (4, 2, None, 7), (5, 2, None, 9)]


@pytest.mark.parametrize("strategy", some(["merge_on_read", "copy_on_write"]))
@pytest.mark.parametrize("mode", [UNCHANGED, IGNORING], ids=["unchanged", "nulls"])
def test_a_table_of_keys_only(mode: Upsert, strategy: Strategy, make_lake: MakeLake) -> None:
    columns = ["id", "part", "seq", "op", *(["missing"] if mode is UNCHANGED else [])]
    lake = make_lake(replace(mode, strategy=strategy), pa.schema([SCHEMA.field(name) for name in columns]))
    lake.epoch([change(1), change(5, id=2), change(3)])
    lake.epoch([change(2), change(4, "d", id=2), change(4, "d", id=3)])
    lake.epoch([change(4, "d"), change(3, id=3), change(5, id=3)])
    assert [(each["id"], each["seq"]) for each in lake.rows()] == [(2, 5), (3, 5)]


def test_older_values_keep_their_sequence_if_its_column_is_renamed(make_lake: MakeLake) -> None:
    lake = make_lake(IGNORING, PLAIN)
    lake.epoch([change(3, b="x"), change(5, a=5)])
    lake.schema = pa.schema([field.with_name("version") if field.name == "seq" else field for field in PLAIN])
    mode = replace(IGNORING, sequence="version")
    lake.config = lake.config.with_commit_mode(mode).with_schema_evolution("full", renames={"seq": "version"})
    for seq, value in ((2, "older"), (4, "newer")):
        late = change(seq, b=value)
        lake.epoch([{"version": late.pop("seq"), **late}])
    assert [(each["version"], each["b"]) for each in lake.rows()] == [(5, "newer")]
    (older,) = [each["sequence"] for each in lake.rows()[0]["_volley_older"] if each["sequence"]]
    assert older == {"version": 4}


def test_a_branch_that_is_published_takes_the_sequences_of_values_along(make_lake: MakeLake) -> None:
    lake = make_lake(IGNORING, PLAIN)
    lake.epoch([change(1, a=1, b="x"), change(5, a=5)])
    main, lake.config = lake.config, lake.config.with_branch("audit")
    driver, epoch, results = Writer(lake, QUERY.replace("2b6f", "3c7f")).stage([change(4, b="y")])
    driver.commit(epoch, results)
    publish_branch(lake.config)
    lake.config = main
    lake.epoch([change(3, b="z"), change(2, c=2.0)])
    assert stored(lake) == [row(5, 5, "y", 2.0)]
