"""A history: its versions are the same however the changes come, and equal what DuckDB makes of all of them."""

from __future__ import annotations

import re
import tempfile
from contextlib import closing
from datetime import date
from itertools import permutations
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.io.pyarrow import pyarrow_to_schema
from pyiceberg.transforms import BucketTransform, IdentityTransform

from tests.duck import query
from tests.tiers import examples, some
from tests.upserts.conftest import MakeLake
from tests.upserts.histories import SCHEMA, Row, change, epochs_of, expected, histories
from tests.upserts.lake import QUERY, Lake
from tests.upserts.test_sequence import Writer, keep, live
from volley import ConfigError, SchemaMismatchError, col
from volley.columns.roles import ChangeColumns
from volley.iceberg import Append, History, Partitioning, SnapshotManager, Upsert, publish_branch
from volley.iceberg.modes import Strategy
from volley.iceberg.upsert.tombstones import tombstone_branch

MODE = History(["id", "part"], sequence="seq", op_field="op")
TOMBSTONES = tombstone_branch("main")


def remembered(lake: Lake) -> list[Row]:
    """The rows of the branch that remembers changes."""
    table = lake.table()
    ref = table.metadata.refs.get(TOMBSTONES)
    return [] if ref is None else table.scan(snapshot_id=ref.snapshot_id).to_arrow().to_pylist()


@pytest.mark.parametrize("track", [None, "value"])
@pytest.mark.parametrize("strategy", some(["auto", "merge_on_read", "copy_on_write"]))
@settings(max_examples=examples(0.6))
@given(
    epochs=histories(),
    upkeep=st.lists(st.sampled_from(["", "", "compact", "expire", "orphans"]), max_size=4),
    format_version=st.sampled_from(["1", "2", "3"]),
)
def test_any_order_gives_the_versions_of_a_batch_query(
    track: str | None, strategy: Strategy, epochs: list[list[list[Row]]], upkeep: list[str], format_version: str
) -> None:
    mode = History(["id", "part"], sequence="seq", op_field="op", track=track, strategy=strategy)
    version = {"format-version": format_version}
    with tempfile.TemporaryDirectory() as folder, closing(Lake(Path(folder), mode, SCHEMA, **version)) as lake:
        for number, tasks in enumerate(epochs):
            lake.epoch(*tasks)
            keep(lake, upkeep[number] if number < len(upkeep) else "")
        rows = [each for tasks in epochs for task in tasks for each in task]
        wanted = expected(rows, [track] if track else ["value", "note"])
        assert lake.rows() == lake.duckdb_rows() == wanted
        assert {path.name for path in lake.files()} <= live(lake)


@settings(max_examples=examples(0.3))
@given(first=histories(), second=histories(), swap=st.booleans())
def test_two_writers_whose_epochs_overlap(
    first: list[list[list[Row]]], second: list[list[list[Row]]], swap: bool
) -> None:
    """Each stages one epoch before either commits."""
    with tempfile.TemporaryDirectory() as folder, closing(Lake(Path(folder), MODE, SCHEMA)) as lake:
        writers = Writer(lake, QUERY), Writer(lake, QUERY.replace("2b6f", "3c7f"))
        tasks = [[task for tasks in epochs for task in tasks] for epochs in (first, second)]
        staged = [writer.stage(*own) for writer, own in zip(writers, tasks, strict=True)]
        for driver, epoch, results in reversed(staged) if swap else staged:
            driver.commit(epoch, results)
        assert lake.rows() == expected([row for own in tasks for task in own for row in task])
        assert {path.name for path in lake.files()} <= live(lake)


A, B, C = "a", "b", "c"
CASES: dict[str, tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]] = {
    # The changes, by sequence, value and operation; the versions, by value, beginning and end.
    "two-rows-of-a-sequence": ([(5, A), (5, B)], [(B, 5, None)]),
    "row-and-deletion-of-a-sequence": ([(1, A), (5, B), (5, None, "d")], [(A, 1, 5)]),
    "deletion-of-an-unknown-key": ([(5, None, "d"), (3, A)], [(A, 3, 5)]),
    "rows-around-a-deletion": ([(1, A), (5, None, "d"), (3, A), (6, A)], [(A, 1, 5), (A, 6, None)]),
    "an-older-row": ([(5, B), (3, A)], [(A, 3, 5), (B, 5, None)]),
    "a-null-is-a-value": ([(1, A), (2, None)], [(A, 1, 2), (None, 2, None)]),
    "deletions-around-a-row": ([(5, None, "d"), (3, None, "d"), (4, A)], [(A, 4, 5)]),
    "an-older-deletion": ([(9, None, "d"), (2, None, "d"), (5, A)], [(A, 5, 9)]),
    "no-operation": ([(1, A, None), (2, B, "update")], [(A, 1, 2), (B, 2, None)]),
    "negative-sequences": ([(-5, A), (-7, B)], [(B, -7, -5), (A, -5, None)]),
    "a-late-row-splits": ([(1, A), (3, C), (2, B)], [(A, 1, 2), (B, 2, 3), (C, 3, None)]),
    "late-row-before-a-deletion": ([(1, A), (3, B), (4, None, "d"), (2, C)], [(A, 1, 2), (C, 2, 3), (B, 3, 4)]),
    "late-row-in-a-closed-version": ([(1, A), (3, None, "d"), (2, B)], [(A, 1, 2), (B, 2, 3)]),
    "a-late-deletion-leaves-a-gap": ([(1, A), (5, B), (3, None, "d")], [(A, 1, 3), (B, 5, None)]),
    "unchanged": ([(1, A), (2, A), (3, A)], [(A, 1, None)]),
    "a-late-equal-row": ([(10, A), (20, A), (15, B), (5, A)], [(A, 5, 15), (B, 15, 20), (A, 20, None)]),
    "there-and-back": ([(1, A), (2, B), (3, A)], [(A, 1, 2), (B, 2, 3), (A, 3, None)]),
    "late-row-between-deletions": ([(1, A), (2, None, "d"), (4, None, "d"), (3, B)], [(A, 1, 2), (B, 3, 4)]),
    "a-gap": ([(1, A), (2, None, "d"), (3, A)], [(A, 1, 2), (A, 3, None)]),
}


@pytest.mark.parametrize("name", CASES)
def test_the_cases_of_auto_cdc(name: str, make_lake: MakeLake) -> None:
    """In one epoch, and each change in its own, in both orders; where pyspark's AUTO CDC depends on that, too."""
    changes, versions = CASES[name]
    schema = pa.schema({"id": pa.int64(), "seq": pa.int64(), "value": pa.string(), "op": pa.string()})
    rows = [dict(zip(schema.names, (1, *more, *["u"][len(more) - 2 :]), strict=True)) for more in changes]
    for epochs in ([rows], [rows[::-1]], [[row] for row in rows], [[row] for row in reversed(rows)]):
        lake = make_lake(History("id", sequence="seq", op_field="op"), schema)
        for epoch in epochs:
            lake.epoch(epoch)
        found = sorted(lake.rows(), key=lambda row: row["valid_from"])
        assert [(row["value"], row["valid_from"], row["valid_to"]) for row in found] == versions
        assert [row["is_current"] for row in found] == [row["valid_to"] is None for row in found]


def test_a_greater_row_of_the_sequence_at_which_a_version_ended_may_make_it_go_on(make_lake: MakeLake) -> None:
    rows = [change(1, 1, 1), change(1, 5, 0), change(1, 5, 1)]
    for order in permutations(rows):
        lake = make_lake(MODE, SCHEMA)
        for row in order:
            lake.epoch([row])
        assert lake.rows() == expected(rows)
    assert [(row["valid_from"], row["valid_to"]) for row in lake.rows()] == [(1, None)]


def test_a_truncate_ends_the_versions_of_all_keys_also_of_those_that_come_later(make_lake: MakeLake) -> None:
    rows = [change(1, 1, 1), change(2, 2, 2), change(None, 5, op="truncate"), change(1, 6, 1), change(3, 3, 3)]
    for order in ([0, 1, 2, 3, 4], [2, 4, 3, 1, 0], [3, 2, 0, 1, 4]):
        lake = make_lake(MODE, SCHEMA)
        for number in order:
            lake.epoch([rows[number]])
        assert lake.rows() == expected(rows)
        lake.epoch(rows)
        assert lake.rows() == expected(rows)
        assert len([row for row in remembered(lake) if row["is_current"]]) == 1


def test_a_truncate_in_a_partitioned_table_that_requires_values(make_lake: MakeLake) -> None:
    lake = make_lake(MODE, SCHEMA)
    fields = [SCHEMA.field(name).with_nullable(name == "value") for name in SCHEMA.names if name != "op"]
    limits = [pa.field("valid_from", pa.int64(), False), pa.field("valid_to", pa.int64())]
    make_table(lake, pa.schema([*fields, *limits, pa.field("is_current", pa.bool_(), False)]))
    with lake.table().update_spec() as spec:
        spec.add_field("id", BucketTransform(4), "bucket").add_field("is_current", IdentityTransform(), "current")
    rows = [change(number, 1, number, note="n") for number in range(6)]
    lake.epoch(rows)
    more = [change(None, 3, op="t"), change(1, 4, op="d"), change(1, 2, 7, note="n")]
    lake.epoch(more)
    lake.epoch(last := [change(9, 2, 9, note="n")])
    assert lake.rows() == lake.duckdb_rows() == expected([*rows, *more, *last])


def test_what_the_table_has_is_not_written_again(make_lake: MakeLake) -> None:
    lake = make_lake(MODE, SCHEMA)
    rows = [change(1, 1, 1), change(1, 2, 1), change(1, 5, 2), change(2, 2, 2), change(3, 3, op="d")]
    rows += [change(None, 4, op="t")]
    lake.epoch(rows)
    before = lake.table().metadata.refs
    lake.epoch(rows[::-1])
    for row in rows:
        lake.epoch([row])
    refs = lake.table().metadata.refs
    assert (refs["main"], refs[TOMBSTONES]) == (before["main"], before[TOMBSTONES])


def test_only_files_with_versions_that_still_matter_are_rewritten(make_lake: MakeLake) -> None:
    """Versions that ended before the first change of an epoch stay where they are."""
    lake = make_lake(History(["id", "part"], sequence="seq", op_field="op", strategy="copy_on_write"), SCHEMA)
    lake.config = lake.config.with_partitioning([Partitioning.identity("is_current")])
    rows = [change(number, seq, seq) for number in range(4) for seq in range(5)]
    lake.epoch(rows)
    closed = {path for path in lake.files() if "is_current=false" in str(path)}
    lake.epoch(rows := [*rows, change(1, 9, 9)][-1:])
    files = {file["file_path"] for file in lake.table().inspect.files().to_pylist()}
    assert {path.name for path in closed} <= {path.rpartition("/")[2] for path in files}
    assert [row["valid_to"] for row in lake.rows() if row["id"] == 1] == [1, 2, 3, 4, 9, None]


DAYS = pa.schema({"id": pa.int64(), "day": pa.date32(), "number": pa.int32(), "value": pa.string(), "op": pa.string()})


def test_several_columns_of_a_sequence_are_a_struct(make_lake: MakeLake) -> None:
    rows = [(2, 1, A, "u"), (1, 9, B, "u"), (2, 3, A, "u"), (2, 2, C, "u"), (1, 10, None, "t"), (3, 0, None, "d")]
    found = []
    for order in permutations(range(len(rows)), 3):
        lake = make_lake(History("id", sequence=["day", "number"], op_field="op", track="value"), DAYS)
        rest = [number for number in range(len(rows)) if number not in order]
        for part in ([order[0]], [order[1]], [order[2]], rest):
            changes = [dict(zip(DAYS.names, (1, *rows[number]), strict=True)) for number in part]
            lake.epoch([{**row, "id": None if row["op"] == "t" else 1} for row in changes])
        versions = query(
            f"""select value, valid_from.day - '1970-01-01'::date, valid_from.number, valid_to.number, valid_to is null
            from iceberg_scan('{lake.table().metadata_location}') order by valid_from"""
        )
        found.append(versions.fetchall())
        if len(found) > 3:
            break
    assert found[0] == [(B, 1, 9, 10, False), (A, 2, 1, 2, False), (C, 2, 2, 3, False), (A, 2, 3, 0, False)]
    assert all(each == found[0] for each in found)


def values() -> list[Any]:
    """Types of sequences, each with some values in their order, and how often -0.0 and 0.0 are one."""
    return [
        pytest.param(pa.string(), ["", "2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z"], id="texts"),
        pytest.param(pa.timestamp("us", "UTC"), [-5, 0, 7], id="times"),
        pytest.param(pa.decimal128(9, 2), ["-1.10", "0.00", "1.05"], id="decimals"),
        pytest.param(pa.float64(), [float("-inf"), -1.5, 0.0, float("nan")], id="floats"),
        pytest.param(pa.binary(), [b"", b"\x00", b"\xff"], id="bytes"),
        pytest.param(pa.date32(), [0, 1, 20_000], id="dates"),
        pytest.param(pa.int32(), [-1, 0, 5], id="integers"),
    ]


@pytest.mark.parametrize(("data_type", "ascending"), values())
def test_types_of_sequences(data_type: pa.DataType, ascending: list[Any], make_lake: MakeLake) -> None:
    schema = pa.schema({"id": pa.int64(), "seq": data_type, "value": pa.int64(), "op": pa.string()})
    lake = make_lake(History("id", sequence="seq", op_field="op"), schema)
    typed = pa.array(ascending, pa.int32() if pa.types.is_date(data_type) else None).cast(data_type).to_pylist()
    rows = [{"id": 1, "seq": seq, "value": number, "op": "u"} for number, seq in enumerate(typed)]
    rows[-1]["op"] = "d"
    for each in (rows[1], rows[0], rows[-1], *rows):
        lake.epoch([each])
    found = sorted(lake.rows(), key=lambda row: int(row["value"]))
    assert [row["value"] for row in found] == [*range(len(rows) - 1)]
    assert [repr(row["valid_from"]) for row in found] == [repr(row["seq"]) for row in rows[:-1]]
    assert [repr(row["valid_to"]) for row in found] == [repr(row["seq"]) for row in rows[1:]]


def test_zeros_are_one_sequence(make_lake: MakeLake) -> None:
    schema = pa.schema({"id": pa.int64(), "seq": pa.float64(), "value": pa.float64()})
    rows = [
        {"id": 1, "seq": -0.0, "value": 1.0},
        {"id": 1, "seq": 0.0, "value": -0.0},
        {"id": 1, "seq": 1.0, "value": 0.0},
    ]
    seen = set()
    for order in permutations(rows):
        lake = make_lake(History("id", sequence="seq"), schema)
        for row in order:
            lake.epoch([row])
        seen.add(repr(lake.rows()))
    assert len(seen) == 1
    assert len(lake.rows()) == 2


def test_an_expression_orders_the_changes(make_lake: MakeLake) -> None:
    mode = History(["id", "part"], sequence=(col("seq") * 2).alias("twice"), op_field="op", track="value")
    lake = make_lake(mode, SCHEMA)
    for row in (change(1, 4, 3), change(None, 5, op="t"), change(1, 3, 3)):
        lake.epoch([row])
    assert [(row["seq"], row["twice"], row["valid_from"], row["valid_to"]) for row in lake.rows()] == [(4, 8, 6, 10)]


def test_rows_of_before_without_a_sequence_are_the_earliest(make_lake: MakeLake) -> None:
    lake = make_lake(Append(), SCHEMA.remove(5))
    lake.epoch([change(1, None, 1), change(1, None, 2)])
    lake.schema, lake.config = SCHEMA, lake.config.with_commit_mode(MODE)
    lake.epoch([change(1, 3, 3)])
    lake.epoch([change(1, 2, op="d")])
    found = sorted((row["value"], row["valid_from"], row["valid_to"]) for row in lake.rows())
    assert found == [(2, None, 2), (3, 3, None)]


def test_what_is_forgotten_leaves_what_the_table_tells(make_lake: MakeLake, caplog: pytest.LogCaptureFixture) -> None:
    mode = History(["id", "part"], sequence="seq", op_field="op", tombstones="1ms")
    lake = make_lake(mode, SCHEMA)
    rows = [change(1, 1, 1), change(1, 3, 1), change(1, 5, 2), change(1, 9, op="d")]
    lake.epoch(rows)
    with caplog.at_level("INFO", "volley"):
        lake.epoch([change(1, 4, 4)])
    assert "forgot 2 remembered changes" in caplog.text
    # The table tells that the first version began at 1 and lasted until 5, and that the last one ended at 9.
    assert lake.rows() == expected([*rows, change(1, 4, 4)])


def test_rows_of_before_are_versions_from_their_sequence_on(make_lake: MakeLake) -> None:
    """A table of an upsert gets the three columns with the first changes."""
    lake = make_lake(Upsert(["id", "part"], sequence="seq", op_field="op"), SCHEMA)
    old = [change(1, 2, 1), change(2, 2, 2)]
    lake.epoch(old)
    lake.config = lake.config.with_commit_mode(MODE)
    lake.epoch([change(1, 4, 4), change(1, 1, 7)])
    found = [row for row in lake.rows() if row["id"] == 1]
    assert found == expected([old[0], change(1, 4, 4), change(1, 1, 7)])


def test_a_table_without_the_columns_that_may_not_get_them(make_lake: MakeLake) -> None:
    lake = make_lake(Append(), SCHEMA.remove(5))
    lake.epoch([change(1, 2, 1)])
    lake.schema, strict = SCHEMA, lake.config.with_commit_mode(MODE).with_schema_evolution("strict")
    lake.config = strict
    with pytest.raises(SchemaMismatchError, match="'valid_from': the table has no such column"):
        lake.epoch([change(1, 4, 4)])


def make_table(lake: Lake, schema: pa.Schema) -> None:
    """Make the table by pyiceberg: what is not nullable, it requires."""
    catalog = lake.config.ref.load_catalog()
    catalog.create_namespace("db")
    numbered = (field.with_metadata({"PARQUET:field_id": str(number)}) for number, field in enumerate(schema, start=1))
    catalog.create_table(lake.config.ref.identifier, pyarrow_to_schema(pa.schema(numbered)))
    catalog.close()


@pytest.mark.parametrize("required", [["valid_from", "is_current", "id"], ["valid_to"]], ids=" ".join)
def test_a_table_that_requires_the_columns(required: list[str], make_lake: MakeLake) -> None:
    """A current version has no end."""
    types = {"id": pa.int64(), "seq": pa.int64(), "valid_from": pa.int64(), "valid_to": pa.int64()}
    fields = [pa.field(name, kind, name not in required) for name, kind in (types | {"is_current": pa.bool_()}).items()]
    lake = make_lake(History("id", sequence="seq"), pa.schema([("id", pa.int64()), ("seq", pa.int64())]))
    make_table(lake, pa.schema(fields))
    if "valid_to" in required:
        with pytest.raises(SchemaMismatchError, match="'valid_to': the table requires a value"):
            lake.driver()
    else:
        lake.epoch([{"id": 1, "seq": 5}])
        assert [(row["valid_from"], row["is_current"]) for row in lake.rows()] == [(5, True)]


def test_a_new_column_begins_a_version(make_lake: MakeLake) -> None:
    lake = make_lake(History("id", sequence="seq"), pa.schema({"id": pa.int64(), "seq": pa.int32()}))
    lake.epoch([{"id": 1, "seq": 1}, {"id": 1, "seq": 3}])
    assert [row["valid_from"] for row in lake.rows()] == [1]
    lake.schema = pa.schema({"id": pa.int64(), "seq": pa.int64(), "name": pa.string()})
    lake.config = lake.config.with_schema_evolution("full")
    lake.epoch([{"id": 1, "seq": 2, "name": "n"}, {"id": 1, "seq": 1 << 40, "name": "n"}])
    found = sorted(lake.rows(), key=lambda row: row["valid_from"])
    assert [(row["valid_from"], row["valid_to"], row["name"]) for row in found] == [
        (1, 2, None),
        (2, 3, "n"),
        (3, 1 << 40, None),
        (1 << 40, None, "n"),
    ]


@pytest.mark.parametrize("renamed_by", ["the job", "the job, with a limit", "another engine"])
def test_limits_keep_the_sequences_of_columns_that_are_renamed(renamed_by: str, make_lake: MakeLake) -> None:
    """They are structs, whose fields follow the columns of the sequence."""
    lake = make_lake(History("id", sequence=["day", "number"], op_field="op"), DAYS)
    day = date(2026, 1, 1)
    rows = [(1, day, 1, A, "u"), (1, day, 5, A, "u"), (2, day, 9, None, "d"), (1, day, 3, B, "u"), (2, day, 7, B, "u")]
    lake.epoch([dict(zip(DAYS.names, row, strict=True)) for row in rows[:3]])
    renames, limit = {"day": "date"}, "valid_from"
    if renamed_by == "another engine":
        with lake.table().update_schema() as update:
            update.rename_column("day", "date")
    if renamed_by == "the job, with a limit":
        renames["valid_from"] = limit = "since"
    lake.schema = DAYS.set(1, DAYS.field("day").with_name("date"))
    mode = History("id", sequence=["date", "number"], op_field="op", valid_from=limit)
    lake.config = lake.config.with_commit_mode(mode)
    if renamed_by == "another engine":
        with pytest.raises(SchemaMismatchError, match=r"'valid_from\.day': to be renamed"):
            lake.driver()
    lake.config = lake.config.with_schema_evolution("full", renames=renames)
    for _ in range(2):
        lake.epoch([dict(zip(lake.schema.names, row, strict=True)) for row in rows[3:]])
    found = sorted(
        (row["value"], *row[limit].values(), *(row["valid_to"] or {"": None}).values()) for row in lake.rows()
    )
    assert found == [(A, day, 1, day, 3), (A, day, 5, None), (B, day, 3, day, 5), (B, day, 7, day, 9)]


def test_a_branch_has_its_own_history_until_it_is_published(make_lake: MakeLake) -> None:
    lake = make_lake(MODE, SCHEMA)
    first = [change(1, 1, 1), change(1, 5, op="d"), change(2, 1, 1), change(2, 2, 1)]
    lake.epoch(first)
    main, lake.config = lake.config, lake.config.with_branch("audit")
    audited = [change(1, 3, 3), change(2, 2, 2), change(None, 7, op="t")]
    driver, epoch, results = Writer(lake, QUERY.replace("2b6f", "3c7f")).stage(audited)
    driver.commit(epoch, results)
    assert lake.rows() == expected(first)
    publish_branch(lake.config)
    lake.config = main
    lake.epoch([change(3, 6, 6)])
    assert lake.rows() == expected([*first, *audited, change(3, 6, 6)])


def test_another_query_goes_on_where_a_checkpoint_was_lost(make_lake: MakeLake) -> None:
    lake = make_lake(MODE, SCHEMA)
    rows = [change(1, 1, 1), change(1, 2, 1), change(1, 4, op="d"), change(None, 3, op="t")]
    lake.epoch(rows[:2])
    lake.epoch(rows[2:])
    writer = Writer(lake, QUERY.replace("2b6f", "3c7f"))
    for row in rows:
        driver, epoch, results = writer.stage([row])
        driver.commit(epoch, results)
    assert lake.rows() == expected(rows)


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        (Upsert(["id", "part"], op_field="op"), "which Upsert by ['id', 'part'] in the order of []"),
        (
            Upsert(["id", "part"], sequence="seq", op_field="op"),
            "which Upsert by ['id', 'part'] in the order of ['seq']",
        ),
        (History("id", sequence="seq", op_field="op"), "which History by ['id'] in the order of ['seq']"),
    ],
)
def test_another_mode_does_not_replace_versions(mode: Upsert | History, said: str, make_lake: MakeLake) -> None:
    """Neither when it starts, nor in a job that began before the history."""
    lake = make_lake(MODE, SCHEMA)
    history = lake.config
    lake.config = history.with_commit_mode(mode)
    other = Writer(lake, QUERY.replace("2b6f", "3c7f"))
    staged = other.stage([change(1, 3, 3)])
    lake.config = history
    lake.epoch([change(1, 1, 1), change(1, 2, 2)])
    with pytest.raises(ConfigError, match=re.escape(f"{said} would replace")):
        staged[0].commit(*staged[1:])
    lake.config = history.with_commit_mode(mode)
    with pytest.raises(ConfigError, match=r"(?s)has the versions of History by .*remove the table property"):
        lake.driver()
    lake.config = history
    lake.epoch([change(1, 4, 4)])
    assert lake.rows() == expected([change(1, 1, 1), change(1, 2, 2), change(1, 4, 4)])


def test_a_history_that_starts_over_leaves_no_word_of_itself(make_lake: MakeLake) -> None:
    lake = make_lake(MODE, SCHEMA)
    lake.epoch([change(1, 1, 1), change(1, 2, 2)])
    lake.driver().clear()
    lake.config = lake.config.with_commit_mode(Upsert(["id", "part"], op_field="op"))
    lake.epoch([change(1, 3, 3)])
    assert [(row["value"], row["seq"]) for row in lake.rows()] == [(change(1, 3, 3)["value"], 3)]


def test_a_rollback_takes_versions_back_and_leaves_what_is_remembered(make_lake: MakeLake) -> None:
    lake = make_lake(MODE, SCHEMA)
    lake.epoch([change(1, 1, 1)])
    before = lake.table().current_snapshot()
    assert before is not None
    lake.epoch([change(1, 5, op="d")])
    SnapshotManager(lake.config.ref).rollback_to(before.snapshot_id)
    assert [row["valid_to"] for row in lake.rows()] == [None]
    lake.epoch([change(1, 4, 1)])
    assert lake.rows() == expected([change(1, 1, 1), change(1, 5, op="d"), change(1, 4, 1)])


def test_many_epochs_leave_few_files_of_remembered_changes(make_lake: MakeLake) -> None:
    lake = make_lake(MODE, SCHEMA)
    rows = [change(number % 3, number, 1, op="d" if number % 7 == 0 else None) for number in range(40)]
    rows += [change(None, number, op="t") for number in (7, 15, 22)]
    for row in rows:
        lake.epoch([row])
    table = lake.table()
    files = [*table.scan(snapshot_id=table.metadata.refs[TOMBSTONES].snapshot_id).plan_files()]
    assert len(files) < 36
    late = [change(number, 39 - 4 * number, 2) for number in range(3)]
    lake.epoch(late)
    assert lake.rows() == expected([*rows, *late])


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (change(1, None, 1), "sequence column 'seq' has 1 nulls"),
        (change(None, 1, 1), "key column 'id' has 1 nulls"),
        (change(None, None, op="t"), "sequence column 'seq' has 1 nulls"),
    ],
    ids=["sequence", "key", "sequence-of-a-truncate"],
)
def test_a_null_is_refused(row: Row, said: str, make_lake: MakeLake) -> None:
    lake = make_lake(MODE, SCHEMA)
    with pytest.raises(SchemaMismatchError, match=said):
        lake.epoch([row])
    assert lake.rows() == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"sequence": []}, "sequence names no column"),
        ({"sequence": "id"}, "column 'id' is in key_fields and in sequence"),
        ({"sequence": ["seq", "seq"]}, "column 'seq' is in sequence and in sequence"),
        ({"sequence": "seq", "op_field": "seq"}, "column 'seq' is in sequence and in op_field"),
        ({"sequence": "seq", "track": ["value", "seq"]}, "column 'seq' is in sequence and in track"),
        ({"sequence": "seq", "track": []}, "track names no column"),
        ({"sequence": "seq", "valid_to": "valid_from"}, "column 'valid_from' is in valid_from and in valid_to"),
        ({"sequence": "seq", "is_current": "id"}, "column 'id' is in key_fields and in is_current"),
        ({"sequence": "seq", "tombstones": "soon"}, "tombstones"),
        ({"sequence": "seq", "strategy": "best"}, "strategy"),
    ],
)
def test_settings_that_make_no_sense(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        History("id", **options)


def test_columns_that_the_stream_must_have_and_must_not_have(make_lake: MakeLake) -> None:
    with pytest.raises(ConfigError, match="history by unknown column 'other'"):
        make_lake(History("id", sequence="seq", track="other"), SCHEMA).driver()
    with pytest.raises(ConfigError, match="the stream has the column 'note', which the history computes"):
        make_lake(History("id", sequence="seq", valid_to="note"), SCHEMA).driver()


def test_rows_that_leave_out_values_are_refused(make_lake: MakeLake) -> None:
    """As PostgreSQL's may; the stream tells which column says so, and what the sequence is."""
    schema = SCHEMA.append(pa.field("missing", pa.list_(pa.string())))
    own = ChangeColumns(("id",), operation="op", unchanged="missing", sequence=("seq",))
    lake = make_lake(History(), own.noted(schema))
    lake.epoch([{**change(1, 1, 1), "missing": []}, {**change(1, 2, op="d"), "missing": None}])
    assert [(row["valid_from"], row["valid_to"]) for row in lake.rows()] == [(1, 2)]
    assert "missing" not in lake.rows()[0]
    with pytest.raises(SchemaMismatchError, match="1 rows leave out values that have not changed"):
        lake.epoch([{**change(1, 3, 1), "missing": ["note"]}])
    with pytest.raises(ConfigError, match="names no sequence, and the stream tells none"):
        make_lake(History("id"), SCHEMA).driver()


def test_names_of_ones_own(make_lake: MakeLake) -> None:
    mode = History("id", sequence="seq", valid_from="since", valid_to="until", is_current="holds")
    lake = make_lake(mode, SCHEMA.remove(5))
    lake.epoch([change(1, 1, 1), change(1, 2, 2)])
    assert [(row["since"], row["until"], row["holds"]) for row in lake.rows()] == [(1, 2, False), (2, None, True)]


@settings(max_examples=examples(0.3))
@given(data=st.data())
def test_wide_spans_of_sequences_prune_nothing_that_matters(data: st.DataObject) -> None:
    """Many versions in many small files, whose bounds leave most of them out."""
    rows = [change(number % 4, 10 * number, number // 8 % 3) for number in range(24)]
    late = [change(number % 4, 10 * number + 5, number % 3) for number in range(0, 24, 5)]
    with tempfile.TemporaryDirectory() as folder, closing(Lake(Path(folder), MODE, SCHEMA)) as lake:
        for epoch in data.draw(epochs_of([*rows, *late])):
            lake.epoch(*epoch)
        assert lake.rows() == expected([*rows, *late])
