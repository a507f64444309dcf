"""Columns that the stream leaves out, and keys that have such ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.captured import Database
from tests.postgres.jobs import difference, differences, mirror, mirror_all
from tests.postgres.runs import running
from tests.waiting import wait_until
from volley import SourceContext, SourceError

CODES = (
    "create table codes (tenant int, code text, lower_code text not null generated always as (lower(code)) stored, "
    "primary key (tenant, lower_code))",
    "insert into codes (tenant, code) values (1, 'A'), (1, 'B'), (2, 'C')",
)


def more(shop: Database) -> None:
    shop.run("update codes set code = 'D' where code = 'B'", "insert into codes (tenant, code) values (1, 'E')")
    shop.run("delete from codes where code = 'A'")


@pytest.mark.parametrize("selection", ["public.codes", "public.*"])
def test_a_key_that_the_stream_does_not_have_whole(shop: Database, tmp_path: Path, selection: str) -> None:
    shop.run(*CODES)
    with pytest.raises(SourceError, match=r"table public\.codes: its key has the generated column 'lower_code'"):
        shop.source(selection).open(SourceContext(str(tmp_path)))
    assert shop.rows("select count(*) from pg_publication") == [(0,)]


@pytest.mark.usefixtures("spark")
def test_an_index_without_the_generated_column_is_the_way_out(shop: Database, tmp_path: Path) -> None:
    shop.run(
        *CODES,
        "alter table codes alter code set not null",
        "create unique index by_code on codes (tenant, code)",
        "alter table codes replica identity using index by_code",
    )
    mirror(tmp_path, shop.source("public.codes"))
    more(shop)
    mirror(tmp_path, shop.source("public.codes"))
    assert difference(shop, tmp_path, "select tenant, code from codes") == []


@pytest.mark.usefixtures("spark")
def test_a_generated_key_that_is_published(shop_18: Database, tmp_path: Path) -> None:
    """The publication that the job makes has stored generated columns."""
    shop_18.run(*CODES)
    mirror(tmp_path, shop_18.source("public.codes"))
    more(shop_18)
    mirror(tmp_path, shop_18.source("public.codes"))
    assert difference(shop_18, tmp_path, "select * from codes") == []


def test_a_key_that_gets_a_generated_column(shop: Database, tmp_path: Path) -> None:
    source = shop.source("public.*", on_rewrite="reload", bounded=False)
    shop.run("create table twins (id int primary key, twin int not null generated always as (id * 2) stored)")
    with running(source, tmp_path) as run:
        run.epoch()
        shop.run("alter table twins drop constraint twins_pkey, add primary key (id, twin)")
        shop.run("insert into twins values (1)")
        with pytest.raises(SourceError, match=r"public\.twins: its key has the generated column 'twin'"):
            wait_until(lambda: run.end() is None, 30, "the failure")
    with pytest.raises(SourceError, match=r"public\.twins: its key has the generated column 'twin'"):
        source.open(SourceContext(f"{tmp_path}/state"))


INCLUDING = {
    "primary key": ("primary key (id) include (pay)", "select 1"),
    "replica identity": (
        "unique (id) include (pay)",
        "alter table paid replica identity using index paid_id_pay_key",
    ),
}


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("kind", INCLUDING)
def test_columns_that_an_index_includes_are_not_of_the_key(any_shop: Database, tmp_path: Path, kind: str) -> None:
    constraint, statement = INCLUDING[kind]
    any_shop.run(f"create table paid (pay int, note text, id int not null, {constraint})", statement)
    any_shop.run("insert into paid values (10, 'a', 1), (20, 'b', 2), (30, 'c', 3)")
    mirror(tmp_path, any_shop.source("public.paid"))
    any_shop.run("update paid set pay = pay + 1 where id = 1", "delete from paid where id = 2")
    any_shop.run("update paid set id = 4 where id = 3", "insert into paid values (null, 'd', 2)")
    mirror(tmp_path, any_shop.source("public.paid"))
    assert difference(any_shop, tmp_path, "select * from paid") == []


PRICES = (
    "create table prices (id int primary key, net int, gross int generated always as (net * 2) stored)",
    "insert into prices (id, net) values (1, 10), (2, 20)",
)


@pytest.mark.usefixtures("spark")
def test_an_expression_that_is_dropped(shop: Database, tmp_path: Path) -> None:
    shop.run(*PRICES)
    source = shop.source("public.prices", on_rewrite="reload")
    mirror(tmp_path, source)
    assert difference(shop, tmp_path, "select id, net from prices") == []
    shop.run("alter table prices alter gross drop expression", "insert into prices values (3, 30, 7)")
    mirror(tmp_path, source)
    assert difference(shop, tmp_path, "select id, net, gross from prices") == []


def test_an_expression_that_is_dropped_stops_the_job(shop: Database, tmp_path: Path) -> None:
    shop.run(*PRICES)
    with running(shop.source("public.prices"), tmp_path) as run:
        run.epoch()
    shop.run("alter table prices alter gross drop expression", "insert into prices values (3, 30, 7)")
    message = r"table public\.prices: the stream has column 'gross' now, which it did not have of the rows before"
    with pytest.raises(SourceError, match=message):
        running(shop.source("public.prices"), tmp_path, run.start).__enter__()
    with running(shop.source("public.prices", on_rewrite="ignore"), tmp_path, run.start) as run:
        assert [(row["id"], row["gross"]) for row in run.epoch()] == [(3, 7)]


def test_a_generated_column_that_is_dropped(shop: Database, tmp_path: Path) -> None:
    """It is none that came and went unseen."""
    shop.run(*PRICES)
    with running(shop.source("public.prices"), tmp_path) as run:
        run.epoch()
    shop.run("alter table prices drop gross, add note text", "insert into prices values (3, 30, 'x')")
    with running(shop.source("public.prices"), tmp_path, run.start) as run:
        assert [(row["id"], row["note"]) for row in run.epoch()] == [(3, "x")]


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("published", [None, "none", "stored"])
def test_generated_columns_of_several_tables(shop_18: Database, tmp_path: Path, published: str | None) -> None:
    """What the stream sends, the load reads."""
    shop_18.run(*PRICES)
    if published:
        shop_18.run(f"create publication volley for all tables with (publish_generated_columns = {published})")
    source = shop_18.source(None, on_rewrite="reload")
    mirror_all(tmp_path, source)
    shop_18.run("insert into prices (id, net) values (3, 30)", "update prices set net = 11 where id = 1")
    mirror_all(tmp_path, source)
    if published == "none":
        shop_18.run("alter table prices drop gross")
    assert differences(shop_18, tmp_path) == {"orders": [], "prices": []}


@pytest.mark.usefixtures("spark")
def test_a_publication_that_gets_generated_columns(shop_18: Database, tmp_path: Path) -> None:
    shop_18.run(*PRICES, "create publication volley for all tables")
    source = shop_18.source(None, on_rewrite="reload")
    mirror_all(tmp_path, source)
    shop_18.run("alter publication volley set (publish_generated_columns = stored)")
    shop_18.run("insert into prices (id, net) values (3, 30)", "update prices set net = 11 where id = 1")
    mirror_all(tmp_path, source)
    assert differences(shop_18, tmp_path) == {"orders": [], "prices": []}


@pytest.mark.usefixtures("spark")
def test_the_writers_of_a_table_with_a_generated_column_go_on(shop_18: Database, tmp_path: Path) -> None:
    shop_18.run(*PRICES, "alter table prices replica identity full")
    mirror(tmp_path, shop_18.source("public.prices"))
    shop_18.run("update prices set net = 11 where id = 1", "delete from prices where id = 2")
    mirror(tmp_path, shop_18.source("public.prices"))
    assert difference(shop_18, tmp_path, "select * from prices") == []


@pytest.mark.parametrize("selection", ["public.sums", None])
def test_a_table_whose_writers_would_break_is_refused(shop_18: Database, tmp_path: Path, selection: Any) -> None:
    shop_18.run("create table sums (id int primary key, twice int generated always as (id * 2) virtual)")
    with running(shop_18.source(selection), tmp_path) as run:
        run.epoch()
    shop_18.drop_slots()
    shop_18.run("drop publication volley", "alter table sums replica identity full")
    with pytest.raises(SourceError, match="'twice', which is generated and not stored: once published"):
        shop_18.source(selection).open(SourceContext(f"{tmp_path}/other"))
    shop_18.run("insert into sums values (1)", "update sums set id = 2")
