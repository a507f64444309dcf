"""Publishing a table harms none who write to it, and deleted rows of partitions can be told apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.captured import Database
from tests.postgres.runs import running
from tests.postgres.test_many_tables import applied
from tests.postgres.test_refusals import unchanged
from tests.tiers import in_turn
from tests.waiting import wait_until
from volley import SourceContext, SourceError

PARTS = (
    "create table parts (id int not null, v int not null, primary key (id)) partition by range (id)",
    "create table parts_1 partition of parts for values from (0) to (100)",
)
BREAKING = {
    "a partition of a table with a full identity": (
        "create table parts (id int, v int) partition by range (id)",
        "create table parts_1 partition of parts for values from (0) to (100)",
        "alter table parts replica identity full",
    ),
    "a partition of a partition": (
        "create table parts (id int, v int) partition by range (id)",
        "create table middle partition of parts for values from (0) to (100) partition by range (id)",
        "create table parts_1 partition of middle for values from (0) to (100)",
        "alter table parts replica identity full",
        "alter table middle replica identity full",
    ),
    "a partition without identity": (*PARTS, "alter table parts_1 replica identity nothing"),
    "an index that was dropped": (
        *PARTS,
        "create unique index by_v on parts_1 (v)",
        "alter table parts_1 replica identity using index by_v",
        "drop index by_v",
    ),
}


@pytest.mark.parametrize(("case", "tables"), in_turn(BREAKING, [None, "public.parts", ["public.*"]]))
def test_partitions_whose_writers_would_fail(
    shop: Database, tmp_path: Path, case: str, tables: str | list[str] | None
) -> None:
    shop.run(*BREAKING[case])
    with pytest.raises(SourceError, match=r"table public\.parts_1 has no replica identity: once published") as error:
        shop.source(tables).open(SourceContext(str(tmp_path)))
    assert "exclude='public.parts'" in str(error.value.hint)
    unchanged(shop)


def test_partitions_in_another_schema_than_their_table(any_shop: Database, tmp_path: Path) -> None:
    any_shop.run(
        "create schema crm",
        "create table crm.parts (id int, v int) partition by range (id)",
        "create table parts_1 partition of crm.parts for values from (0) to (100)",
    )
    with pytest.raises(SourceError, match=r"table public\.parts_1 has no replica identity"):
        any_shop.source(["public.*"]).open(SourceContext(str(tmp_path)))
    with running(any_shop.source(["public.*"], exclude="crm.parts"), tmp_path) as run:
        assert {*applied(run.epoch())} == {"public.orders"}
    any_shop.run("insert into crm.parts values (1, 1)", "update crm.parts set v = 2", "delete from crm.parts")


def test_a_table_that_loses_its_key_before_the_start(shop: Database, tmp_path: Path) -> None:
    reader = shop.source(None).open(SourceContext(f"{tmp_path}/state"))
    shop.run("create table plain (id int)")
    with pytest.raises(SourceError, match=r"table public\.plain has no replica identity"):
        reader.start()
    unchanged(shop)


def test_tables_that_inherit_are_not_published_with_another(any_shop: Database, tmp_path: Path) -> None:
    any_shop.run("create table heirs () inherits (orders)", "insert into heirs values (1, 'x', 1, null)")
    with running(any_shop.source(), tmp_path) as run:
        assert len(run.epoch()) == 1000
    any_shop.run("update heirs set note = 'y'", "update only orders set note = 'z' where id = 1", "delete from heirs")
    with running(any_shop.source(), tmp_path, run.start) as run:
        assert [(row["_op"], row["note"]) for row in run.epoch()] == [("u", "z")]


def test_a_partition_alone(any_shop: Database, tmp_path: Path) -> None:
    any_shop.run(*PARTS, "insert into parts values (1, 1)")
    with running(any_shop.source("public.parts_1"), tmp_path) as run:
        assert [row["v"] for row in run.epoch()] == [1]
    any_shop.run("update parts set v = 2")
    with running(any_shop.source("public.parts_1"), tmp_path, run.start) as run:
        assert [(row["_op"], row["v"]) for row in run.epoch()] == [("u", 2)]


LACKING = {
    "the table's": (
        "create unique index by_both on parts (id, v)",
        "alter table parts replica identity using index by_both",
    ),
    "the partition's": (
        "create unique index by_v on parts_1 (v)",
        "alter table parts_1 replica identity using index by_v",
    ),
}


@pytest.mark.parametrize("statements", LACKING.values(), ids=LACKING)
def test_partitions_that_lack_the_key_of_their_table(
    any_shop: Database, tmp_path: Path, statements: tuple[str, ...]
) -> None:
    any_shop.run(*PARTS, *statements)
    with pytest.raises(SourceError, match=r"its partition public\.parts_1 lacks a column of the key"):
        any_shop.source("public.parts").open(SourceContext(str(tmp_path)))
    unchanged(any_shop)
    any_shop.run("alter table parts_1 replica identity full", "insert into parts values (1, 1)")
    with running(any_shop.source("public.parts"), tmp_path) as run:
        run.epoch()
    any_shop.run("delete from parts")
    with running(any_shop.source("public.parts"), tmp_path, run.start) as run:
        assert [(row["_op"], row["id"]) for row in run.epoch()] == [("d", 1)]


@pytest.mark.usefixtures("looks_often")
def test_a_partition_that_loses_the_key_while_the_job_runs(shop: Database, tmp_path: Path) -> None:
    shop.run(*PARTS)
    with running(shop.source("public.parts", bounded=False), tmp_path) as run:
        shop.run(*LACKING["the partition's"])
        with pytest.raises(SourceError, match=r"its partition public\.parts_1 lacks a column of the key \('id'\)"):
            wait_until(lambda: run.end() is None, 30, "the failure")


def test_tables_of_a_whole_database_that_come_later_without_a_key(
    shop: Database, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with running(shop.source(None), tmp_path) as run:
        run.epoch()
    shop.run("create table plain (id int)", "create table bare ()", "insert into bare default values")
    with running(shop.source(None), tmp_path, run.start) as run:
        assert run.epoch() == []
    assert 'publication volley has it: add a primary key, or: alter table "public"."plain" replica' in caplog.text
    assert "table public.bare has no columns: it joins when it has one" in caplog.text
    shop.run("alter table bare add id int primary key default 7", "insert into bare values (8)")
    with running(shop.source(None), tmp_path, run.start) as run:
        assert applied(run.epoch()) == {"public.bare": {7: {"id": 7}, 8: {"id": 8}}}


def test_a_column_that_breaks_the_writers_of_a_table_that_is_published(
    shop_18: Database, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shop_18.run("alter table orders replica identity full")
    with running(shop_18.source(), tmp_path) as run:
        run.epoch()
    shop_18.run("alter table orders add double numeric generated always as (total * 2) virtual")
    with running(shop_18.source(), tmp_path, run.start) as run:
        assert run.epoch() == []
    assert "table public.orders has replica identity full, and column 'double', which is generated" in caplog.text
