"""An upsert by sequence: the table is the same however its rows come, and equals what DuckDB makes of all of them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.duck import query
from tests.tiers import examples, some
from tests.upserts.conftest import MakeLake
from tests.upserts.lake import QUERY, Lake, do
from volley import ConfigError, Epoch, SchemaMismatchError
from volley.columns.exact import array_of
from volley.iceberg import (
    Append,
    IcebergTable,
    Partitioning,
    SnapshotManager,
    Upsert,
    publish_branch,
    remove_orphan_files,
)
from volley.iceberg.commit import loop
from volley.iceberg.modes import Strategy
from volley.iceberg.pyiceberg_private.access import commit_once
from volley.iceberg.upsert.tombstones import tombstone_branch

SCHEMA = pa.schema({"id": pa.int64(), "part": pa.string(), "seq": pa.int64(), "value": pa.int64(), "op": pa.string()})
TOMBSTONES = tombstone_branch("main")
Row = dict[str, Any]

ROWS = st.fixed_dictionaries(
    {
        "id": st.integers(0, 6),
        "part": st.sampled_from(["a", "b"]),
        "seq": st.integers(0, 5),
        "value": st.none() | st.integers(0, 2),
        "op": st.sampled_from(["u", "c", "D", "delete", None]),
    }
)


SOME = st.lists(ROWS, min_size=1, max_size=10)


def row(number: int, seq: Any, value: Any = None, op: str | None = None, part: str = "a") -> Row:
    return {"id": number, "part": part, "seq": seq, "value": value, "op": op}


def expected(rows: Sequence[Row], schema: pa.Schema = SCHEMA) -> list[Row]:
    """What a batch query makes of all rows, whatever their order."""
    columns = [array_of([each[field.name] for each in rows], field.type) for field in schema]
    found = query(
        """
        select * exclude (op) from events where true
        qualify row_number() over (
            partition by id, part
            order by seq desc, coalesce(lower(op), '') in ('d', 'delete') desc, value desc nulls last
        ) = 1 and coalesce(lower(op), '') not in ('d', 'delete')
        """,
        events=pa.Table.from_arrays(columns, schema=schema),
    )
    return sorted(found.to_arrow_table().to_pylist(), key=repr)


def live(lake: Lake) -> set[str]:
    """The names of the files that a snapshot of the table has."""
    return {file["file_path"].rpartition("/")[2] for file in lake.table().inspect.all_files().to_pylist()}


@st.composite
def histories(draw: st.DrawFn) -> list[list[list[Row]]]:
    """Epochs of tasks of rows; some rows come again in a later epoch."""
    rows = draw(st.lists(ROWS, min_size=1, max_size=24))
    again = draw(st.lists(st.sampled_from(rows), max_size=6))
    everything = draw(st.permutations([*rows, *again]))
    epochs: list[list[list[Row]]] = [[[]]]
    for each in everything:
        cut = draw(st.sampled_from(["row", "row", "task", "epoch"]))
        if cut == "epoch":
            epochs.append([[]])
        elif cut == "task":
            epochs[-1].append([])
        epochs[-1][-1].append(each)
    return [tasks for tasks in epochs if any(tasks)]


@pytest.mark.parametrize("strategy", some(["auto", "merge_on_read", "copy_on_write"]))
@settings(max_examples=examples(0.8))
@given(
    epochs=histories(),
    upkeep=st.lists(st.sampled_from(["", "", "compact", "expire", "orphans"]), max_size=4),
    version=st.sampled_from(["2", "3"]),
)
def test_any_order_gives_the_table_of_a_batch_query(
    strategy: Strategy, epochs: list[list[list[Row]]], upkeep: list[str], version: str
) -> None:
    mode = Upsert(["id", "part"], sequence="seq", op_field="op", strategy=strategy)
    properties = {"format-version": version}
    with tempfile.TemporaryDirectory() as folder, closing(Lake(Path(folder), mode, SCHEMA, **properties)) as lake:
        for number, tasks in enumerate(epochs):
            lake.epoch(*tasks)
            keep(lake, upkeep[number] if number < len(upkeep) else "")
        rows = [each for tasks in epochs for task in tasks for each in task]
        assert lake.rows() == lake.duckdb_rows() == expected(rows)
        assert {path.name for path in lake.files()} <= live(lake)


def keep(lake: Lake, action: str) -> None:
    """Do what maintenance does between two epochs."""
    table = IcebergTable(lake.config.ref)
    if action == "compact":
        table.compact()
    elif action == "expire":
        SnapshotManager(lake.config.ref).expire_snapshots("0s", 1)
    elif action == "orphans":
        remove_orphan_files(lake.config.ref, "0s")


@dataclass
class Writer:
    """One of several jobs that write to a table, with epochs of its own."""

    lake: Lake
    query: str
    number: int = 0

    def stage(self, *tasks: list[Row]) -> tuple[Any, Any, Any]:
        driver = self.lake.driver()
        driver.last_epoch(self.query)
        epoch, results = self.lake.write(driver, self.number, *tasks)
        self.number += 1
        return driver, Epoch(self.query, epoch.number), results


@settings(max_examples=examples(0.3))
@given(first=SOME, second=SOME, swap=st.booleans())
def test_two_writers_whose_epochs_overlap(first: list[Row], second: list[Row], swap: bool) -> None:
    mode = Upsert(["id", "part"], sequence="seq", op_field="op")
    with tempfile.TemporaryDirectory() as folder, closing(Lake(Path(folder), mode, SCHEMA)) as lake:
        writers = Writer(lake, QUERY), Writer(lake, QUERY.replace("2b6f", "3c7f"))
        staged = [writer.stage(rows) for writer, rows in zip(writers, (first, second), strict=True)]
        for driver, epoch, results in reversed(staged) if swap else staged:
            driver.commit(epoch, results)
        assert lake.rows() == expected([*first, *second])
        assert {path.name for path in lake.files()} <= live(lake)


def test_a_commit_of_another_job_between_two_attempts(make_lake: MakeLake) -> None:
    """What was settled for the state before it is settled anew, and its files are deleted."""
    lake = make_lake(Upsert(["id", "part"], sequence="seq", op_field="op"), SCHEMA)
    lake.epoch([row(1, 3, 3), row(2, 1, 1)])
    rows = [row(1, 5, 5), row(2, 4, 4), row(3, 4, 4)]
    others = [row(2, 9, op="d"), row(3, 9, op="d"), row(1, 4, 4)]
    writer, other = Writer(lake, QUERY.replace("2b6f", "3c7f")), Writer(lake, QUERY.replace("2b6f", "4d8f"))
    interrupted = False

    def do_and_be_interrupted(tasks: Sequence[Any]) -> list[Any]:
        nonlocal interrupted
        results = do(tasks)
        if not interrupted:
            interrupted = True
            driver, epoch, written = other.stage(others)
            driver.commit(epoch, written)
        return results

    driver, epoch, results = writer.stage(rows)
    driver._context = type(driver._context)("job", SCHEMA, lake.metrics, do_and_be_interrupted)
    driver.commit(epoch, results)
    assert lake.rows() == expected([row(1, 3, 3), row(2, 1, 1), *rows, *others])
    assert {path.name for path in lake.files()} <= live(lake)


def values() -> Iterator[tuple[str, pa.DataType, list[Any]]]:
    """Types of sequences, each with some values in their order."""
    yield "texts", pa.string(), ["", "2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z"]
    yield "times", pa.timestamp("us", "UTC"), [-5, 0, 7]
    yield "decimals", pa.decimal128(9, 2), ["-1.10", "0.00", "1.05"]
    yield "floats", pa.float64(), [float("-inf"), -0.0, 0.0, float("nan")]
    yield "bytes", pa.binary(), [b"", b"\x00", b"\xff"]
    yield "dates", pa.date32(), [0, 1, 20_000]


@pytest.mark.parametrize(("data_type", "ascending"), [pytest.param(*more, id=name) for name, *more in values()])
def test_types_of_sequences(data_type: pa.DataType, ascending: list[Any], make_lake: MakeLake) -> None:
    schema = pa.schema({"id": pa.int64(), "seq": data_type, "value": pa.int64()})
    lake = make_lake(Upsert("id", sequence="seq"), schema)
    typed = pa.array(ascending, pa.int32() if pa.types.is_date(data_type) else None).cast(data_type)
    rows = [{"id": 1, "seq": seq, "value": number} for number, seq in enumerate(typed.to_pylist())]
    for each in (rows[1], rows[0], rows[-1], *rows):
        lake.epoch([each])
    assert [each["value"] for each in lake.rows()] == [len(rows) - 1]


def test_several_columns_are_compared_one_after_the_other(make_lake: MakeLake) -> None:
    schema = pa.schema({"id": pa.int64(), "day": pa.int64(), "seq": pa.int64()})
    lake = make_lake(Upsert("id", sequence=["day", "seq"]), schema)
    for day, seq in [(2, 1), (1, 9), (2, 3), (2, 2), (1, 10)]:
        lake.epoch([{"id": 1, "day": day, "seq": seq}])
    assert lake.rows() == [{"id": 1, "day": 2, "seq": 3}]


NESTED = pa.schema(
    {
        "id": pa.string(),
        "seq": pa.int64(),
        "tags": pa.list_(pa.string()),
        "more": pa.map_(pa.string(), pa.int64()),
        "at": pa.struct({"x": pa.float64(), "y": pa.list_(pa.int64())}),
    }
)


def test_rows_of_one_sequence_are_compared_by_all_values(make_lake: MakeLake) -> None:
    """Whichever of them comes first, in one epoch or two."""
    one = {"id": "k", "seq": 1, "tags": ["a"], "more": {"b": 2}, "at": {"x": 1.0, "y": [1]}}
    others = [{**one, "tags": ["b"]}, {**one, "at": {"x": 1.0, "y": [2]}}, {**one, "more": None}, {**one, "tags": None}]
    seen = []
    for rows in ([one, *others], [*reversed(others), one], [[one], *([other] for other in others)]):
        lake = make_lake(Upsert("id", sequence="seq"), NESTED)
        for epoch in rows if isinstance(rows[0], list) else [rows]:
            lake.epoch(epoch)
        seen.append(lake.rows())
    assert len(seen[0]) == 1
    assert seen[0] == seen[1] == seen[2]


def test_a_row_that_the_table_has_is_not_written_again(make_lake: MakeLake) -> None:
    lake = make_lake(Upsert(["id", "part"], sequence="seq", op_field="op"), SCHEMA)
    rows = [row(1, 1, 1), row(2, 2, 2), row(3, 3, op="d")]
    lake.epoch(rows)
    before, tombstones = lake.table().metadata.refs["main"], lake.table().metadata.refs[TOMBSTONES]
    lake.epoch(rows)
    lake.epoch([row(2, 1, 7), row(3, 2, 7)])
    refs = lake.table().metadata.refs
    assert (refs["main"], refs[TOMBSTONES]) == (before, tombstones)


def test_required_columns_partitions_and_tombstones(make_lake: MakeLake) -> None:
    """A deletion has no values of the columns that the table requires."""
    fields = [pa.field("id", pa.int64(), nullable=False), pa.field("seq", pa.int64(), nullable=False)]
    required = [("name", pa.string()), ("at", pa.timestamp("us")), ("price", pa.decimal128(9, 2)), ("flag", pa.bool_())]
    required += [("day", pa.date32()), ("time", pa.time64("us")), ("token", pa.uuid()), ("data", pa.binary())]
    inner = [pa.field("x", pa.float64(), nullable=False), pa.field("token", pa.uuid(), nullable=False)]
    nested = [("place", pa.struct(inner)), ("tags", pa.list_(pa.uuid())), ("more", pa.map_(pa.string(), pa.date32()))]
    fields += [pa.field(name, kind, nullable=False) for name, kind in [*required, *nested]]
    schema = pa.schema([*fields, ("op", pa.string())])
    lake = make_lake(Upsert("id", sequence="seq", op_field="op"), schema)
    lake.config = lake.config.with_partitioning([Partitioning.bucket("id", n=4)])
    token = b"sixteen bytes..."
    full = {"name": "n", "at": 0, "price": 1, "flag": True, "place": {"x": 1.0, "token": token}, "tags": [], "op": None}
    full |= {"day": 0, "time": 0, "token": token, "data": b"", "more": []}
    lake.epoch([{"id": number, "seq": 1, **full} for number in range(6)])
    lake.epoch([{"id": number, "seq": 3, "op": "d"} for number in range(3)])
    lake.epoch([{"id": number, "seq": 2, **full} for number in range(6)])
    assert [each["id"] for each in lake.rows()] == [3, 4, 5] == [each["id"] for each in lake.duckdb_rows()]
    assert {each["seq"] for each in lake.rows()} == {2}


def test_many_epochs_of_deletions_leave_few_files(make_lake: MakeLake) -> None:
    lake = make_lake(Upsert(["id", "part"], sequence="seq", op_field="op"), SCHEMA)
    for number in range(40):
        lake.epoch([row(number % 7, number, op="d")])
    table = lake.table()
    files = [*table.scan(snapshot_id=table.metadata.refs[TOMBSTONES].snapshot_id).plan_files()]
    assert len(files) < 20
    lake.epoch([row(number, 39 - number, 1) for number in range(7)])
    # Of each key, the last deletion counts.
    assert lake.rows() == expected(
        [row(number % 7, number, op="d") for number in range(40)] + [row(number, 39 - number, 1) for number in range(7)]
    )


def test_deletions_of_many_partitions_are_not_merged_with_each_epoch(make_lake: MakeLake) -> None:
    lake = make_lake(Upsert(["id", "part"], sequence="seq", op_field="op"), SCHEMA)
    lake.config = lake.config.with_partitioning([Partitioning.identity("part")])
    parts = [chr(letter) for letter in range(ord("A"), ord("A") + 34)]
    rows = [[row(number, 5, op="d", part=part) for part in parts] for number in range(2)]
    for each in rows:
        lake.epoch(each)
    lake.epoch([row(7, 5, op="d", part="A")])
    snapshot = lake.table().snapshot_by_name(TOMBSTONES)
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.summary["added-data-files"] == "1"
    for number in range(8):
        lake.epoch([row(7, number, op="d", part="A")])
        lake.epoch([row(8, number, op="d", part="A")])
    files = lake.table().scan(snapshot_id=lake.table().metadata.refs[TOMBSTONES].snapshot_id).plan_files()
    assert len([*files]) < 2 * len(parts) + 10
    late = [row(number, 4, 4, part=part) for part in parts for number in (0, 1)]
    late += [row(7, 4, 4, part="A"), row(8, 4, 4, part="A")]
    lake.epoch(late)
    assert lake.rows() == expected(
        [*(each for epoch in rows for each in epoch), *[row(number, 7, op="d", part="A") for number in (7, 8)], *late]
    )


def test_what_is_older_than_the_retention_is_forgotten(make_lake: MakeLake, caplog: pytest.LogCaptureFixture) -> None:
    lake = make_lake(Upsert(["id", "part"], sequence="seq", op_field="op", tombstones="1ms"), SCHEMA)
    lake.epoch([row(1, 5, op="d")])
    with caplog.at_level("INFO", "volley"):
        lake.epoch([row(1, 4, 4)])
    assert "forgot 1 remembered changes" in caplog.text
    assert lake.rows() == expected([row(1, 4, 4)])


@pytest.mark.parametrize("others", [[row(2, 1, 1)], []], ids=["rows", "no-rows"])
def test_starting_over_forgets_deletions(others: list[Row], make_lake: MakeLake) -> None:
    lake = make_lake(Upsert(["id", "part"], sequence="seq", op_field="op"), SCHEMA)
    lake.epoch([row(1, 5, op="d"), *others])
    driver = lake.driver()
    driver.last_epoch(QUERY)
    driver.clear()
    assert TOMBSTONES not in lake.table().metadata.refs
    driver, epoch, results = Writer(lake, QUERY.replace("2b6f", "3c7f")).stage([row(1, 4, 4)])
    driver.commit(epoch, results)
    assert lake.rows() == expected([row(1, 4, 4)])


def test_rows_from_before_the_sequence_lose(make_lake: MakeLake) -> None:
    """A row whose stored sequence is null is the earliest one."""
    old = make_lake(Upsert(["id", "part"], op_field="op"), SCHEMA)
    old.epoch([row(1, None, 1), row(2, None, 2)])
    old.config = old.config.with_commit_mode(Upsert(["id", "part"], sequence="seq", op_field="op"))
    old.epoch([row(1, 0, 7)])
    assert [(each["id"], each["value"]) for each in old.rows()] == [(1, 7), (2, 2)]


def test_a_null_sequence_is_refused(make_lake: MakeLake) -> None:
    lake = make_lake(Upsert(["id", "part"], sequence="seq"), SCHEMA.remove(4))
    with pytest.raises(SchemaMismatchError, match="sequence column 'seq' has 1 nulls"):
        lake.epoch([row(1, None)])
    assert lake.rows() == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"sequence": "seq", "order_by": "seq"}, "sequence and order_by are both given"),
        ({"sequence": "seq", "unchanged_field": "seq"}, "sequence is"),
        ({"sequence": ["seq", "seq"]}, "sequence is"),
        ({"sequence": []}, "sequence is"),
        ({"sequence": "id"}, "sequence is"),
        ({"sequence": "op", "op_field": "op"}, "sequence is"),
        ({"tombstones": "7d"}, "tombstones are kept with a sequence only"),
        ({"sequence": "seq", "tombstones": "soon"}, "tombstones"),
        ({"sequence": 3}, "sequence"),
    ],
)
def test_settings_that_make_no_sense(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Upsert("id", **options)


def test_a_column_that_has_no_order(make_lake: MakeLake) -> None:
    schema = pa.schema({"id": pa.int64(), "seq": pa.list_(pa.int64())})
    with pytest.raises(ConfigError, match="whose values have no order"):
        make_lake(Upsert("id", sequence="seq"), schema).driver()
    with pytest.raises(ConfigError, match="upsert by unknown column 'other'"):
        make_lake(Upsert("id", sequence="other"), schema).driver()


def test_an_attempt_without_an_answer_that_lands_late(make_lake: MakeLake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its files are the table's, though the next attempt has settled the epoch anew; that one's are deleted."""
    lake = make_lake(Upsert(["id", "part"], sequence="seq", op_field="op"), SCHEMA)
    lake.epoch([row(1, 3, 3), row(2, 1, 1)])
    rows = [row(1, 5, 5), row(2, 4, op="d")]
    driver, epoch, results = Writer(lake, QUERY.replace("2b6f", "3c7f")).stage(rows)
    sent: list[Any] = []

    def commit(*attempt: Any) -> None:
        sent.append(attempt)
        if len(sent) == 1:
            # What follows is as after a commit of others, which a rollback has taken back.
            driver._upsert._settled_from = ()
            raise TimeoutError("no answer")
        commit_once(*sent[0])
        commit_once(*attempt)

    monkeypatch.setattr(loop, "commit_once", commit)
    driver.commit(epoch, results)
    assert len(sent) == 2
    assert lake.rows() == expected([row(1, 3, 3), row(2, 1, 1), *rows])
    assert {path.name for path in lake.files()} <= live(lake)


@pytest.mark.parametrize(
    ("rows", "others"),
    [
        pytest.param([row(3, 4, 4)], [row(3, 9, op="d")], id="deletion-of-what-is-not-there"),
        pytest.param([row(3, 9, op="d")], [row(3, 4, 4)], id="row-of-a-deletion"),
        pytest.param([row(3, 9, op="d")], [row(3, 7, op="d")], id="deletions"),
    ],
)
def test_a_commit_of_another_job_before_an_attempt_is_sent(
    rows: list[Row], others: list[Row], make_lake: MakeLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that changes nothing but the tombstones, or nothing but the rows.

    Tables of format 1 have no sequence numbers, by which a catalog finds that another snapshot came first.
    """
    lake = make_lake(Upsert(["id", "part"], sequence="seq", op_field="op"), SCHEMA, **{"format-version": "1"})
    lake.epoch([row(1, 1, 1), row(2, 1, op="d")])
    driver, epoch, results = Writer(lake, QUERY.replace("2b6f", "3c7f")).stage(rows)
    other, *committed = Writer(lake, QUERY.replace("2b6f", "4d8f")).stage(others)
    sent: list[Any] = []

    def commit(*attempt: Any) -> None:
        sent.append(attempt)
        if len(sent) == 1:
            other.commit(*committed)
        commit_once(*attempt)

    monkeypatch.setattr(loop, "commit_once", commit)
    driver.commit(epoch, results)
    assert len(sent) > 1
    assert lake.rows() == expected([row(1, 1, 1), *rows, *others])


def test_stored_rows_that_lose_to_what_is_stored_are_taken_out(make_lake: MakeLake) -> None:
    """Duplicates from before, and rows that a rollback has brought back from their deletion."""
    plain = make_lake(Append(), SCHEMA.remove(4))
    plain.epoch([row(1, 1, 1), row(1, 5, 5), row(1, 5, 5), row(2, 1, 1)])
    plain.config = plain.config.with_commit_mode(Upsert(["id", "part"], sequence="seq", op_field="op"))
    plain.schema = SCHEMA
    before = plain.table().current_snapshot()
    assert before is not None
    again = [row(2, 3, op="d"), row(1, 2, 2)]
    plain.epoch(again)
    assert plain.rows() == expected([row(1, 5, 5)])
    SnapshotManager(plain.config.ref).rollback_to(before.snapshot_id)
    plain.epoch(again)
    assert plain.rows() == expected([row(1, 5, 5)])


@pytest.mark.parametrize(
    ("data_type", "values"),
    [
        (pa.float64(), [-0.0, 0.0]),
        (pa.struct({"x": pa.list_(pa.int64())}), [{"x": [1]}, {"x": [2]}]),
        (pa.list_(pa.float64()), [[-0.0], [0.0]]),
        (pa.list_(pa.timestamp("us")), [[2**62], [2**62 + 1]]),
    ],
    ids=str,
)
def test_values_that_python_or_numbers_do_not_tell_apart(
    data_type: pa.DataType, values: list[Any], make_lake: MakeLake
) -> None:
    """Of two rows of one sequence, the same one stays."""
    schema = pa.schema({"id": pa.int64(), "seq": pa.float64(), "value": data_type})
    rows = [{"id": 1, "seq": seq, "value": value} for seq, value in zip([0.0, -0.0], values, strict=True)]
    rows += [{"id": 2, "seq": 1.0, "value": value} for value in values]
    seen = []
    for epochs in ([rows], [rows[::-1]], [[each] for each in rows], [[each] for each in rows[::-1]]):
        lake = make_lake(Upsert("id", sequence="seq"), schema)
        for epoch in epochs:
            lake.epoch(epoch)
        stored = lake.table().scan().to_arrow().sort_by("id").drop_columns(["id"])
        seen.append([str(column.combine_chunks()) for column in stored.columns])
    assert len({*map(tuple, seen)}) == 1


def test_a_branch_has_the_deletions_of_main_and_main_those_of_the_branch_that_is_published(make_lake: MakeLake) -> None:
    lake = make_lake(Upsert(["id", "part"], sequence="seq", op_field="op"), SCHEMA)
    first = [row(1, 1, 1), row(2, 5, op="d"), row(3, 1, 1)]
    lake.epoch(first)
    main, lake.config = lake.config, lake.config.with_branch("audit")
    audited = [row(2, 4, 4), row(1, 6, op="d")]
    driver, epoch, results = Writer(lake, QUERY.replace("2b6f", "3c7f")).stage(audited)
    driver.commit(epoch, results)
    assert lake.rows() == expected([row(1, 1, 1), row(3, 1, 1)])
    publish_branch(lake.config)
    lake.config = main
    lake.epoch([row(1, 5, 5)])
    assert lake.rows() == expected([*first, *audited])


def test_a_branch_that_is_dropped_takes_its_deletions_along(make_lake: MakeLake) -> None:
    lake = make_lake(Upsert(["id", "part"], sequence="seq", op_field="op"), SCHEMA)
    lake.epoch([row(1, 1, 1)])
    main, lake.config = lake.config, lake.config.with_branch("audit")
    driver, epoch, results = Writer(lake, QUERY.replace("2b6f", "3c7f")).stage([row(1, 6, op="d")])
    driver.commit(epoch, results)
    snapshots = SnapshotManager(main.ref)
    assert [branch.name for branch in snapshots.branches()] == ["audit", "main", tombstone_branch("audit")]
    snapshots.drop_branch("audit")
    driver, epoch, results = Writer(lake, QUERY.replace("2b6f", "4d8f")).stage([row(1, 5, 5)])
    driver.commit(epoch, results)
    publish_branch(lake.config)
    assert lake.rows() == expected([row(1, 5, 5)])


def test_an_expiry_leaves_the_deletions_that_another_job_reads(make_lake: MakeLake) -> None:
    """Those of just before; without them the other job would fail, and not find that it has to settle anew."""
    lake = make_lake(Upsert(["id", "part"], sequence="seq", op_field="op"), SCHEMA)
    lake.epoch([row(1, 1, 1), row(2, 5, op="d")])
    rows, others = [row(2, 4, 4), row(1, 2, op="d")], [row(3, 5, op="d")]
    driver, epoch, results = Writer(lake, QUERY.replace("2b6f", "3c7f")).stage(rows)
    other, *committed = Writer(lake, QUERY.replace("2b6f", "4d8f")).stage(others)
    interrupted = False

    def do_and_be_interrupted(tasks: Sequence[Any]) -> list[Any]:
        nonlocal interrupted
        if not interrupted:
            interrupted = True
            other.commit(*committed)
            SnapshotManager(lake.config.ref).expire_snapshots("7d", 1)
        return do(tasks)

    driver._context = type(driver._context)("job", SCHEMA, lake.metrics, do_and_be_interrupted)
    driver.commit(epoch, results)
    assert lake.rows() == expected([row(1, 1, 1), row(2, 5, op="d"), *rows, *others])
