"""Several tables, or a whole database, through one slot: each with its own columns, tables join on the way."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import adbc_driver_postgresql.dbapi
import pytest

from tests.captured import Database
from tests.postgres.runs import Run, running
from tests.tiers import in_turn
from volley.connectors.postgres import (
    catalog,
    connection,
    load,
    publication,
    requirements,
    tables,
    watch,
)
from volley.formats.packed_rows import unpack_rows

Tables = dict[str, dict[Any, dict[str, Any]]]


def applied(rows: list[dict[str, Any]], to: Tables | None = None) -> Tables:
    """The tables that result if all rows are applied, as upserts do."""
    changes: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        for batch in unpack_rows(row["rows"]):
            changes[f"{row['namespace']}.{row['table']}"] += batch.to_pylist()
    tables = dict(to or {})
    for name, new in changes.items():
        table = dict(tables.get(name, {}))
        for change in sorted(new, key=lambda row: row["_seq"]):
            if change["_op"] == "t":
                table = {}
            elif change["_op"] == "d":
                table.pop(change["id"])
            else:
                table[change["id"]] = {key: value for key, value in change.items() if not key.startswith("_")}
        tables[name] = table
    return tables


def stored(shop: Database, name: str) -> dict[Any, dict[str, Any]]:
    rows = [row for (row,) in shop.rows(f"select to_jsonb(t) from {name} t")]
    return {row["id"]: row for row in rows}


def plain(tables: Tables, name: str) -> dict[Any, dict[str, Any]]:
    """A table's rows as JSON has them."""
    return {
        id: {key: float(value) if key == "total" and value is not None else value for key, value in row.items()}
        for id, row in tables[name].items()
    }


@pytest.fixture
def market(shop: Database) -> Database:
    """A database with three tables in two schemas."""
    shop.run(
        "create schema crm",
        "create table crm.users (id bigint primary key, name text)",
        "insert into crm.users values (1, 'Ada'), (2, 'Bob')",
        "create table lines (id int primary key, item text)",
        "insert into lines values (1, 'tea')",
    )
    return shop


def test_a_whole_database(market: Database, tmp_path: Path) -> None:
    source = market.source(None)
    with running(source, tmp_path) as run:
        tables = applied(run.epoch())
    assert {name: len(rows) for name, rows in tables.items()} == {
        "public.orders": 1000,
        "crm.users": 2,
        "public.lines": 1,
    }
    market.run("update crm.users set name = 'Eve' where id = 2", "delete from lines", "delete from orders where id > 5")
    market.run("insert into lines values (2, 'milk')")
    with running(source, tmp_path, run.start) as run:
        tables = applied(run.epoch(), tables)
    for name in ("public.orders", "crm.users", "public.lines"):
        assert plain(tables, name) == stored(market, name)


def test_some_tables(market: Database, tmp_path: Path) -> None:
    with running(market.source(["crm.*", "public.l?nes"]), tmp_path) as run:
        assert {*applied(run.epoch())} == {"crm.users", "public.lines"}
        market.run("delete from orders where id = 1", "update lines set item = 'x'")
    with running(market.source(["crm.*", "public.l?nes"]), tmp_path, run.start) as run:
        assert applied(run.epoch()) == {"public.lines": {1: {"id": 1, "item": "x"}}}


def test_tables_and_columns_that_come_on_the_way(market: Database, tmp_path: Path) -> None:
    with running(market.source(None), tmp_path) as run:
        tables = applied(run.epoch())
    market.run("create table later (id int primary key, a text)", "insert into later values (1, 'x'), (2, 'y')")
    market.run("delete from later where id = 1", "alter table later add column b numeric(6, 2)")
    market.run("insert into later values (3, 'z', 1.5)", "alter table later drop column a")
    market.run("insert into later values (4, 2.5)", "alter table lines add column n int")
    market.run("update lines set n = 7", "create table empty (id int primary key)")
    with running(market.source(None), tmp_path, run.start) as run:
        tables = applied(run.epoch(), tables)
        market.run("insert into later values (5, 3.5)", "delete from later where id = 2")
    with running(market.source(None), tmp_path, run.start) as run:
        tables = applied(run.epoch(), tables)
    ours = {id: (row.get("id"), row.get("b")) for id, row in tables["public.later"].items()}
    assert ours == {id: (id, b) for id, b in market.rows("select id, b from later")}
    assert plain(tables, "public.lines") == stored(market, "lines")


@pytest.mark.parametrize("packed", [True, False])
def test_truncations_stand_in_their_place(shop: Database, tmp_path: Path, packed: bool) -> None:
    source = shop.source(packed=packed)
    with running(source, tmp_path) as run:
        run.epoch()
    shop.run("insert into orders values (2000, 'before', 1, null)")
    shop.run("truncate orders", "insert into orders values (1, 'after', 1, null)")
    shop.run("insert into orders values (2, 'after', 1, null)")
    with running(source, tmp_path, run.start) as run:
        rows = run.epoch()
    if packed:
        rows = [row for packet in rows for batch in unpack_rows(packet["rows"]) for row in batch.to_pylist()]
    assert [(row["_op"], row["id"]) for row in rows] == [("i", 2000), ("t", None), ("i", 1), ("i", 2)]
    with running(source, tmp_path, run.start) as run:
        assert run.epoch() == []


REWRITES = [
    "alter table lines add column level int default 42",
    "alter table lines alter column item type text using 'v' || item",
    "alter table lines rename column item to thing",
    "alter table lines alter column id type bigint",
    "alter table lines drop column item; alter table lines add column item text",
    "drop table lines; create table lines (id int primary key, item text); insert into lines values (9, 'new')",
]


def catch_up(run: Run, tables: Tables) -> Tables:
    return applied(run.epoch(), tables)


@pytest.mark.parametrize(("statement", "running_on"), in_turn(REWRITES, [True, False]))
def test_rewrites_lead_to_a_reload(market: Database, tmp_path: Path, statement: str, running_on: bool) -> None:
    source = market.source(None, on_rewrite="reload")
    with running(source, tmp_path) as run:
        tables = applied(run.epoch())
        market.run("insert into lines values (2, 'gone soon'), (3, 'stays')", "delete from lines where id = 2")
        if running_on:
            market.run(statement, "insert into lines values (5, 'x')")
    if not running_on:
        market.run(statement)
    with running(source, tmp_path, run.start) as run:
        tables = catch_up(run, tables)
        market.run("delete from lines where id = 1")
    with running(source, tmp_path, run.start) as run:
        tables = catch_up(run, tables)
    assert tables["public.lines"] == stored(market, "lines")


def test_partitions_by_their_root(shop: Database, tmp_path: Path) -> None:
    shop.run(
        "create table parts (id int primary key, v text) partition by range (id)",
        "create table parts_1 partition of parts for values from (0) to (100)",
        "create table parts_2 (v text, id int not null)",
        "alter table parts attach partition parts_2 for values from (100) to (200)",
        "insert into parts select n, 'v' || n from generate_series(95, 104) n",
    )
    source = shop.source(["public.parts"], packed=True, on_rewrite="reload")
    with running(source, tmp_path) as run:
        tables = applied(run.epoch())
        assert tables["public.parts"] == stored(shop, "parts")
    shop.run("update parts set id = id + 100 where id = 99", "delete from parts where id = 100")
    shop.run("create table parts_3 partition of parts for values from (200) to (300)", "insert into parts values (250)")
    with running(source, tmp_path, run.start) as run:
        assert run.end()["loads"] == 1, "a new partition is empty"
        tables = applied(run.epoch(), tables)
        assert tables["public.parts"] == stored(shop, "parts")
    shop.run(
        "create table parts_4 (id int primary key, v text)",
        "insert into parts_4 values (300, 'was there')",
        "alter table parts attach partition parts_4 for values from (300) to (400)",
        "drop table parts_1",
    )
    with running(source, tmp_path, run.start) as run:
        tables = applied(run.epoch(), tables)
        assert tables["public.parts"] == stored(shop, "parts")


def test_a_first_start_does_not_ask_table_by_table(
    shop: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither queries nor connections nor splits grow with the tables."""
    asked, connected = list[str](), list[object]()
    query, connect = connection.query, adbc_driver_postgresql.dbapi.connect

    def noted(on: Any, sql: str, *values: Any, **named: Any) -> Any:
        asked.append(sql)
        return query(on, sql, *values, **named)

    def noted_too(*arguments: Any, **named: Any) -> Any:
        connected.append(arguments)
        return connect(*arguments, **named)

    for module in (tables, load, publication, requirements, catalog, watch):
        monkeypatch.setattr(module, "query", noted)
    monkeypatch.setattr(adbc_driver_postgresql.dbapi, "connect", noted_too)
    shop.run(*(f"create table t{n} (id int primary key)" for n in range(60)))
    shop.run(*(f"insert into t{n} values ({n})" for n in range(60)))
    with running(shop.source(None), tmp_path) as run:
        assert len(run.reader.splits(run.start, run.end())) == 2
        loaded = applied(run.epoch())
    assert {name: [*rows] for name, rows in loaded.items() if name != "public.orders"} == {
        f"public.t{n}": [n] for n in range(60)
    }
    assert len(asked) < 60
    assert len(connected) == 2
