"""Rows with their place in the server's log: in whatever order and from however many jobs, the table is the same."""

from __future__ import annotations

import random
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.captured import Database
from tests.drivers import Drivers
from tests.postgres.jobs import config, differences, mirror_all
from tests.postgres.test_keys import large
from tests.tiers import nightly, some
from volley import ConfigError, Environment, IcebergSink, Job, PostgresSource, SourceError, col
from volley.capture.changes import DELETE, INSERT, UPDATE, TableChanges, Truncation
from volley.capture.rows import RowForm
from volley.capture.selection import TableName
from volley.columns.roles import ChangeColumns
from volley.connectors.postgres.decode import ChangeDecoder
from volley.connectors.postgres.messages import BEGIN, TRUNCATE
from volley.connectors.postgres.tables import Table
from volley.connectors.postgres.types import TableColumn
from volley.iceberg import History, Upsert

COLUMNS = (TableColumn("id", 1, 25, -1, 0, False), TableColumn("text", 2, 25, -1, None, False))
DOCS = Table(TableName("public", "docs"), 7, COLUMNS)
FORM = RowForm(DOCS, False, sequence=True)


def begin(position: int) -> bytes:
    return struct.pack(">BQqI", BEGIN, position, 0, 9)


def row(*values: str | None) -> bytes:
    """A row; None = a large value that has not changed."""
    parts = (b"u" if value is None else struct.pack(">cI", b"t", len(value)) + value.encode() for value in values)
    return struct.pack(">H", len(values)) + b"".join(parts)


def key(old: str) -> bytes:
    """The row that an update or a delete tells of: its key alone."""
    return row(old, None)[:-1] + b"n"


def inserted(*values: str | None) -> bytes:
    return struct.pack(">BIc", INSERT, 7, b"N") + row(*values)


def updated(old: str, *values: str | None) -> bytes:
    return struct.pack(">BIc", UPDATE, 7, b"K") + key(old) + b"N" + row(*values)


def deleted(old: str) -> bytes:
    return struct.pack(">BIc", DELETE, 7, b"K") + key(old)


def rows_of(*batches: list[bytes]) -> list[tuple[Any, ...]]:
    """The operation, key and place of each row of batches of one segment."""
    decoder, rows = ChangeDecoder({}), []
    for messages in batches:
        for changes in decoder.changes(pa.record_batch({"message": pa.array(messages, pa.binary())})):
            assert isinstance(changes, TableChanges)
            rows += FORM.changed(changes, 1).select(["_op", "id", "_lsn", "_change"]).to_pylist()
    return [tuple(each.values()) for each in rows]


def test_a_row_has_its_place_in_its_transaction() -> None:
    """Also where a transaction goes on in the next batch, and the server describes the table once more."""
    form = DOCS.to_message()
    assert rows_of(
        [begin(100), form, inserted("a", "x"), updated("a", "b", "y"), begin(200), deleted("b")],
        [inserted("c", "z"), form, inserted("d", "z"), begin(300)],
        [inserted("e", "z")],
    ) == [
        *[("i", "a", 100, 3), ("d", "a", 100, 4), ("u", "b", 100, 5), ("d", "b", 200, 2)],
        *[("i", "c", 200, 5), ("i", "d", 200, 7), ("i", "e", 300, 3)],
    ]


def test_a_truncation_and_a_changed_key_that_leaves_out_a_value() -> None:
    """By sequence each key is settled by itself."""
    messages = [begin(100), DOCS.to_message(), updated("a", "b", None), struct.pack(">BIBI", TRUNCATE, 1, 0, 7)]
    batch = pa.record_batch({"message": pa.array(messages, pa.binary())})
    changes, truncation = ChangeDecoder({}).changes(batch)
    assert isinstance(changes, TableChanges)
    with pytest.raises(SourceError, match="a row has got another key, and leaves out a large value") as error:
        FORM.changed(changes, 1)
    assert 'alter table "public"."docs" replica identity full' in str(error.value.hint)
    assert isinstance(truncation, Truncation)
    with pytest.raises(SourceError, match="it was truncated"):
        FORM.truncated(truncation, 1)


def test_the_stream_tells_its_sequence() -> None:
    roles = ChangeColumns.of(FORM.schema)
    assert (roles.keys, roles.order, roles.sequence) == (("id",), None, ("_lsn", "_change"))
    assert ChangeColumns.of(FORM.schema.remove(FORM.schema.get_field_index("_lsn"))).sequence == ()
    assert Upsert.of_changes(["id"], sequence=True).sequence_fields == ("_lsn", "_change")


@pytest.mark.parametrize("settings", [{"on_rewrite": "reload"}, {"changelog": True}])
def test_settings_that_have_no_place_in_the_log(settings: dict[str, Any]) -> None:
    names: dict[str, Any] = dict.fromkeys(("host", "database", "user", "slot_name", "publication"), "x")
    with pytest.raises(ConfigError, match="sequence"):
        PostgresSource(**names, tables="public.t", sequence=True, **settings)


def run(folder: Path, source: PostgresSource, job: str = "mirror", keys: Any = None) -> Job:
    environment = Environment("local[2]", checkpoint_dir=str(folder / "checkpoints"))
    lake = config(folder).with_commit_mode(Upsert(keys)).with_schema_evolution("full")
    return environment.from_source(source).to_sink(IcebergSink(lake)).execute(job)


def difference(shop: Database, folder: Path, query: str = "select * from orders") -> list[Any]:
    """Rows that only PostgreSQL or only the Iceberg table has."""
    table = IcebergSink(config(folder)).table().scan().to_arrow()
    ours = [tuple(each.values()) for each in table.select(["id", "customer", "total", "note"]).to_pylist()]
    assert len(set(ours)) == len(ours), "rows are doubled"
    return sorted(set(ours) ^ set(shop.rows(query)), key=repr)


@pytest.fixture
def stored_apart(shop: Database) -> Database:
    """The table of orders with large notes, which an update leaves out."""
    shop.run(
        "alter table orders alter note set storage external",
        "delete from orders where id > 100",
        f"update orders set note = {large(1)} where id % 2 = 0",
    )
    return shop


@pytest.mark.usefixtures("spark")
def test_a_mirror_and_a_second_job_beside_it(stored_apart: Database, tmp_path: Path) -> None:
    """The second one loads what the first one has followed, and the first one goes on behind it."""
    shop = stored_apart
    first, second = shop.source(sequence=True), shop.source(sequence=True, slot_name=f"{shop.name}_second")
    run(tmp_path, first)
    assert difference(shop, tmp_path) == []
    shop.run("update orders set total = total + 1 where id % 3 = 0", "delete from orders where id % 10 = 5")
    run(tmp_path, second, "second")
    # What the first job has not read yet is older than what the second one has loaded, or a deletion.
    run(tmp_path, first)
    assert difference(shop, tmp_path) == []
    shop.run("update orders set customer = 'new' where id % 7 = 0")
    shop.run(f"update orders set note = {large(2)} where id = 8")
    shop.run("update orders set id = id + 1000 where id < 4 and id % 2 = 1", "insert into orders values (5, 'again')")
    run(tmp_path, second, "second")
    run(tmp_path, first)
    assert difference(shop, tmp_path) == []
    run(tmp_path, second, "second")
    assert difference(shop, tmp_path) == []
    schema = IcebergSink(config(tmp_path)).table().schema()
    names = [field.name for field in schema.fields]
    assert names == [
        "id",
        "customer",
        "total",
        "note",
        "_lsn",
        "_change",
        "_volley_older",
    ]


@pytest.mark.usefixtures("spark")
def test_a_history(shop: Database, tmp_path: Path) -> None:
    """The versions of rows are in the order of the log."""
    shop.run("delete from orders where id > 3", "alter table orders replica identity full")
    sink = IcebergSink(config(tmp_path).with_commit_mode(History()))
    changes = Environment("local[2]", checkpoint_dir=str(tmp_path / "checkpoints")).from_source(
        shop.source(sequence=True)
    )
    job = changes.to_sink(sink)
    job.execute("history")
    shop.run("update orders set customer = 'x' where id = 1", "delete from orders where id = 2")
    shop.run("update orders set customer = 'y' where id = 1")
    job.execute("history")
    rows = sorted(sink.to_arrow().to_pylist(), key=lambda row: (row["id"], row["_lsn"], row["_change"]))
    assert [(row["id"], row["customer"], row["is_current"]) for row in rows] == [
        *[(1, "c1", False), (1, "x", False), (1, "y", True), (2, "c2", False), (3, "c3", True)],
    ]
    assert [row["valid_to"] for row in rows[:2]] == [row["valid_from"] for row in rows[1:3]]


@pytest.mark.usefixtures("spark")
def test_a_job_whose_checkpoint_is_lost(stored_apart: Database, tmp_path: Path) -> None:
    """It loads the table again into what is there, and deletions that it has not seen itself stay."""
    shop = stored_apart
    run(tmp_path, shop.source(sequence=True))
    shop.run("update orders set total = 1 where id < 50", "delete from orders where id = 1")
    run(tmp_path, shop.source(sequence=True))
    shop.run("update orders set total = 2 where id < 20", "update orders set customer = 'x' where id > 90")
    run(tmp_path, shop.source(sequence=True, slot_name=f"{shop.name}_anew"), "anew")
    assert difference(shop, tmp_path) == []


@pytest.mark.parametrize("point", some(["before-commit", "after-commit"]))
def test_a_driver_that_dies_at_the_commit_of_a_load(
    point: str, drivers: Drivers, stored_apart: Database, tmp_path: Path
) -> None:
    """Also where the load is read again, by a snapshot that has seen more."""
    shop = stored_apart
    drivers.die(f"{point}@0", run, tmp_path, shop.source(sequence=True))
    shop.run("update orders set total = 5 where id % 2 = 0", "delete from orders where id = 9")
    run(tmp_path, shop.source(sequence=True))
    assert difference(shop, tmp_path) == []


@pytest.mark.usefixtures("spark")
def test_changes_of_dead_letters_are_older_than_what_came_since(shop: Database, tmp_path: Path) -> None:
    sink = IcebergSink(
        config(tmp_path).with_commit_mode(Upsert()).with_schema_evolution("full").with_dead_letter("bad")
    )
    changes = Environment("local[2]", checkpoint_dir=str(tmp_path / "checkpoints")).from_source(
        shop.source(sequence=True)
    )
    shop.run("delete from orders where id > 5")
    first = changes.with_column("number", col("customer").str.replace("c", "").cast("long")).to_sink(sink)
    first.execute("mirror")
    shop.run("update orders set customer = 'x' where id < 4")
    shop.run("update orders set customer = 'c20' where id = 1", "delete from orders where id = 2")
    assert first.execute("mirror").progress.rejected == 3
    mended = changes.with_column("number", col("customer").str.length().cast("long")).to_sink(sink)
    mended.replay("mirror")
    rows = {each["id"]: each for each in sink.to_arrow().to_pylist()}
    assert {id: (each["customer"], each["number"]) for id, each in rows.items()} == {
        **{1: ("c20", 20), 3: ("x", 1)},
        **{4: ("c4", 4), 5: ("c5", 5)},
    }
    assert difference(shop, tmp_path) == []


@pytest.mark.usefixtures("spark")
def test_several_tables(stored_apart: Database, tmp_path: Path) -> None:
    """Each has the sequences of its own rows; one that joins later is loaded before them."""
    shop = stored_apart
    shop.run(f"create table notes (id int primary key, n int, text text); insert into notes values (1, 1, {large(3)})")
    source = shop.source("public.*", sequence=True)
    mirror_all(tmp_path, source)
    shop.run("update notes set n = 2", "update orders set total = 0 where id < 9", "delete from orders where id > 90")
    shop.run("create table pages (id int primary key, text text); insert into pages values (1, 'a'), (2, 'b')")
    mirror_all(tmp_path, source)
    shop.run("update pages set text = 'c' where id = 2", "update notes set n = 3")
    mirror_all(tmp_path, source)
    assert differences(shop, tmp_path) == {"notes": [], "orders": [], "pages": []}


def changed(dice: random.Random, number: int) -> list[str]:
    """Some statements: updates with large values and without, deletions, keys that come again or change."""
    low = dice.randrange(60)
    return dice.sample(
        [
            f"update orders set total = {number} where id between {low} and {low + 9}",
            f"update orders set note = {large(number)} where id = {low}",
            f"delete from orders where id between {low} and {low + 2}",
            f"insert into orders values ({1000 + number}, 'new', 1, {large(number)})",
            f"delete from orders where id = {low + 3}",
            f"insert into orders values ({low + 3}, 'again', 2, null) on conflict do nothing",
            f"update orders set id = {2000 + number} where id = {low + 4}",
        ],
        3,
    )


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("seed", [nightly(seed) for seed in range(3)])
def test_several_jobs_in_any_order(seed: int, stored_apart: Database, tmp_path: Path) -> None:
    """Some begin while others are behind; in the end each has read all."""
    shop, dice, jobs = stored_apart, random.Random(seed), ["first"]
    shop.run("alter table orders replica identity full")

    def start(job: str) -> None:
        run(tmp_path, shop.source(sequence=True, slot_name=f"{shop.name}_{job}"), job)

    for number in range(8):
        for step in range(3):
            shop.run(*changed(dice, 10 * number + step))
        if number in (2, 5):
            jobs.append(f"job_{number}")
        for job in dice.sample(jobs, dice.randrange(1, len(jobs) + 1)):
            start(job)
    for job in dice.sample(jobs, len(jobs)):
        start(job)
    assert difference(shop, tmp_path) == []
