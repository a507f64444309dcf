"""Keys of every kind, and keys that change while a job reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.captured import Database
from tests.postgres.jobs import difference, mirror
from tests.postgres.runs import running
from tests.postgres.test_many_tables import applied, stored
from volley import SchemaChangedError, SourceError
from volley.formats.packed_rows import unpack_rows


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("identity", ["default", "full"])
def test_keys_that_are_equal_and_print_differently(shop: Database, tmp_path: Path, identity: str) -> None:
    """1.0 = 1.00 and, by the collation, a = A: what is stored is replaced, whatever it prints."""
    shop.run(
        "create collation blind (provider = icu, locale = 'und-u-ks-level2', deterministic = false)",
        "create table parts (number numeric, name text collate blind, price numeric(6, 2), note text, "
        "primary key (name, number, price))",
        f"alter table parts replica identity {identity}",
        "insert into parts values (1.0, 'a', 1, 'x'), (1.0, 'b', 1.5, 'x'), (2, 'A', 1, 'x'), (3.50, 'c', 0, 'x')",
    )
    source, query = shop.source("public.parts"), "select number::text, name, price, note from parts"
    mirror(tmp_path, source)
    shop.run("update parts set number = 1.00, name = 'A' where number = 1 and name = 'a'")
    shop.run("delete from parts where number = 1.000 and name = 'B'", "insert into parts values (1.00, 'B', 1.5, 'y')")
    shop.run("delete from parts where number = 2.0", "update parts set note = 'z' where number = 3.5")
    shop.run("update parts set note = 'zz' where name = 'C'", "insert into parts values (2, 'ä', 1, 'new')")
    mirror(tmp_path, source)
    assert difference(shop, tmp_path, query) == []


IDENTITIES = (
    ["alter table lines replica identity full", "alter table lines replica identity using index by_code"],
    ["alter table lines drop constraint lines_pkey, add primary key (code)"],
)


@pytest.mark.parametrize("statements", IDENTITIES)
def test_another_key_leads_to_a_reload(shop: Database, tmp_path: Path, statements: list[str]) -> None:
    shop.run(
        "create table lines (id int primary key, code text not null)", "create unique index by_code on lines (code)"
    )
    shop.run("insert into lines values (1, 'a'), (2, 'b'), (3, 'c'), (4, 'd'), (5, 'e')")
    source = shop.source("public.lines", packed=True, on_rewrite="reload")
    with running(source, tmp_path) as run:
        tables = applied(run.epoch())
    for id, statement in enumerate(statements, 1):
        shop.run(f"delete from lines where id = {id}", statement)
    shop.run("delete from lines where id = 3")
    with running(source, tmp_path, run.start) as run:
        tables = applied(run.epoch(), tables)
        assert tables["public.lines"] == stored(shop, "lines")
    shop.run("delete from lines where id = 4")
    with running(source, tmp_path, run.start) as run:
        (change,) = (
            row for packet in run.epoch() for batch in unpack_rows(packet["rows"]) for row in batch.to_pylist()
        )
    assert (change["_op"], change["id"], change["code"]) == ("d", None, "d")


def test_another_key_stops_a_job_that_ignores_rewrites(shop: Database, tmp_path: Path) -> None:
    source = shop.source(on_rewrite="ignore")
    with running(source, tmp_path) as run:
        run.epoch()
    shop.run(
        "alter table orders drop constraint orders_pkey, add primary key (customer), add column level int default 1"
    )
    with pytest.raises(SourceError, match="its key was 'id' and is 'customer' now"):
        running(source, tmp_path, run.start).__enter__()


def test_another_key_stops_the_job_or_plans_it_anew(shop: Database, tmp_path: Path) -> None:
    with running(shop.source(), tmp_path) as run:
        run.epoch()
    shop.run("alter table orders drop constraint orders_pkey, add primary key (customer)")
    with pytest.raises(SourceError, match="its key was 'id' and is 'customer' now"):
        running(shop.source(), tmp_path, run.start).__enter__()
    source = shop.source(on_rewrite="reload")
    with running(source, tmp_path, run.start) as run:
        shop.run("alter table orders drop constraint orders_pkey, add primary key (id)")
        with pytest.raises(SchemaChangedError, match="another key"):
            run.epoch()
