"""SchemaEvolution: changes as a value, on a schema and on a table, in one commit; what is impossible says why."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import LongType, NestedField, TimestampNanoType

from tests.iceberg.conftest import Make
from tests.iceberg.snapshots import Commit, History, disturb, lost
from volley import CommitConflictError, ConfigError, SchemaMismatchError, SourceError, TableNotFoundError
from volley.iceberg import IcebergSinkConfig, IcebergStorage, SchemaEvolution, TableRef
from volley.iceberg.catalogs.answers import ATTEMPTS
from volley.iceberg.schema.evolve import evolved, update

COLUMNS = "id int, name string, place struct<city: string, zip: int>, tags array<struct<key: string, n: float>>"


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    made = History(tmp_path)
    yield made
    made.close()


def names(schema: Schema) -> list[str]:
    return [field.name for field in schema.fields]


def test_an_evolution_is_a_value() -> None:
    empty = SchemaEvolution("id int")
    one = empty.add("x", "string")
    assert empty.changes == ()
    assert one == SchemaEvolution("id int").add("x", str)
    assert one != empty.add("x", "long")
    assert repr(one.rename("id", "key").drop("x").update_type("key", "long")) == (
        "SchemaEvolution('id int').add('x', 'string').rename('id', 'key').drop('x').update_type('key', 'long')"
    )
    for current in ({"id": "int"}, pa.schema({"id": pa.int32()}), empty.apply()):
        assert SchemaEvolution(current).apply() == empty.apply()


def test_changes_follow_one_another() -> None:
    changed = (
        SchemaEvolution(COLUMNS)
        .add("place.country", "string")
        .rename("place.country", "land")
        .rename("place", "address")
        .update_type("address.zip", "long")
        .drop("address.city")
        .add("address.city", pa.list_(pa.string()))
        .rename("name", "id2")
        .rename("id", "name")
        .rename("id2", "id")
        .update_type("name", "long")
        .update_type("tags.element.n", "double")
        .add("tags.element.note", "string")
        .add(["a.b"], "date")
    )
    assert changed.problems() == ()
    found = changed.apply()
    before = SchemaEvolution(COLUMNS).apply()
    assert names(found) == ["name", "id", "address", "tags", "a.b"]
    assert found.find_field("name").field_id == before.find_field("id").field_id
    assert found.find_field("id").field_id == before.find_field("name").field_id
    assert str(found.find_field("address").field_type).count("list<string>") == 1
    assert found.find_field("address.city").field_id > before.highest_field_id
    assert str(found.find_field("tags.element.n").field_type) == "double"
    assert changed.current == before


IMPOSSIBLE: dict[str, tuple[Callable[[SchemaEvolution], SchemaEvolution], str]] = {
    "unknown": (lambda e: e.drop("nmae"), "'nmae': there is no such column (did you mean 'name'?"),
    "gone": (lambda e: e.drop("name").rename("name", "x"), "'name': there is no such column"),
    "twice": (lambda e: e.add("name", "int"), "'name' can't be added: there is such a column"),
    "by case": (lambda e: e.add("NAME", "int"), "'NAME' can't be added: there is 'name', and other engines"),
    "no parent": (
        lambda e: e.add("plcae.x", "int"),
        "'plcae.x' can't be added: there is no 'plcae' (did you mean 'place'",
    ),
    "no struct": (lambda e: e.add("name.x", "int"), "'name.x' can't be added: 'name' is string, not a struct"),
    "in a list": (lambda e: e.add("tags.x", "int"), "'tags' is list<struct<"),
    "in a key": (lambda e: e.add("m.key.x", "int"), "keys of a map can't change"),
    "a key": (lambda e: e.update_type("m.key.k", "long"), "'m.key.k': keys of a map can't change"),
    "a key's name": (lambda e: e.rename("m.key.k", "l"), "part of a list or of a map's key, and can't be renamed"),
    "narrower": (lambda e: e.update_type("big", "int"), "'big': long can't become int; only int → long"),
    "other": (lambda e: e.update_type("name", "int"), "'name': string can't become int"),
    "nested": (lambda e: e.update_type("place", "int"), "'place': struct<"),
    "to nested": (lambda e: e.update_type("id", "array<int>"), "'id': int can't become list<int>"),
    "scale": (lambda e: e.update_type("price", "decimal(9,3)"), "'price': decimal(5, 2) can't become decimal(9, 3)"),
    "an element": (lambda e: e.drop("tags.element"), "part of a list or of a map's key, and can't be dropped"),
    "the last": (lambda e: e.drop("place.city").drop("place.zip"), "'place.zip': it can't be dropped, no column would"),
    "a name that is there": (
        lambda e: e.rename("id", "name"),
        "'id': it can't be renamed to 'name', the table has that",
    ),
}
WIDE = f"{COLUMNS}, big long, price decimal(5,2), m map<struct<k: int>, int>"


@pytest.mark.parametrize("case", IMPOSSIBLE)
def test_what_is_impossible_says_why(case: str) -> None:
    change, problem = IMPOSSIBLE[case]
    evolution = change(SchemaEvolution(WIDE))
    assert not evolution.is_compatible()
    assert problem in evolution.problems()[-1]
    for use in (evolution.apply, lambda: evolution.to_sql("db.t")):
        with pytest.raises(SchemaMismatchError, match="can't be changed like this") as error:
            use()
        assert problem in str(error.value)


def test_all_that_is_impossible_is_listed() -> None:
    evolution = SchemaEvolution("id long").drop("x").add("y", "int").update_type("id", "int")
    assert len(evolution.problems()) == 2
    with pytest.raises(SchemaMismatchError) as error:
        evolution.apply()
    assert str(error.value).count("\n  - ") == 2


def test_wrong_arguments() -> None:
    evolution = SchemaEvolution("id long")
    for wrong in (
        lambda: SchemaEvolution(5),
        lambda: SchemaEvolution("id lnog"),
        lambda: evolution.add("", "int"),
        lambda: evolution.add("a..b", "int"),
        lambda: evolution.add("a", "itn"),
        lambda: evolution.drop(None),  # type: ignore[arg-type]
        lambda: evolution.rename("id", "a.b"),
        lambda: evolution.to_sql("db.t", "oracle"),
        lambda: evolution.to_sql("db..t"),
        lambda: evolution.apply("db.t"),  # type: ignore[arg-type]
    ):
        with pytest.raises(ConfigError):
            wrong()
    with pytest.raises(SourceError, match="duration"):
        evolution.add("a", pa.duration("s"))
    with pytest.raises(SchemaMismatchError, match="column 'a': Spark has no type for Iceberg's time"):
        evolution.add("a", "time").to_sql("db.t")
    with pytest.raises(SchemaMismatchError, match=r"column 'a': Trino has no type for Iceberg's fixed\[3\]"):
        evolution.add("a", pa.binary(3)).to_sql("db.t", "trino")
    with pytest.raises(SchemaMismatchError, match="can't say that 'element' in it must have a value"):
        evolution.add("a", pa.list_(pa.field("element", pa.int32(), nullable=False))).to_sql("db.t")


# Random changes, against pyiceberg's own


PLACES = st.sampled_from(["a", "b", "id", "s", "s.a", "s.x", "s.y", "l", "l.element.a", "l.element.z"])
VERBS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), PLACES, st.sampled_from(["int", "struct<a: int>"])),
        st.tuples(st.just("drop"), PLACES),
        st.tuples(st.just("rename"), PLACES, st.sampled_from(["a", "b", "c"])),
        st.tuples(st.just("update_type"), PLACES, st.just("long")),
    ),
    max_size=8,
)


@given(verbs=VERBS)
def test_one_commit_gives_the_schema_that_a_commit_for_each_change_would(
    memory_catalog: Catalog, verbs: list[tuple[str, ...]]
) -> None:
    evolution = SchemaEvolution("id int, s struct<x: int, y: int>, l array<struct<z: int, w: int>>")
    start = now = evolution.apply()
    for verb, *arguments in verbs:
        # Tried on the schema so far: on the first one, all the changes before it would be tried again.
        step: SchemaEvolution = getattr(SchemaEvolution(now), verb)(*arguments)
        if step.is_compatible():
            now, evolution = step.apply(), getattr(evolution, verb)(*arguments)
    one, several = (memory_catalog.create_table(f"db.t{uuid.uuid4().hex}", start) for _ in range(2))
    for change in evolution.changes:
        with several.update_schema() as schema:
            change.apply(schema)
    transaction = update(one, evolved(one, evolution.changes, "t")[-1])
    if transaction:
        transaction.commit_transaction()
    assert one.schema().as_struct() == several.schema().as_struct() == evolution.apply().as_struct()
    assert one.metadata.last_column_id >= one.schema().highest_field_id


# On tables


def test_a_table_is_changed_in_one_commit_and_its_rows_stay(history: History) -> None:
    history.append(1, 2)
    before = history.table()
    evolution = (
        SchemaEvolution(before.schema())
        .add("extra", "struct<a: int, b: string>")
        .add("extra.c", "date")
        .rename("id", "key")
        .add("id", "string")
    )
    changed = evolution.apply(history.ref)
    after = history.table()
    assert changed == after.schema()
    assert changed.as_struct() == evolution.apply().as_struct()
    assert len(after.metadata.metadata_log) == len(before.metadata.metadata_log) + 1
    assert len(after.metadata.schemas) == len(before.metadata.schemas) + 1
    assert after.scan().to_arrow().to_pylist() == [{"key": key, "extra": None, "id": None} for key in (1, 2)]
    after.append(pa.table({"key": [3], "id": ["x"]}))
    found = history.table().scan(row_filter="key = 3").to_arrow().to_pylist()
    assert found == [{"key": 3, "extra": None, "id": "x"}]
    # Back again: the schema that is there already is used.
    SchemaEvolution(after.schema()).drop("extra").drop("id").rename("key", "id").apply(history.ref)
    assert history.table().schema() == before.schema()
    assert history.table().schema().schema_id == before.schema().schema_id
    assert history.rows() == history.duckdb_rows() == [1, 2, 3]
    SchemaEvolution(before.schema()).apply(IcebergSinkConfig.from_table(history.ref))
    assert len(history.table().metadata.metadata_log) == len(after.metadata.metadata_log) + 1


def test_properties_that_name_a_column_follow_it(history: History) -> None:
    named = {"write.metadata.metrics.column.id": "none", "write.parquet.bloom-filter-enabled.column.id": "true"}
    with history.table().transaction() as transaction:
        transaction.set_properties(named)
    SchemaEvolution("id long").rename("id", "key").apply(history.ref)
    properties = history.table().properties
    assert properties["write.metadata.metrics.column.key"] == "none"
    assert properties["write.parquet.bloom-filter-enabled.column.key"] == "true"
    assert not named.keys() & properties.keys()


def test_what_a_table_needs_can_not_be_dropped(history: History) -> None:
    schema = Schema(
        NestedField(1, "id", LongType(), required=True), NestedField(2, "a", LongType()), identifier_field_ids=[1]
    )
    spec = PartitionSpec(PartitionField(2, 1000, BucketTransform(4), "a_bucket"))
    history.catalog.create_table("db.other", schema, partition_spec=spec, properties={"format-version": "2"})
    other = history.ref.beside("other")
    for change, problem in (
        (SchemaEvolution(schema).drop("a"), "a partition field needs it"),
        (SchemaEvolution(schema).drop("id"), "the table's identifier needs it"),
        (SchemaEvolution(schema).add("a_bucket", "int"), "a partition field has this name"),
        (SchemaEvolution(schema).rename("id", "a_bucket"), "partition field of that name"),
        (SchemaEvolution(schema).add("at", TimestampNanoType()), "timestamp_ns needs format version 3"),
    ):
        with pytest.raises(SchemaMismatchError, match=problem):
            change.apply(other)
    assert history.catalog.load_table("db.other").schema() == schema
    with pytest.raises(TableNotFoundError):
        SchemaEvolution("id int").apply(history.ref.beside("nothing"))


def test_another_writer_changes_the_schema_first(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    history.append(1)
    others = iter(range(100))

    def other_first(commit: Commit) -> Any:
        with history.table().update_schema() as update:
            update.add_column(f"other{next(others)}", LongType())
        return commit()

    calls = disturb(monkeypatch, other_first)
    SchemaEvolution("id long").add("mine", "string").apply(history.ref)
    assert calls == ["commit"] * 2
    assert names(history.table().schema()) == ["id", "other0", "mine"]
    ids = [field.field_id for field in history.table().schema().fields]
    assert ids == [1, 2, 3]
    disturb(monkeypatch, *[other_first] * ATTEMPTS)
    with pytest.raises(CommitConflictError, match="changing the schema failed"):
        SchemaEvolution("id long").add("late", "string").apply(history.ref)
    assert "late" not in names(history.table().schema())


def test_a_change_whose_answer_is_lost_is_made_once(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = disturb(monkeypatch, lost)
    assert names(SchemaEvolution("id long").add("x", "int").apply(history.ref)) == ["id", "x"]
    assert calls == ["commit"]


def test_rows_of_others_are_no_conflict(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    def other_first(commit: Commit) -> Any:
        history.append(7)
        return commit()

    calls = disturb(monkeypatch, other_first)
    SchemaEvolution("id long").add("x", "int").apply(history.ref)
    assert calls == ["commit"]
    assert history.table().scan().to_arrow().to_pylist() == [{"id": 7, "x": None}]


def test_a_table_without_snapshots(make: Make, tmp_path: Path) -> None:
    ref = TableRef("db", "t", IcebergStorage.Local(str(tmp_path)), catalog="memory")
    catalog = ref.load_catalog()
    catalog.create_namespace("db")
    catalog.create_table("db.t", make("id int").schema())
    assert str(SchemaEvolution("id int").update_type("id", "long").apply(ref).find_field("id").field_type) == "long"
