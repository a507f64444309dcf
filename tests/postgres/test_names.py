"""Tables, schemas and columns whose names no folder, URL or catalog may have."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from tests.captured import Database
from tests.postgres.jobs import mirror_all
from tests.postgres.runs import running
from tests.postgres.test_many_tables import applied
from volley import SourceContext, SourceError
from volley.storage.state_formats import CAPTURED_TABLE

NAMES = ["a/b", "a.b", "..", "50%", "a\\b", 'a"b', "a'b", "a b", " a ", "{a}", "a_x002F_b", "#", "é?"]


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def test_every_name_has_a_table_of_its_own(shop: Database, tmp_path: Path) -> None:
    for number, name in enumerate(NAMES):
        table = f"{quoted(name)}.{quoted(name)}"
        shop.run(f"create schema {quoted(name)}", f"create table {table} ({quoted(name)} text primary key, n int)")
        shop.run(f"insert into {table} values ('loaded', {number})")
    mirror_all(tmp_path, shop.source(None, exclude="public.orders"))
    for number, name in enumerate(NAMES):
        shop.run(f"insert into {quoted(name)}.{quoted(name)} values ('streamed', {number})")
    mirror_all(tmp_path, shop.source(None, exclude="public.orders"))
    catalog = SqlCatalog("volley", uri=f"sqlite:///{tmp_path}/catalog.db")
    assert catalog.list_namespaces() == [("db",)]
    tables = [catalog.load_table(name).scan().to_arrow() for name in catalog.list_tables("db")]
    seen = {}
    for table in tables:
        key, n = table.column_names
        seen[key] = sorted(zip(table[key].to_pylist(), table[n].to_pylist(), strict=True))
    assert seen == {name: [("loaded", number), ("streamed", number)] for number, name in enumerate(NAMES)}


def test_an_escaped_name(shop: Database, tmp_path: Path) -> None:
    shop.run('create table "a/b.c" (id int primary key)', 'insert into "a/b.c" values (1)')
    with running(shop.source(["public.a*"]), tmp_path) as run:
        assert applied(run.epoch()) == {"public.a_x002F_b_x002E_c": {1: {"id": 1}}}


def test_a_table_that_an_older_volley_has_written(shop: Database, tmp_path: Path) -> None:
    shop.run('create table "a.b" (id int primary key)', 'insert into "a.b" values (1)')
    with running(shop.source(None), tmp_path) as run:
        run.epoch()
    (state,) = (path for path in (tmp_path / "state/tables").iterdir() if b'"a.b"' in path.read_bytes())
    values = CAPTURED_TABLE.load(state.read_bytes(), str(state))
    del values["is_escaped"]
    state.write_text(json.dumps(values))
    with pytest.raises(SourceError, match=r"table public\.a\.b have the name public\.a_x002E_b now") as error:
        shop.source(None).open(SourceContext(f"{tmp_path}/state"))
    assert error.value.hint is not None
    assert "exclude='public.\"a.b\"'" in error.value.hint
    with running(shop.source(None, exclude='public."a.b"'), tmp_path, run.start) as run:
        run.epoch()
    with running(shop.source(None), tmp_path, run.start) as run:
        assert applied(run.epoch()) == {"public.a_x002E_b": {1: {"id": 1}}}
