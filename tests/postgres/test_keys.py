"""Keys of every kind, and keys that change while a job reads."""

from __future__ import annotations

import struct
from pathlib import Path

import pyarrow as pa
import pytest

from tests.captured import Database
from tests.postgres.jobs import difference, differences, mirror, mirror_all
from tests.postgres.runs import running
from tests.postgres.test_many_tables import applied, stored
from volley import SchemaChangedError, SourceError
from volley.capture.changes import UPDATE, TableChanges
from volley.capture.rows import RowForm
from volley.capture.selection import TableName
from volley.connectors.postgres.decode import ChangeDecoder
from volley.connectors.postgres.messages import BEGIN
from volley.connectors.postgres.tables import Table
from volley.connectors.postgres.types import TableColumn
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


def test_another_identity_for_a_while(any_shop: Database, tmp_path: Path) -> None:
    """Its deletions have another key, and the catalog shows nothing of it any more."""
    any_shop.run("create unique index by_customer on orders (customer)")
    source = any_shop.source(packed=True)
    with running(source, tmp_path) as run:
        tables = applied(run.epoch())
    any_shop.run("alter table orders replica identity using index by_customer", "delete from orders where id > 2")
    any_shop.run("update orders set customer = 'new' where id = 1", "alter table orders replica identity default")
    any_shop.run("insert into orders values (5000, 'x', 1, null)")
    with pytest.raises(SourceError, match="its replica identity was 'customer' for a while, without the key 'id'"):
        running(source, tmp_path, run.start).__enter__()
    with running(any_shop.source(packed=True, on_rewrite="reload"), tmp_path, run.start) as run:
        tables = applied(run.epoch(), tables)
    assert {id: row["customer"] for id, row in tables["public.orders"].items()} == {1: "new", 2: "c2", 5000: "x"}


IDENTITY_OF = {"whole": "full", "own": "default", "indexed": "using index by_id"}


def large(number: int) -> str:
    """A text of 2,400 bytes that PostgreSQL stores out of line."""
    return f"(select string_agg(md5(n::text || {number}), '') from generate_series(1, 75) n)"


@pytest.mark.usefixtures("spark")
def test_keys_that_are_stored_out_of_line(any_shop: Database, tmp_path: Path) -> None:
    """An update leaves out large values that stay as they are: of a key, the old row has them."""
    for name, identity in IDENTITY_OF.items():
        any_shop.run(
            f"create table {name} (id text not null, part int, n int, pay text, primary key (id, part))",
            f"create unique index {'by_id' if name == 'indexed' else f'{name}_by_id'} on {name} (id)",
            f"alter table {name} alter id set storage external",
            f"alter table {name} replica identity {identity}",
            f"insert into {name} select {large(1)}, 1, 1, {large(5)} union select {large(2)}, 1, 2, {large(6)} "
            f"union select {large(3)}, 1, 3, null union select {large(4)}, 1, 4, 'x'",
        )
    source = any_shop.source(["public.whole", "public.own", "public.indexed"])
    mirror_all(tmp_path, source)
    for name in IDENTITY_OF:
        any_shop.run(f"update {name} set n = 10 where n = 1", f"update {name} set part = 2 where n = 2")
        any_shop.run(f"delete from {name} where n = 3", f"update {name} set id = {large(7)}, pay = 'y' where n = 4")
    any_shop.run("drop table orders")
    mirror_all(tmp_path, source)
    assert differences(any_shop, tmp_path) == {"indexed": [], "own": [], "whole": []}


def test_a_key_that_an_old_server_does_not_send() -> None:
    columns = (TableColumn("id", 1, 25, -1, 0, False), TableColumn("n", 2, 23, -1, None, False))
    table = Table(TableName("public", "docs"), 7, columns)
    begin = struct.pack(">BQqI", BEGIN, 100, 0, 9)
    update = struct.pack(">BIcHccI", UPDATE, 7, b"N", 2, b"u", b"t", 1) + b"5"
    batch = pa.record_batch({"message": pa.array([begin, table.to_message(), update], pa.binary())})
    (changes,) = ChangeDecoder({}).changes(batch)
    assert isinstance(changes, TableChanges)
    with pytest.raises(SourceError, match="key column 'id' has a large value that an update has not changed") as error:
        RowForm(table, nulls=False).changed(changes, 1)
    assert 'alter table "public"."docs" replica identity full' in str(error.value.hint)
