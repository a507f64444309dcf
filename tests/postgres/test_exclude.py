"""A table that can't go on is named, and can be left out, while the others go on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.captured import Database
from tests.postgres.jobs import differences, mirror_all
from tests.postgres.runs import running
from tests.postgres.test_many_tables import Tables, applied
from volley import (
    ConfigError,
    SourceContext,
    SourceError,
    VolleyError,
)

ODD = {
    "a column of the source's": ("id int primary key, _op text", "1, 'x'", r"has a column '_op', as the source"),
    "another one": ("id int primary key, _unchanged text", "1, 'x'", r"has a column '_unchanged', as the source"),
}


@pytest.mark.parametrize(("columns", "values", "message"), ODD.values(), ids=ODD)
@pytest.mark.parametrize("comes_later", [True, False])
def test_a_table_that_can_not_be_captured(
    shop: Database, tmp_path: Path, columns: str, values: str, message: str, comes_later: bool
) -> None:
    make = f"create table odd ({columns})", f"insert into odd values ({values})"
    start = None
    if comes_later:
        with running(shop.source(None), tmp_path) as run:
            run.epoch()
        start = run.start
    shop.run(*make)
    with pytest.raises(SourceError, match=rf"table public\.odd {message}") as error:
        running(shop.source(None), tmp_path, start).__enter__()
    assert "exclude='public.odd'" in str(error.value.hint)
    shop.run("insert into orders values (5000, 'x', 1, null)")
    with running(shop.source(None, exclude="public.odd"), tmp_path, start) as run:
        tables = applied(run.epoch())
    assert {name: len(rows) for name, rows in tables.items()} == {"public.orders": 1 if comes_later else 1001}
    # A changelog has the table's columns within its own.
    source = shop.source("public.odd", changelog=True, slot_name=f"{shop.name}_2", publication="odd")
    with running(source, tmp_path / "changelog") as run:
        assert len(run.epoch()) == 1


def test_a_table_without_columns(shop: Database, tmp_path: Path) -> None:
    shop.run("create table bare ()", "alter table bare replica identity full", "insert into bare default values")
    with pytest.raises(SourceError, match=r"table public\.bare has no columns"):
        shop.source("public.bare").open(SourceContext(str(tmp_path)))
    with running(shop.source(None), tmp_path) as run:
        assert {*applied(run.epoch())} == {"public.orders"}


def test_a_table_that_loses_its_columns_before_its_load(shop: Database, tmp_path: Path) -> None:
    shop.run("create table bare (id int primary key)", "insert into bare values (1)")
    with running(shop.source(None), tmp_path) as run:
        shop.run("alter table bare drop column id")
        assert {*applied(run.epoch())} == {"public.orders"}
    with pytest.raises(SourceError, match=r"table public\.bare has no columns"):
        running(shop.source(None), tmp_path, run.start).__enter__()
    with running(shop.source(None, exclude="public.bare"), tmp_path, run.start) as run:
        assert run.epoch() == []


INFINITE = "insert into odd values (2, 'infinity')"


@pytest.mark.parametrize("in_load", [True, False])
def test_a_table_whose_values_stop_the_job(shop: Database, tmp_path: Path, in_load: bool) -> None:
    """What is staged, and loads that were planned, are left out too."""
    shop.run("create table odd (id int primary key, at date)", "insert into odd values (1, '2026-01-01')")
    if in_load:
        shop.run(INFINITE)
    tables: Tables = {}
    with running(shop.source(None), tmp_path) as run:
        if not in_load:
            tables = applied(run.epoch())
            shop.run(INFINITE, "insert into orders values (5000, 'x', 1, null)")
    start = run.start
    with (
        running(shop.source(None), tmp_path, start) as run,
        pytest.raises(SourceError, match=r"table public\.odd: column 'at' has 'infinity'"),
    ):
        run.epoch()
    with running(shop.source(None, exclude="*.odd"), tmp_path, start) as run:
        tables = applied(run.epoch(), tables)
    assert len(tables["public.orders"]) == (1000 if in_load else 1001)
    assert tables.get("public.odd", {}).keys() == (set() if in_load else {1})
    shop.run("delete from odd where id = 1", "insert into odd values (3, '2026-01-03')", "delete from odd where id = 2")
    with running(shop.source(None, exclude="*.odd"), tmp_path, run.start) as run:
        assert run.epoch() == []
    # Once it is read again, it is loaded anew: its rows of the time between are in no stream.
    with running(shop.source(None), tmp_path, run.start) as run:
        tables = applied(run.epoch(), tables)
        shop.run("insert into odd values (4, '2026-01-04')")
    assert tables["public.odd"].keys() == {3}
    with running(shop.source(None), tmp_path, run.start) as run:
        assert applied(run.epoch(), tables)["public.odd"].keys() == {3, 4}


def test_names_that_exclude_each_other(shop: Database) -> None:
    with pytest.raises(ConfigError, match=r"table public\.orders is in tables, and in exclude"):
        shop.source(["public.orders", "public.lines"], exclude="public.o*")
    with pytest.raises(ConfigError, match="exclude has 'odd', which is not a schema and a table"):
        shop.source(None, exclude="odd")
    assert shop.source(exclude="public.odd").identity == shop.source().identity
    assert str(shop.source(["public.*"], exclude='public."a.b"')._selection) == "public.* but public.a.b"


def test_a_publication_with_exclude_names_its_tables(shop: Database, tmp_path: Path) -> None:
    shop.run("create table plain (id int)", "create table lines (id int primary key)")
    with running(shop.source(None, exclude="public.plain"), tmp_path) as run:
        run.epoch()
    assert shop.rows("select tablename from pg_publication_tables order by 1") == [("lines",), ("orders",)]
    shop.run("insert into plain values (1)", "update plain set id = 2")


def test_a_table_that_has_another_name_for_a_while(shop: Database, tmp_path: Path) -> None:
    with running(shop.source(["public.orders"], packed=True), tmp_path) as run:
        run.epoch()
    shop.run("alter table orders rename to bought", "insert into bought values (5000, 'x', 1, null)")
    shop.run("alter table bought rename to orders")
    with running(shop.source(["public.orders"], packed=True), tmp_path, run.start) as run:
        assert applied(run.epoch())["public.orders"].keys() == {5000}


REFUSED = {
    "a float as a key": ("id float8 primary key", "select 1", "key field 'id' is of type double"),
    "a type that no table grows to": (
        "id int primary key, v int",
        "alter table odd alter v type oid",
        "Field v has incompatible types: int32 vs string",
    ),
    "a zone": (
        "id int primary key, v timestamp",
        "set timezone = 'UTC'; alter table odd alter v type timestamptz",
        "Field v has incompatible types",
    ),
}


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(("columns", "change", "message"), REFUSED.values(), ids=REFUSED)
def test_a_table_that_the_sink_refuses(shop: Database, tmp_path: Path, columns: str, change: str, message: str) -> None:
    shop.run(f"create table odd ({columns})", "insert into odd values (1)")
    with pytest.raises(VolleyError, match=rf"table db\.public_odd: .*{message}") as error:  # noqa: PT012
        mirror_all(tmp_path, shop.source(None))
        shop.run(change, "insert into odd values (2)")
        mirror_all(tmp_path, shop.source(None))
    assert 'on_error="park"): the other tables go on' in str(error.value.hint)
    shop.run("insert into orders values (5000, 'x', 1, null)")
    mirror_all(tmp_path, shop.source(None, exclude="public.odd"))
    shop.run("drop table odd")
    assert differences(shop, tmp_path) == {"orders": []}
